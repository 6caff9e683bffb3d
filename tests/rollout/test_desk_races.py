"""What an operator, the source and a slow disk do to a rollout at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep, Refused
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.desk import TICK_S
from cascade.testing.clock import run_virtual
from cascade.types import Arm
from tests.rollout.desk_fakes import FakeController, FakeKeeps, Setup


class _SlowDisk:
    """Work elsewhere that takes ``seconds``."""

    def __init__(self) -> None:
        self.seconds = 0.1

    async def __call__(self, work: Callable[[], Any], /) -> Any:
        await asyncio.sleep(self.seconds)
        return work()


def _play(folder: Path, scenario: Callable[[Setup, _SlowDisk], Awaitable[None]]) -> Setup:
    """Run a scenario beside the loop of a desk whose state is kept on a slow disk."""

    async def play() -> Setup:
        disk = _SlowDisk()
        setup = Setup(folder, FakeKeeps(), off_loop=disk)
        loop = asyncio.create_task(setup.desk.run())
        await asyncio.sleep(0.5)
        await scenario(setup, disk)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await setup.desk.aclose()
        assert [release for release in setup.releases if release.is_open] == [setup.traffic.stable]
        return setup

    return run_virtual(play())


def test_of_two_starts_at_one_moment_one_is_refused(tmp_path: Path) -> None:
    """Also while it is still being written down that the first began."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.write("r2")
        setup.write("r3")
        starts = asyncio.gather(setup.desk.start("r2"), setup.desk.start("r3"), return_exceptions=True)
        first, second = list[Any](await starts)
        assert isinstance(first, dict)
        assert first["candidate"]["release"] == "r2"
        assert isinstance(second, ConfigError)
        assert "a rollout is under way" in str(second)
        assert setup.traffic.candidate is not None
        assert setup.traffic.candidate.name == "r2"

    assert _play(tmp_path, scenario).happened() == ["served", "started"]


def test_an_abort_ends_what_has_only_just_begun(tmp_path: Path) -> None:
    """While its beginning is written down there is no step yet that could be cancelled; it takes none all the same."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.write("r2")
        starting = asyncio.create_task(setup.desk.start("r2"))
        await asyncio.sleep(0.05)
        assert setup.desk.status()["candidate"]["release"] == "r2"
        assert (await setup.desk.abort("a mistake"))["state"] == "aborted"
        with pytest.raises(Refused, match="refused at read: a mistake"):
            await starting
        assert setup.traffic.candidate is None

    setup = _play(tmp_path, scenario)
    assert setup.happened() == ["served", "aborted"]
    assert len(setup.releases) == 1


def test_a_stop_while_the_beginning_is_written_down_is_not_held_against_the_release(tmp_path: Path) -> None:
    """It counts as no attempt: only ends of the process that nobody asked for do."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.write("r2")
        starting = asyncio.create_task(setup.desk.start("r2"))
        await asyncio.sleep(0.05)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)

    kept = _play(tmp_path, scenario).keeps.read()
    assert kept is not None
    assert kept.candidate is not None
    assert (kept.candidate.release, kept.candidate.attempts) == ("r2", 0)


@pytest.mark.parametrize("at_once", [False, True])
def test_the_source_ends_an_activation_by_naming_the_stable_release(tmp_path: Path, at_once: bool) -> None:
    """As it ends a candidate: what is desired is a state, whenever it is said."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.source.say(setup.write("r2", {"faults": {ActivationStep.START: ConfigError("no")}}))
        await asyncio.sleep(2 * TICK_S)
        setup.write("r3", {"hangs_at": ActivationStep.START})
        starting = asyncio.create_task(setup.desk.start("r3", at_once=at_once))
        await asyncio.sleep(TICK_S)
        setup.source.say(setup.known["r1"])
        with pytest.raises(Refused, match="the source names the stable release"):
            await starting
        await asyncio.sleep(TICK_S)
        assert (setup.traffic.stable.name, setup.traffic.candidate) == ("r1", None)

    assert _play(tmp_path, scenario).happened() == ["served", "refused", "aborted"]


def test_a_verdict_reaches_the_traffic_while_the_disk_does_not_answer(tmp_path: Path) -> None:
    """Keeping the state waits for the disk; taking a candidate back waits for nothing."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        verdicts: list[RolloutVerdict | Exception] = [RolloutVerdict.HOLD] * 30
        setup.next_controller = lambda: FakeController(verdicts=[*verdicts, RolloutVerdict.ROLL_BACK])
        setup.write("r2")
        await setup.desk.start("r2")
        disk.seconds = 300.0
        await asyncio.sleep(29 * TICK_S)
        assert setup.traffic.share == 0.01
        await asyncio.sleep(3 * TICK_S)
        assert (setup.traffic.candidate, setup.desk.status()["state"]) == (None, "rolled_back")
        disk.seconds = 0.1
        await asyncio.sleep(400)

    kept = _play(tmp_path, scenario).keeps.read()
    assert kept is not None
    assert kept.state == "rolled_back"


@pytest.mark.parametrize("arm", [Arm.STABLE, Arm.CANARY])
def test_a_candidate_whose_decisions_cannot_be_judged_is_taken_back(tmp_path: Path, arm: Arm) -> None:
    """Else only those would count that can be, and a release would pass by its better half."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.next_controller = _Unable
        setup.write("r2")
        await setup.desk.start("r2")
        setup.tell(arm)
        assert (setup.traffic.candidate, setup.desk.status()["state"]) == (None, "rolled_back")

    setup = _play(tmp_path, scenario)
    assert setup.desk.history()[0]["why"] == ["it could not be judged: ZeroDivisionError"]
    assert [type(fault) for fault in setup.faults] == [ZeroDivisionError]


class _Unable(FakeController):
    """A controller with a fault of ours."""

    def observe(self, observed: Any) -> None:
        raise ZeroDivisionError
