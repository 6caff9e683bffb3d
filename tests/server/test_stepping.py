"""Load levels that step by themselves, and that an operator pins, over HTTP."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from cascade.errors import StageTimeout
from cascade.guard.beside import Beside
from cascade.guard.level_controller import LevelRules
from cascade.guard.pressure import Pressure
from cascade.guard.seat import Bounds
from cascade.server.admin import admin_app
from cascade.server.stepping import Stepping, rules_of, step_levels
from cascade.telemetry.logs import configure_logging
from cascade.telemetry.metrics import Metrics
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from cascade.types import StageName
from tests.logs import logging_given_back
from tests.server.asgi import scope_of
from tests.server.sidecar import BODIES, LEVELS, Sidecar, release_of, sidecar

_TEXTS = ["one", "two query", "query"]


@dataclass
class _Room:
    in_flight: int = 0
    limit: int = 1000
    oldest_wait_ms: float = 0.0


@pytest.fixture(name="lines")
def _lines() -> Iterator[io.BytesIO]:
    stream = io.BytesIO()
    with logging_given_back():
        configure_logging("info", stream)
        yield stream


def _levels_logged(stream: io.BytesIO) -> list[tuple[str, str, str, str]]:
    events = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    told = [event for event in events if event["event"] == "load level"]
    return [(each["level"], each["before"], each["load_level"], each["why"]) for each in told]


def _overloaded() -> Sidecar:
    """Return a sidecar whose large stage has time for nobody."""
    late = ScriptedStage(overlap, fails=StageTimeout)
    return sidecar(large=late, release=release_of(levels=LEVELS))


async def _ask(served: Sidecar, times: int = 1) -> list[str]:
    """Ask so many times, and return the level that decided each."""
    answers = [await served.post("/rerank", BODIES["tei"]("query", _TEXTS)) for _ in range(times)]
    assert all(answer.status_code == 200 for answer in answers)
    return [answer.headers.get("x-cascade-level", "normal") for answer in answers]


def _stepping(served: Sidecar) -> Stepping:
    return served.service.traffic.stable.stepping


def test_misses_step_down_and_a_clean_hold_steps_up_again(lines: io.BytesIO) -> None:
    """Header, gauge, counters, status and one log line a change say so; the large stage is left alone meanwhile."""

    async def play() -> None:
        served = _overloaded()
        stepping = _stepping(served)
        steps = asyncio.create_task(step_levels(stepping, 0.25, served.service.faults))
        assert await _ask(served, 20) == ["normal"] * 20
        await asyncio.sleep(0.3)
        assert await _ask(served) == ["degraded-2"]
        status = (await served.admin.get("/status")).json()
        assert (status["level"], status["stepping"]["why"]) == ("degraded-2", "misses")
        metrics = await served.metrics()
        assert metrics["cascade_level"] == 2
        assert metrics['cascade_level_steps_total{why="misses"}'] == 1
        assert metrics['cascade_level_answers_total{level="2"}'] == 1
        asked = len(served.large.calls)
        served.large.fails = None
        await asyncio.sleep(30)
        assert len(served.large.calls) == asked
        assert await _ask(served) == ["normal"]
        metrics = await served.metrics()
        assert metrics['cascade_level_steps_total{why="room"}'] == 2
        assert (await served.admin.get("/status")).json()["stepping"]["forecast"] is None
        steps.cancel()

    run_virtual(play())
    assert _levels_logged(lines) == [
        ("warning", "normal", "degraded-2", "misses"),
        ("info", "degraded-2", "degraded-1", "room"),
        ("info", "degraded-1", "normal", "room"),
    ]


def test_requests_that_get_no_turn_step_down() -> None:
    """Those that admission answers in first-stage order are time that there was not."""

    async def play() -> None:
        slow = ScriptedStage(overlap, delay_ms=200.0)
        bounds = Bounds(most=1, most_waiting=1, most_long=1, long_cost=1e9)
        served = sidecar(slow, release=release_of(levels=LEVELS), bounds=bounds)
        await asyncio.gather(*(served.post("/rerank", BODIES["tei"]("query", _TEXTS)) for _ in range(30)))
        _stepping(served).look()
        assert _stepping(served).level == 2

    run_virtual(play())


def test_a_queue_that_stands_before_the_stages_steps_down(lines: io.BytesIO) -> None:
    """The head of the line is old at two looks, long before anybody has been answered too late."""

    async def play() -> None:
        slow = ScriptedStage(overlap, delay_ms=50.0)
        bounds = Bounds(most=1, most_waiting=100, most_long=1, long_cost=1e9)
        served = sidecar(slow, release=release_of(levels=LEVELS, overload={"wait_target_ms": 5}), bounds=bounds)
        steps = asyncio.create_task(step_levels(_stepping(served), 0.25, served.service.faults))
        waiting = [asyncio.create_task(_ask(served)) for _ in range(15)]
        await asyncio.sleep(0.6)
        assert _levels_logged(lines)[0] == ("warning", "normal", "degraded-2", "queue_age")
        await asyncio.gather(*waiting)
        steps.cancel()

    run_virtual(play())


def test_a_long_wait_is_looked_into_at_once(lines: io.BytesIO) -> None:
    """Where even the least of eight waits is far too long, the next look is not waited for, nor taken twice at once."""

    async def play() -> None:
        served = sidecar(release=release_of(levels=LEVELS))
        await asyncio.sleep(0.3)
        for _ in range(8):
            _stepping(served).pressure.waited(500.0)
        assert _stepping(served).level == 0
        await asyncio.sleep(0)
        assert _stepping(served).level == 2

    run_virtual(play())


def test_a_request_goes_by_the_level_above_where_there_is_room() -> None:
    """What a stage can still do is not left undone, and the answer names the level that decided it."""

    async def play() -> None:
        served = _overloaded()
        stepping = _stepping(served)
        await _ask(served, 20)
        stepping.look()
        assert stepping.level == 2
        small = _Room()
        stepping.pressure.watch_stage(StageName.SMALL, small)
        assert await _ask(served) == ["degraded-1"]
        small.in_flight = 700
        assert await _ask(served) == ["degraded-2"]
        stepping.pin("degraded-2")
        small.in_flight = 0
        assert await _ask(served) == ["degraded-2"]

    run_virtual(play())


def test_a_request_without_a_turn_does_not_go_by_the_level_above() -> None:
    """It asks no stage. Counted as short of time up there, it would keep others from the room that there is."""

    async def play() -> None:
        served = _overloaded()
        stepping = _stepping(served)
        await _ask(served, 20)
        stepping.look()
        stepping.pressure.watch_stage(StageName.SMALL, _Room())
        served.service.admission.close()
        assert await _ask(served) == ["degraded-2"]
        assert stepping.choose() == stepping.level - 1

    run_virtual(play())


def test_an_operator_pins_a_level_and_lets_go_of_it() -> None:
    """Misses move nothing meanwhile; afterwards it steps on from there."""
    run_virtual(_pinned_and_let_go())


async def _pinned_and_let_go() -> None:
    served = _overloaded()
    stepping = _stepping(served)
    answer = await served.admin.put("/level", content=b'{"level": "degraded-1"}')
    assert (answer.status_code, answer.json()["level"], answer.json()["pinned"]) == (200, "degraded-1", True)
    assert await _ask(served) == ["degraded-1"]
    assert (await served.metrics())["cascade_level_pinned"] == 1
    await served.admin.put("/level", content=b'{"level": "normal"}')
    await _ask(served, 40)
    stepping.look()
    assert stepping.told()["forecast"] is None
    assert await _ask(served) == ["normal"]
    answer = await served.admin.put("/level", content=b'{"level": null}')
    assert (answer.json()["level"], answer.json()["pinned"]) == ("normal", False)
    assert (await served.metrics())["cascade_level_pinned"] == 0
    await _ask(served, 20)
    await asyncio.sleep(0.3)
    stepping.look()
    assert await _ask(served) == ["degraded-2"]
    assert (await served.admin.put("/level", content=b'{"level": null}')).json()["level"] == "degraded-2"


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b'{"level": "degraded-9"}', 422, "level: release test-1 has no level of that name; it has normal, degraded-1"),
        (b'{"level": 2}', 422, 'send {"level": a name, or null}'),
        (b"{}", 422, 'send {"level": a name, or null}'),
        (b'{"level": null, "more": 1}', 422, 'send {"level": a name, or null}'),
        (b"kingfisher", 422, 'send {"level": a name, or null}'),
        (b" " * 1025, 413, "at most 1024 bytes are accepted"),
    ],
)
async def test_a_level_that_cannot_be_pinned_is_refused(body: bytes, status: int, told: str) -> None:
    """With what there is, never with what was sent; nothing changes."""
    served = sidecar(release=release_of(levels=LEVELS))
    answer = await served.admin.put("/level", content=body)
    assert answer.status_code == status
    assert answer.json()["detail"].startswith(told)
    assert "kingfisher" not in answer.text
    assert (await served.admin.get("/status")).json()["stepping"]["pinned"] is False


@pytest.mark.parametrize(
    "header", [{"origin": "http://sidecar.test"}, {"origin": "null"}, {"sec-fetch-site": "same-origin"}]
)
async def test_a_web_page_cannot_pin_a_level(header: dict[str, str]) -> None:
    """Whoever can open one could else step a listener without keys down."""
    served = sidecar(release=release_of(levels=LEVELS))
    answer = await served.admin.put("/level", content=b'{"level": "degraded-1"}', headers=header)
    assert (answer.status_code, answer.json()["detail"]) == (403, "a browser may look, not change anything")
    assert (await served.admin.get("/status")).json()["stepping"]["pinned"] is False


@pytest.mark.parametrize(("gone", "status"), [(True, 499), (False, 408)])
def test_an_operator_who_leaves_or_never_ends_is_no_fault_of_ours(*, gone: bool, status: int) -> None:
    """A body that does not come is waited for five seconds, so that it holds up no stop."""
    assert run_virtual(_begun_and_not_ended(gone=gone)) == (status, {})


async def _begun_and_not_ended(*, gone: bool) -> tuple[int, dict[str, float]]:
    served = sidecar(release=release_of(levels=LEVELS))
    parts: list[Any] = [{"type": "http.disconnect"}] if gone else []
    parts.append({"type": "http.request", "body": b'{"level": ', "more_body": True})
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop() if parts else await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        sent.append(message)

    await admin_app(served.service)({**scope_of("/level"), "method": "PUT"}, receive, send)
    faults = {name: n for name, n in (await served.metrics()).items() if name.startswith("cascade_internal_faults")}
    return sent[0]["status"], {name: n for name, n in faults.items() if n and "_created" not in name}


def test_a_release_that_follows_another_is_at_its_level_whatever_it_sees_itself(lines: io.BytesIO) -> None:
    """Not moved by its own waits, at once by the other's; by itself again it begins where it was, and one that is pinned stays."""
    release, now = release_of(levels=LEVELS), [0.0]
    pressures = [Pressure(lambda: now[0]) for _ in range(2)]
    leader, led = (Stepping(release, each, lambda: now[0], metrics=None, soon=lambda call: None) for each in pressures)
    decided: list[tuple[str, int]] = []
    leader.changed = lambda level: decided.append(("leader", level))
    led.changed = lambda level: decided.append(("led", level))
    led.follow(leader)

    def press(place: int, at: float) -> None:
        for _ in range(10):
            pressures[place].waited(500.0)
        now[0] = at
        (leader, led)[place].look()

    press(1, 0.25)
    assert decided == []
    press(0, 0.5)
    deep = leader.level
    assert deep > 0
    assert decided == [("leader", deep), ("led", deep)]
    led.look()
    assert (led.level, led.is_loaded, led.told()["why"], led.told()["forecast"]) == (
        deep,
        True,
        leader.told()["why"],
        None,
    )
    led.pin("normal")
    assert (leader.level, led.level) == (deep, 0)
    led.pin(None)
    assert led.level == deep
    led.follow(None)
    assert (leader.level, led.level) == (deep, deep)  # what both shed is not taken up at once
    for _ in range(25):
        now[0] += 1.0
        led.look()
    assert (leader.level, led.level) == (deep, 0)
    leader.pin("normal")
    assert decided[-1] == ("leader", 0)


async def test_in_mode_observe_what_is_scored_beside_answers_goes_first() -> None:
    """There are no levels, answers stay as they were, and it comes back after a hold."""
    release = release_of(mode="observe")
    now = [0.0]
    metrics, beside = Metrics(), Beside(10)
    pressure = Pressure(lambda: now[0])
    stepping = Stepping(release, pressure, lambda: now[0], metrics=metrics.levels, beside=beside)
    for _ in range(10):
        pressure.waited(500.0)
    now[0] = 0.25
    stepping.look()
    assert (stepping.level, stepping.choose(), stepping.told()["beside_paused"]) == (0, 0, True)
    assert not beside.start(lambda: asyncio.sleep(0))
    assert metrics.registry.get_sample_value("cascade_beside_paused") == 1
    for _ in range(25):
        now[0] += 0.25
        stepping.look()
    assert stepping.told()["beside_paused"] is False
    assert beside.start(lambda: asyncio.sleep(0))
    await beside.aclose()


def test_looking_goes_on_after_a_fault(lines: io.BytesIO) -> None:
    """A fault of ours is counted; levels are stepped all the same."""

    async def play() -> None:
        served = sidecar(release=release_of(levels=LEVELS))
        faults: list[BaseException] = []

        def broken() -> float:
            raise ValueError("kingfisher")

        _stepping(served).pressure.watch_queue(broken)
        steps = asyncio.create_task(step_levels(_stepping(served), 0.25, faults.append))
        await asyncio.sleep(1.1)
        assert len(faults) == 4
        steps.cancel()

    run_virtual(play())


def test_changes_that_follow_close_on_each_other_are_one_line(lines: io.BytesIO) -> None:
    """A log is not flooded by a level that flaps."""
    now = [0.0]
    stepping = Stepping(release_of(levels=LEVELS), Pressure(lambda: now[0]), lambda: now[0], metrics=Metrics().levels)
    for name in ("degraded-1", "degraded-2", "normal"):
        stepping.pin(name)
    now[0] = 2.0
    stepping.pin("degraded-3")
    assert _levels_logged(lines) == [
        ("warning", "normal", "degraded-1", "pinned"), ("warning", "normal", "degraded-3", "pinned"),
    ]  # fmt: skip


def test_a_release_says_how_its_levels_are_stepped() -> None:
    """The wait is a tenth of its deadline, five milliseconds at least, unless it says otherwise."""
    assert rules_of(release_of()) == LevelRules(wait_target_ms=100.0)
    short = {"total_ms": 40.0, "small_ms": 10.0, "large_ms": 20.0, "reserve_ms": 5.0}
    assert rules_of(release_of(budgets=short)).wait_target_ms == 5.0
    said = {
        "wait_target_ms": 7, "miss_share": 0.1, "interval_ms": 500, "hold_s": 10, "longest_hold_s": 20, "most_busy": 0.5,
    }  # fmt: skip
    assert rules_of(release_of(overload=said)) == LevelRules(7, 0.5, 0.1, 10, 20, 0.5)
