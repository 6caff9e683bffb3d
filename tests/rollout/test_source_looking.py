"""Looking at a source again and again: a state, never an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

import orjson
import pytest

from cascade.errors import ConfigError
from cascade.rollout.sources.desired import Desired, utc_now
from cascade.rollout.sources.looking import Looking, ReleaseSource
from cascade.rollout.store import ReleaseStore, Stored
from cascade.testing.clock import run_virtual
from tests.telemetry.captured import captured_log

from .bundles import looking

_ONE: Final = Stored("sha256:1", "one", Path("1.tar"))
_OTHER: Final = Stored("sha256:2", "other", Path("2.tar"))


class _Scripted(ReleaseSource):
    """A source whose looks are told beforehand; ``hinting`` says what hints do."""

    def __init__(self, folder: Path, looks: list[Stored | Exception], how: Looking) -> None:
        super().__init__(ReleaseStore(folder), how)
        self.looks = looks
        self.times: list[float] = []
        self.hinting: Callable[[Callable[[], None]], None] = lambda hint: None

    async def _look(self) -> Stored:
        self.times.append(asyncio.get_running_loop().time())
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def _hints(self, hint: Callable[[], None]) -> None:
        self.hinting(hint)
        await asyncio.sleep(10)
        hint()
        await asyncio.Event().wait()


async def _seen(source: ReleaseSource, many: int) -> list[Desired]:
    """Return the first so many changes of a source."""
    found: list[Desired] = []
    async with aclosing(source.changes()) as changes:
        async for desired in changes:
            found.append(desired)
            if len(found) == many:
                break
    return found


def test_only_what_is_another_is_told(tmp_path: Path) -> None:
    """The first look is; a fault is told and leaves what was known; that it ended is told too. The log has a fault once."""
    gone = ConfigError("gone")
    source = _Scripted(tmp_path, [_ONE, _ONE, gone, gone, _ONE, _OTHER], looking())
    with captured_log() as log:
        found = run_virtual(_seen(source, 4))
    lines = [orjson.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["event"], line["why"]) for line in lines] == [("the release that is named cannot be used", "gone")]
    known = Desired("sha256:1", "one", Path("1.tar"), "1", "2")
    assert found[0] == known
    assert found[1] == Desired("sha256:1", "one", Path("1.tar"), "1", "2", "gone")
    assert found[2] == known
    assert (found[3].digest, found[3].fault, found[3].asked_at, found[3].downloaded_at) == ("sha256:2", None, "7", "8")


def test_a_source_that_never_had_a_release_names_none(tmp_path: Path) -> None:
    """Only the fault is known."""
    assert run_virtual(_Scripted(tmp_path, [ConfigError("gone")], looking()).now()) == Desired(fault="gone")


def test_it_is_looked_without_any_hint_and_sooner_with_one(tmp_path: Path) -> None:
    """At the start, at the hint after 10 s, and then at every interval."""
    source = _Scripted(tmp_path, [_ONE, _ONE, _ONE, _OTHER], looking(seconds=30.0))
    run_virtual(_seen(source, 2))
    assert source.times == pytest.approx([0.0, 10.0, 40.0, 70.0])


@pytest.mark.parametrize(("drawn", "interval"), [(0.0, 24.0), (0.5, 30.0), (1.0, 36.0)])
def test_replicas_do_not_ask_at_once(drawn: float, interval: float) -> None:
    """The interval is a fifth longer or shorter, by chance."""
    assert looking(draw=lambda: drawn).interval_s() == pytest.approx(interval)
    assert 24.0 <= Looking().interval_s() <= 36.0


def test_hints_that_fail_are_told_once_and_nothing_hangs_on_them(tmp_path: Path) -> None:
    """Looks go on at their interval, and hints are tried again."""
    source = _Scripted(tmp_path, [_ONE, _ONE, _OTHER], looking(seconds=30.0))
    asked: list[float] = []

    def refuse(hint: Callable[[], None]) -> None:
        asked.append(asyncio.get_running_loop().time())
        raise OSError("no more watches")

    source.hinting = refuse
    with captured_log() as log:
        run_virtual(_seen(source, 2))
    assert source.times == pytest.approx([0.0, 30.0, 60.0])
    assert asked == pytest.approx([0.0, 30.0, 60.0])
    lines = [orjson.loads(line) for line in log.getvalue().splitlines()]
    told = [line for line in lines if line["event"].startswith("a new release is found at the next look")]
    assert [line["why"] for line in told] == ["OSError"]


def test_a_fault_of_our_own_does_not_end_the_looking(tmp_path: Path) -> None:
    """It is counted, and told by its kind alone."""
    counted: list[BaseException] = []
    source = _Scripted(tmp_path, [TypeError("kingfisher"), _ONE], looking(count_fault=counted.append))
    found = run_virtual(_seen(source, 2))
    assert [one.fault for one in found] == ["an internal fault: TypeError", None]
    assert [type(error) for error in counted] == [TypeError]


def test_two_who_ask_at_once_are_answered_one_after_the_other(tmp_path: Path) -> None:
    """A look is never begun while another is under way."""

    async def ask() -> list[Desired]:
        source = _Scripted(tmp_path, [_ONE, _OTHER], looking())
        return [*await asyncio.gather(source.now(), source.now())]

    assert [one.digest for one in run_virtual(ask())] == ["sha256:1", "sha256:2"]


def test_who_stops_listening_leaves_nothing(tmp_path: Path) -> None:
    """The task of the hints ends with the changes, also by cancellation."""

    async def listen() -> int:
        source = _Scripted(tmp_path, [_ONE], looking())
        waiting = asyncio.create_task(_seen(source, 2))
        await asyncio.sleep(1000)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await _seen(source, 1)
        return len(asyncio.all_tasks())

    assert run_virtual(listen()) == 1


def test_times_are_in_utc() -> None:
    """They can be compared as text."""
    assert utc_now().endswith("+00:00")
    assert utc_now() <= utc_now()
