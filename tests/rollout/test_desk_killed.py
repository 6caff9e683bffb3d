"""A process that is killed while a release is activated or tried: the next goes on, and takes back what may kill each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep
from cascade.rollout.history import Remembered
from cascade.stages.probe import Probe, Verdict
from cascade.testing.clock import run_virtual
from cascade.types import StageName
from tests.rollout.desk_fakes import FakeKeeps, Setup
from tests.rollout.desk_lives import life

_HOUR_S: Final = 3600.0
_SMOKE: Final = {"smoke": [{"query": "kingfisher", "documents": ["blue", "red"]}]}
_WHY: Final = ["the process was killed 2 times in a row while it was activated or tried"]


def _read(keeps: FakeKeeps) -> Remembered:
    kept = keeps.read()
    assert kept is not None
    return kept


async def _activating(setup: Setup) -> None:
    """Live until the release that the source names is being started."""
    setup.write("r2", {"hangs_at": ActivationStep.START})
    setup.source.say(setup.known["r2"])
    await asyncio.sleep(0.5)
    assert setup.desk.status()["activation_step"] == "start"


def test_h2_a_kill_during_activation_leaves_the_stable_release_and_tries_again(tmp_path: Path) -> None:
    """What was kept names the release that decided all traffic; the one being activated is tried twice, and not again."""
    keeps = FakeKeeps()

    async def third(setup: Setup) -> None:
        setup.source.say(setup.known["r2"])
        await asyncio.sleep(0.5)
        assert setup.traffic.candidate is None
        assert setup.desk.status()["refused"]["why"] == _WHY

    for _ in range(2):
        life(tmp_path, keeps, _activating, killed=True)
        left = _read(keeps).model_dump()
        assert (left["stable"]["release"], left["state"]) == ("r1", "activating")
    setup = life(tmp_path, keeps, third, killed=True)
    assert setup.happened() == ["served", "refused"]
    kept = _read(keeps)
    assert (kept.seen, kept.candidate) == (setup.known["r2"].digest, None)


def test_what_is_given_up_waits_for_no_source(tmp_path: Path) -> None:
    """Else as long as that is away no start would count, and it is not tried again where the source names it still."""
    keeps = FakeKeeps()

    async def third(setup: Setup) -> None:
        setup.source.say(None, fault="the address does not answer")
        await asyncio.sleep(0.5)
        kept = _read(keeps)
        assert (kept.candidate, kept.state) == (None, "refused")
        setup.source.say(setup.known["r2"])
        await asyncio.sleep(5)
        assert setup.traffic.candidate is None

    for _ in range(2):
        life(tmp_path, keeps, _activating, killed=True)
    assert life(tmp_path, keeps, third, killed=True).happened() == ["served", "refused"]


def test_a_stop_during_activation_does_not_count_against_the_release(tmp_path: Path) -> None:
    """A process that is told to stop in the middle may do so any number of times."""
    keeps = FakeKeeps()

    async def last(setup: Setup) -> None:
        setup.source.say(setup.known["r2"])
        await asyncio.sleep(0.5)
        assert setup.traffic.candidate is not None

    for _ in range(4):
        life(tmp_path, keeps, _activating, killed=False)
    life(tmp_path, keeps, last, killed=False)


def test_what_an_operator_started_is_activated_after_a_kill(tmp_path: Path) -> None:
    """It was asked for, and no source would ask again."""
    keeps = FakeKeeps()

    async def killed_at_start(setup: Setup) -> None:
        setup.write("r2", {"hangs_at": ActivationStep.START})
        asking = asyncio.create_task(setup.desk.start("r2"))
        await asyncio.sleep(0.5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    async def second(setup: Setup) -> None:
        await asyncio.sleep(0.5)
        assert setup.traffic.candidate is not None

    life(tmp_path, keeps, killed_at_start, killed=True)
    life(tmp_path, keeps, second, killed=True)


def test_a_desired_release_that_is_no_longer_desired_is_not_activated_after_a_kill(tmp_path: Path) -> None:
    """The source is asked first; what it names by then is what counts."""
    keeps = FakeKeeps()

    async def killed_at_start(setup: Setup) -> None:
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(0.5)
        await _activating(setup)

    async def second(setup: Setup) -> None:
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(5)
        assert setup.traffic.candidate is None
        assert setup.desk.status()["state"] == "idle"
        assert _read(keeps).candidate is None

    life(tmp_path, keeps, killed_at_start, killed=True)
    life(tmp_path, keeps, second, killed=True)


@pytest.mark.parametrize("step", list(ActivationStep))
def test_h2_a_kill_at_any_step_leaves_the_stable_release_and_tries_again(tmp_path: Path, step: ActivationStep) -> None:
    """What is kept of that moment names the release before; also after the swap, as that is not written down yet."""
    keeps, kept = FakeKeeps(), {}

    async def first(setup: Setup) -> None:
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(0.5)
        began = setup.activation.began

        def begin(at: ActivationStep) -> None:
            began(at)
            kept[at] = keeps.kept

        setup.activation.began = begin
        setup.source.say(setup.write("r2", rollout=_SMOKE))
        await asyncio.sleep(0.5)
        assert setup.traffic.candidate is not None

    async def second(setup: Setup) -> None:
        assert setup.traffic.stable.name == "r1"
        setup.source.say(setup.write("r2", rollout=_SMOKE))
        await asyncio.sleep(1)
        assert setup.traffic.candidate is not None
        assert setup.traffic.candidate.name == "r2"

    life(tmp_path, keeps, first, killed=True)
    keeps.kept = kept[step]
    before = _read(keeps)
    assert before.stable is not None
    assert (before.stable.release, before.state) == ("r1", "activating")
    life(tmp_path, keeps, second, killed=True)


def _tried(
    by_source: bool, then: Callable[[Setup], Awaitable[None]] | None = None
) -> Callable[[Setup], Awaitable[None]]:
    """Return a life in which r2 is tried, by the source or an operator, as it is anyway where a restart left it so."""

    async def scenario(setup: Setup) -> None:
        if by_source:
            setup.source.say(setup.known["r2"])
        elif setup.keeps.kept is None or "r2" not in setup.keeps.kept:
            await setup.desk.start("r2")
        await asyncio.sleep(0.5)
        assert setup.traffic.candidate is not None
        if then is not None:
            await then(setup)

    return scenario


@pytest.mark.parametrize("by_source", [True, False])
def test_a_candidate_that_kills_its_process_again_and_again_is_taken_back(tmp_path: Path, by_source: bool) -> None:
    """Before the stable release is doubted. Why is told, and it is not tried again before it is asked for."""
    keeps = FakeKeeps()

    async def third(setup: Setup) -> None:
        setup.source.say(setup.known["r2"] if by_source else setup.known["r1"])
        await asyncio.sleep(60)
        assert (setup.traffic.stable.name, setup.traffic.candidate) == ("r1", None)
        status = setup.desk.status()
        assert (status["state"], status["candidate"]) == ("rolled_back", None)
        assert (status["refused"]["release"], status["refused"]["step"]) == ("r2", "rolled_back")
        assert status["refused"]["why"] == _WHY

    async def asked_again(setup: Setup) -> None:
        await setup.desk.start("r2")
        assert setup.traffic.candidate is not None

    for _ in range(2):
        life(tmp_path, keeps, _tried(by_source), killed=True)
    setup = life(tmp_path, keeps, third, killed=True)
    (entry,) = [each for each in setup.desk.history() if each["what"] == "rolled_back"]
    assert (entry["why"], entry["evidence"]) == (_WHY, {"guardrails": []})
    assert _read(keeps).taken_back() == {setup.known["r2"].digest}
    life(tmp_path, keeps, asked_again, killed=True)


def test_a_stop_in_good_order_between_kills_begins_the_count_anew(tmp_path: Path) -> None:
    """What ends as it is told to is not ended by what it tries."""
    keeps = FakeKeeps()
    for killed in (True, False, True, False, True):
        life(tmp_path, keeps, _tried(by_source=False), killed=killed)


def test_a_process_that_is_killed_after_it_was_told_to_stop_is_not_ended_by_the_candidate(tmp_path: Path) -> None:
    """Who told it may not wait for its end."""
    keeps = FakeKeeps()
    for _ in range(4):
        life(tmp_path, keeps, _tried(by_source=False, then=lambda setup: setup.desk.stops()), killed=True)


@pytest.mark.parametrize("begun_first", [True, False])
def test_an_activation_while_the_process_is_told_to_stop_is_not_what_ends_it(tmp_path: Path, begun_first: bool) -> None:
    """Else a kill after a long drain would count, whether it ends or begins meanwhile."""
    keeps = FakeKeeps()
    away = {StageName.SMALL: Probe(Verdict.FAILED, "stage_unreachable", 1.0)}

    async def stopped(setup: Setup) -> None:
        setup.write("r2", {"probes": [away, {}]})
        starting = asyncio.create_task(setup.desk.start("r2"))
        if begun_first:
            await asyncio.sleep(0.05)
        assert setup.desk.status()["activation_step"] == ("probe" if begun_first else None)
        await setup.desk.stops()
        await starting
        kept = _read(keeps).model_dump()
        assert (kept["state"], kept["candidate"]["attempts"]) == ("running", 0)

    life(tmp_path, keeps, stopped, killed=True)


def test_a_process_that_outlives_a_candidate_by_an_hour_is_not_ended_by_it(tmp_path: Path) -> None:
    """Machines end too, and a rollout may last for weeks; a little sooner it counts."""
    keeps = FakeKeeps()

    def after(seconds: float) -> Callable[[Setup], Awaitable[None]]:
        return _tried(by_source=False, then=lambda setup: asyncio.sleep(seconds))

    async def last(setup: Setup) -> None:
        await asyncio.sleep(1)
        assert setup.traffic.candidate is None

    for seconds in (_HOUR_S + 20, _HOUR_S + 20, _HOUR_S + 20, _HOUR_S - 20, 1):
        life(tmp_path, keeps, after(seconds), killed=True)
    life(tmp_path, keeps, last, killed=True)


def test_what_a_restart_has_not_gone_on_with_yet_is_under_way_for_nobody(tmp_path: Path) -> None:
    """The status names no state of a candidate that it does not tell of, and an abort finds none either."""
    keeps = FakeKeeps()
    life(tmp_path, keeps, _tried(by_source=False), killed=True)

    async def play() -> None:
        setup = Setup(tmp_path, keeps)
        assert _read(keeps).model_dump()["state"] == "running"
        await _has_none_under_way(setup)
        await setup.desk.aclose()

    run_virtual(play())


def test_what_a_restart_leaves_to_a_source_is_under_way_for_nobody(tmp_path: Path) -> None:
    """As long as the source has not named it again: it is still what is kept, and comes in then."""
    keeps = FakeKeeps()

    async def second(setup: Setup) -> None:
        await asyncio.sleep(0.5)
        left = _read(keeps).candidate
        assert left is not None
        assert left.release == "r2"
        await _has_none_under_way(setup)
        setup.source.say(setup.known["r2"])
        await asyncio.sleep(0.5)
        assert (await setup.desk.abort())["refused"]["release"] == "r2"

    life(tmp_path, keeps, _activating, killed=True)
    life(tmp_path, keeps, second, killed=False)


async def _has_none_under_way(setup: Setup) -> None:
    status = setup.desk.status()
    assert (status["state"], status["candidate"]) == ("idle", None)
    with pytest.raises(ConfigError, match="no rollout is under way"):
        await setup.desk.abort()


def test_who_starts_another_release_while_one_is_given_up_is_heard(tmp_path: Path) -> None:
    """It begins behind that; neither takes the other's place in what is kept."""
    keeps = FakeKeeps()

    async def third(setup: Setup) -> None:
        setup.write("r3")
        await setup.desk.start("r3")
        await asyncio.sleep(2)
        status = setup.desk.status()
        assert (status["state"], status["candidate"]["release"]) == ("running", "r3")
        assert status["refused"]["release"] == "r2"

    for _ in range(2):
        life(tmp_path, keeps, _tried(by_source=False), killed=True)
    life(tmp_path, keeps, third, killed=False)


def test_a_candidate_that_the_source_no_longer_names_after_a_restart_is_not_brought_in(tmp_path: Path) -> None:
    """Its activation ends there; that the source cannot tell yet ends nothing."""
    keeps = FakeKeeps()
    life(tmp_path, keeps, _tried(by_source=True), killed=True)

    async def play() -> None:
        setup = Setup(tmp_path, keeps)
        setup.write("r2", {"hangs_at": ActivationStep.START})
        loop = asyncio.create_task(setup.desk.run())
        setup.source.say(None, fault="the address does not answer")
        await asyncio.sleep(5)
        assert setup.desk.status()["activation_step"] == "start"
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(5)
        assert (setup.traffic.stable.name, setup.traffic.candidate) == ("r1", None)
        assert setup.desk.status()["state"] == "aborted"
        setup.source.say(setup.write("r3"))
        await asyncio.sleep(5)
        assert setup.desk.status()["candidate"]["release"] == "r3"
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await setup.desk.aclose()

    run_virtual(play())
