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
from cascade.stages.probe import Probe, Verdict
from cascade.testing.clock import run_virtual
from cascade.types import Arm, StageName
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


def test_a_release_that_the_source_no_longer_names_is_not_brought_in(tmp_path: Path) -> None:
    """Its activation ends where the source goes back; named once more, also at that very moment, it is tried anew."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(TICK_S)
        r2 = setup.write("r2", {"hangs_at": ActivationStep.START})
        setup.source.say(r2)
        await asyncio.sleep(TICK_S)
        assert setup.desk.status()["activation_step"] == "start"
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(TICK_S)
        assert (setup.desk.status()["activation_step"], setup.desk.status()["state"]) == (None, "aborted")
        setup.source.say(r2)
        await asyncio.sleep(TICK_S)
        setup.options[r2.digest] = {}
        setup.source.say(setup.known["r1"])
        setup.source.say(r2)
        await asyncio.sleep(2 * TICK_S)
        assert setup.traffic.candidate is not None

    setup = _play(tmp_path, scenario)
    assert setup.happened() == ["served", "aborted", "aborted", "started"]
    assert setup.desk.history()[1]["why"] == ["the source names another release by now"]


def test_an_abort_ends_what_is_under_way_and_not_what_waits_behind_it(tmp_path: Path) -> None:
    """What the source named meanwhile comes in: nobody asked for its end."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.write("r2", {"hangs_at": ActivationStep.START})
        starting = asyncio.create_task(setup.desk.start("r2"))
        await asyncio.sleep(TICK_S)
        setup.source.say(setup.write("r3"))
        await asyncio.sleep(TICK_S)
        await setup.desk.abort("a mistake")
        with pytest.raises(Refused, match="a mistake"):
            await starting
        await asyncio.sleep(TICK_S)
        assert setup.traffic.candidate is not None
        assert setup.traffic.candidate.name == "r3"

    assert _play(tmp_path, scenario).happened() == ["served", "aborted", "started"]


def test_what_an_operator_started_outlives_the_next_try_of_what_the_source_named_before(tmp_path: Path) -> None:
    """It would be taken back for a release whose server may be away still; where it is refused the other is tried again."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        away = {"probes": [{StageName.SMALL: Probe(Verdict.FAILED, "connect", 1.0)}]}
        setup.source.say(setup.write("r2", away))
        await asyncio.sleep(20)
        setup.write("r3", {"differs": ["model: declared a, the server says b"]})
        with pytest.raises(Refused, match="fingerprint"):
            await setup.desk.start("r3")
        await asyncio.sleep(30)
        assert setup.outcomes == ["probe", "fingerprint", "probe"]
        setup.write("r4")
        await setup.desk.start("r4")
        await asyncio.sleep(600)
        assert setup.desk.status()["candidate"]["release"] == "r4"
        setup.source.say(setup.write("r5"))
        await asyncio.sleep(TICK_S)
        assert setup.desk.status()["candidate"]["release"] == "r5"

    assert _play(tmp_path, scenario).happened() == ["served", *3 * ["refused"], "started", "replaced", "started"]


def test_what_waited_and_is_no_longer_desired_does_not_begin(tmp_path: Path) -> None:
    """Behind another activation the source may think better of it; only what it names by then comes in."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.write("r2", {"hangs_at": ActivationStep.START})
        starting = asyncio.create_task(setup.desk.start("r2"))
        await asyncio.sleep(TICK_S)
        r3 = setup.write("r3")
        for named in (r3, setup.write("r4")):
            setup.source.say(named)
            await asyncio.sleep(TICK_S)
        await setup.desk.abort("a mistake")
        await asyncio.gather(starting, return_exceptions=True)
        await asyncio.sleep(2 * TICK_S)
        assert setup.traffic.candidate is not None
        assert setup.traffic.candidate.name == "r4"
        assert r3.digest not in {release.digest for release in setup.releases}
        setup.source.say(r3)
        await asyncio.sleep(2 * TICK_S)
        assert setup.traffic.candidate.name == "r3"

    assert _play(tmp_path, scenario).happened() == ["served", "aborted", "started", "replaced", "started"]


def test_what_is_started_at_once_waits_for_nothing_that_the_source_named(tmp_path: Path) -> None:
    """Neither what is under way nor what waits behind that: an operator is in a hurry."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.write("r2", {"hangs_at": ActivationStep.START})
        setup.write("r4")
        starting = asyncio.create_task(setup.desk.start("r2"))
        await asyncio.sleep(TICK_S)
        setup.source.say(setup.write("r3", {"hangs_at": ActivationStep.START}))
        await asyncio.sleep(TICK_S)
        async with asyncio.timeout(5 * TICK_S):
            assert (await setup.desk.start("r4", at_once=True))["stable"]["release"] == "r4"
        with pytest.raises(Refused, match="another release was started at once"):
            await starting
        await asyncio.sleep(100 * TICK_S)
        assert (setup.traffic.stable.name, setup.traffic.candidate) == ("r4", None)

    assert _play(tmp_path, scenario).happened() == ["served", "aborted", "aborted", "completed"]


def test_a_candidate_that_could_not_be_taken_back_is_tried_to_be_again(tmp_path: Path) -> None:
    """A fault of ours must not end who judges, nor leave traffic with what nobody judges."""

    async def scenario(setup: Setup, disk: _SlowDisk) -> None:
        setup.next_controller = lambda: FakeController(verdicts=[RolloutVerdict.ROLL_BACK, RolloutVerdict.ROLL_BACK])
        setup.write("r2")
        setup.write("r3")
        unsplit, faults = setup.traffic.unsplit, [RuntimeError("stuck"), RuntimeError("stuck")]

        def fail() -> Any:
            if faults:
                raise faults.pop()
            return unsplit()

        setup.traffic.unsplit = fail  # type: ignore[method-assign]
        await setup.desk.start("r2")
        await asyncio.sleep(2.5 * TICK_S)
        assert (setup.traffic.candidate, setup.desk.status()["state"]) == (None, "rolled_back")
        setup.next_controller = FakeController
        await setup.desk.start("r3")
        assert setup.traffic.candidate is not None

    assert {type(fault) for fault in _play(tmp_path, scenario).faults} == {RuntimeError}


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
