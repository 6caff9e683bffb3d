"""The desk brings the desired release to the traffic step by step, and takes it back by itself."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep, Refused
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.desk import TICK_S
from cascade.rollout.guardrails import Settled
from cascade.stages.probe import Probe, Verdict
from cascade.telemetry.logs import configure_logging
from cascade.testing.clock import run_virtual
from cascade.types import Arm, StageName
from tests.rollout.desk_fakes import FakeController, FakeKeeps, Setup, decision

_ADVANCE, _COMPLETE, _BACK = RolloutVerdict.ADVANCE, RolloutVerdict.COMPLETE, RolloutVerdict.ROLL_BACK


@asynccontextmanager
async def _running(setup: Setup) -> AsyncIterator[Setup]:
    """Run the desk's loop; end it, and give everything back."""
    loop = asyncio.create_task(setup.desk.run())
    await asyncio.sleep(0)
    try:
        yield setup
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await setup.desk.aclose()


def _play(folder: Path, scenario: Callable[[Setup], Awaitable[None]], keeps: FakeKeeps | None = None) -> Setup:
    """Run a scenario beside the loop; assert that no task and no release but the stable one is left, and no fault."""

    async def play() -> Setup:
        setup = Setup(folder, keeps)
        async with _running(setup):
            await scenario(setup)
        assert [release for release in setup.releases if release.is_open] == [setup.traffic.stable]
        background = {release.background for release in setup.releases}
        assert asyncio.all_tasks() - {asyncio.current_task()} <= background
        return setup

    return run_virtual(play())


def test_a_release_goes_through_its_steps_to_all_of_the_traffic(tmp_path: Path) -> None:
    """Each step is one the controller allows; after the last the old release is closed and the new one is stable."""

    async def scenario(setup: Setup) -> None:
        setup.next_controller = lambda: FakeController(verdicts=[RolloutVerdict.HOLD, _ADVANCE, _COMPLETE])
        old = setup.traffic.stable
        stored = setup.write("r2")
        status = await setup.desk.start("r2")
        assert (status["state"], status["share"], status["step"]) == ("running", 0.01, 0)
        assert status["candidate"]["digest"] == stored.digest
        assert status["stable"]["release"] == "r1"
        assert status["steps"] == [1.0, 5.0, 25.0, 100.0]
        assert (setup.traffic.candidate, setup.traffic.share) == (setup.releases[-1], 0.01)
        await asyncio.sleep(2 * TICK_S)
        assert setup.traffic.share == 0.25
        assert setup.shown[-1] == (1, 0.25, {"errors": 0, "cost": 0})
        await asyncio.sleep(TICK_S + 0.1)
        assert (setup.traffic.stable.name, setup.traffic.candidate) == ("r2", None)
        assert not old.is_open
        status = setup.desk.status()
        assert (status["state"], status["candidate"], status["share"], status["step"]) == ("completed", None, 0.0, None)
        assert status["stable"]["release"] == "r2"

    setup = _play(tmp_path, scenario)
    assert setup.happened() == ["served", "started", "advanced", "completed"]
    assert setup.outcomes == ["swapped"]
    assert setup.shown[-1] == (None, 0.0, {})
    completed = setup.desk.history()[0]
    assert completed["evidence"]["guardrails"][0]["name"] == "errors"
    kept = setup.keeps.read()
    assert kept is not None
    assert kept.stable is not None
    assert (kept.stable.release, kept.candidate, kept.state) == ("r2", None, "completed")
    assert setup.faults == []


def test_a_verdict_reaches_the_traffic_within_one_tick(tmp_path: Path) -> None:
    """A roll back that only time shows is acted upon with the next tick, and the evidence stays."""

    async def scenario(setup: Setup) -> None:
        setup.next_controller = lambda: FakeController(verdicts=[RolloutVerdict.HOLD, _BACK])
        setup.write("r2")
        await setup.desk.start("r2")
        candidate = setup.traffic.candidate
        await asyncio.sleep(TICK_S)
        assert setup.traffic.candidate is candidate
        await asyncio.sleep(TICK_S)
        assert setup.traffic.candidate is None
        assert candidate is not None
        await asyncio.sleep(0.1)
        assert not candidate.is_open
        status = setup.desk.status()
        assert (status["state"], status["candidate"]) == ("rolled_back", None)
        assert (status["refused"]["release"], status["refused"]["step"]) == ("r2", "rolled_back")

    setup = _play(tmp_path, scenario)
    assert setup.happened() == ["served", "started", "rolled_back"]
    assert setup.traffic.stable.name == "r1"


@pytest.mark.parametrize("late", [False, True])
def test_an_error_or_a_late_answer_that_fails_a_guardrail_is_the_last_one(tmp_path: Path, late: bool) -> None:
    """The candidate is gone when the observation returns: no further request goes there, no tick is waited for."""

    async def scenario(setup: Setup) -> None:
        setup.write("r2")
        await setup.desk.start("r2")
        setup.tell(Arm.STABLE, answered=False, total_ms=500)
        setup.tell(Arm.CANARY)
        assert setup.traffic.candidate is not None
        took_ms, digest = 101.0 if late else 50.0, setup.traffic.candidate.digest
        setup.tell(Arm.CANARY, answered=late, total_ms=took_ms)
        assert setup.traffic.candidate is None
        setup.tell(Arm.CANARY, answered=False, digest=digest)  # one that was under way: nobody judges

    setup = _play(tmp_path, scenario)
    (entry,) = [each for each in setup.desk.history() if each["what"] == "rolled_back"]
    assert entry["why"] == ["errors: made up"]
    assert entry["evidence"]["guardrails"][0] == {
        "name": "errors",
        "verdict": "fail",
        "n": 2,
        "why": "made up",
        "needed": True,
    }
    assert setup.faults == []


@pytest.mark.parametrize("arm", [Arm.CANARY, Arm.STABLE])
@pytest.mark.parametrize("decided", [True, False])
def test_what_a_release_left_behind_is_not_held_against_the_next(tmp_path: Path, arm: Arm, decided: bool) -> None:
    """It is told by its digest: an earlier candidate has the same name, and the stable release before had the same arm."""

    async def scenario(setup: Setup) -> None:
        earlier = setup.write("r2", depth=7).digest
        setup.write("r2")
        await setup.desk.start("r2")
        assert setup.traffic.candidate is not None
        assert earlier != setup.traffic.candidate.digest
        before = Settled(arm, earlier, decision(arm, "r2") if decided else None, answered=False)
        for settled in (before, replace(before, digest=setup.traffic.stable.digest, arm=Arm.CANARY)):
            setup.desk.told(settled)
        assert setup.traffic.candidate is not None
        assert setup.controllers[0].observed == []

    _play(tmp_path, scenario)


def test_a_candidate_that_cannot_be_judged_is_taken_back(tmp_path: Path) -> None:
    """A fault in the controller costs the candidate its traffic, never the answers."""

    async def scenario(setup: Setup) -> None:
        setup.next_controller = lambda: FakeController(verdicts=[ZeroDivisionError()])
        setup.write("r2")
        await setup.desk.start("r2")
        await asyncio.sleep(TICK_S + 0.1)
        assert (setup.traffic.candidate, setup.desk.status()["state"]) == (None, "rolled_back")

    setup = _play(tmp_path, scenario)
    assert setup.desk.history()[0]["why"] == ["it could not be judged: ZeroDivisionError"]
    assert [type(fault) for fault in setup.faults] == [ZeroDivisionError]


def test_a_candidate_that_does_not_take_what_is_sent_is_rolled_back(tmp_path: Path) -> None:
    """Requests that it refuses for its limits are errors of its arm, though nothing was decided."""

    async def scenario(setup: Setup) -> None:
        setup.write("r2")
        await setup.desk.start("r2")
        setup.desk.told(Settled(Arm.STABLE, setup.traffic.stable.digest, None, answered=False))
        assert setup.traffic.candidate is not None
        setup.desk.told(Settled(Arm.CANARY, setup.traffic.candidate.digest, None, answered=False))
        assert setup.traffic.candidate is None

    setup = _play(tmp_path, scenario)
    (entry,) = [each for each in setup.desk.history() if each["what"] == "rolled_back"]
    assert entry["why"] == ["errors: made up"]


def test_what_is_told_of_a_decision_never_raises(tmp_path: Path) -> None:
    """It stands behind an answer: a fault is counted, and that is all."""

    async def scenario(setup: Setup) -> None:
        setup.write("r2")
        await setup.desk.start("r2")
        setup.desk.told("nothing settled")  # type: ignore[arg-type]

    setup = _play(tmp_path, scenario)
    assert [type(fault) for fault in setup.faults] == [AttributeError]


def test_at_once_skips_the_steps_and_is_recorded(tmp_path: Path) -> None:
    """After the activation steps it decides everything; the history says that it was at once."""

    async def scenario(setup: Setup) -> None:
        setup.write("r2")
        status = await setup.desk.start("r2", at_once=True, lenient=True)
        assert (status["state"], status["stable"]["release"]) == ("completed", "r2")
        assert setup.traffic.candidate is None

    setup = _play(tmp_path, scenario)
    entry = setup.desk.history()[0]
    assert (entry["what"], entry["at_once"], entry["lenient"]) == ("completed", True, True)
    assert setup.controllers == []


def test_at_once_takes_the_place_of_what_is_under_way(tmp_path: Path) -> None:
    """It ends a candidate, and an activation, that another start may not touch; the candidate itself it lets decide."""

    async def scenario(setup: Setup) -> None:
        setup.write("r2")
        setup.write("r3")
        setup.write("slow", {"hangs_at": ActivationStep.START})
        await setup.desk.start("r2")
        with pytest.raises(ConfigError, match="a rollout is under way"):
            await setup.desk.start("r3")
        await setup.desk.start("r3", at_once=True)
        assert (setup.traffic.stable.name, setup.traffic.candidate) == ("r3", None)
        first = asyncio.create_task(setup.desk.start("slow"))
        await asyncio.sleep(0.1)
        assert (setup.desk.status()["state"], setup.desk.status()["activation_step"]) == ("activating", "start")
        with pytest.raises(ConfigError, match="a rollout is under way"):
            await setup.desk.start("r2")
        await setup.desk.start("r2", at_once=True)
        with pytest.raises(Refused, match="another release was started at once"):
            await first
        await setup.desk.start("r1")
        await setup.desk.start("r1", at_once=True)
        assert setup.traffic.stable.name == "r1"
        with pytest.raises(ConfigError, match="that release is the stable one already"):
            await setup.desk.start("r1")

    setup = _play(tmp_path, scenario)
    assert setup.happened() == [
        "served",
        "started",
        "replaced",
        "completed",
        "aborted",
        "completed",
        "started",
        "completed",
    ]


def test_an_unknown_release_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    """It says so, and the history stays as it was."""

    async def scenario(setup: Setup) -> None:
        with pytest.raises(ConfigError, match="no release of this name"):
            await setup.desk.start("r9")

    assert _play(tmp_path, scenario).happened() == ["served"]


def test_a_refusal_is_raised_and_told_with_its_step(tmp_path: Path) -> None:
    """The status has the step and why, the history too, and the outcome is counted by the step."""

    async def scenario(setup: Setup) -> None:
        setup.write("r2", {"differs": ["small stage: model: declared a, the server says b"]})
        with pytest.raises(Refused):
            await setup.desk.start("r2")
        status = setup.desk.status()
        assert (status["state"], status["candidate"]) == ("refused", None)
        assert status["refused"]["step"] == "fingerprint"
        assert status["refused"]["why"] == ["small stage: model: declared a, the server says b"]

    setup = _play(tmp_path, scenario)
    assert setup.happened() == ["served", "refused"]
    assert setup.outcomes == ["fingerprint"]


@pytest.mark.parametrize("at_once", [False, True])
def test_h2_a_fault_of_the_swap_leaves_the_old_release_whole(tmp_path: Path, at_once: bool) -> None:
    """Where traffic cannot be turned, the old release decides everything, and the new one is closed."""

    async def scenario(setup: Setup) -> None:
        old = setup.traffic.stable
        setup.write("r2")
        setup.traffic.fails = RuntimeError("stuck")
        with pytest.raises(Refused) as refused:
            await setup.desk.start("r2", at_once=at_once)
        assert refused.value.step is ActivationStep.SWAP
        assert (setup.traffic.stable, setup.traffic.candidate) == (old, None)
        setup.traffic.fails = None

    _play(tmp_path, scenario)


def test_an_operator_promotes_with_evidence_or_by_force(tmp_path: Path) -> None:
    """Without force a guardrail that has not passed stops it; what is not needed does not. The last step completes."""

    async def scenario(setup: Setup) -> None:
        with pytest.raises(ConfigError, match="no candidate is under way"):
            await setup.desk.promote()
        setup.write("r2")
        await setup.desk.start("r2")
        with pytest.raises(ConfigError, match=r"not shown yet: errors; --force goes on"):
            await setup.desk.promote()
        assert setup.traffic.share == 0.01
        status = await setup.desk.promote(force=True)
        assert (status["share"], setup.traffic.share) == (0.25, 0.25)
        setup.controllers[0].passes = True
        assert (await setup.desk.promote())["state"] == "completed"

    setup = _play(tmp_path, scenario)
    assert setup.happened() == ["served", "started", "promoted", "completed"]
    completed, promoted, *_ = setup.desk.history()
    assert promoted["why"] == ["an operator went on without evidence of: errors"]
    assert completed["why"] == []


def test_an_operator_aborts_a_candidate_or_an_activation(tmp_path: Path) -> None:
    """Either way nothing of it is left, the reason is kept, and it is no refusal."""

    async def scenario(setup: Setup) -> None:
        with pytest.raises(ConfigError, match="no rollout is under way"):
            await setup.desk.abort()
        setup.write("r2")
        setup.write("slow", {"hangs_at": ActivationStep.PROBE}, probe="enforce")
        await setup.desk.start("r2")
        assert (await setup.desk.abort("looks odd"))["state"] == "aborted"
        assert setup.traffic.candidate is None
        starting = asyncio.create_task(setup.desk.start("slow"))
        await asyncio.sleep(0.1)
        status = await setup.desk.abort()
        assert (status["state"], status["refused"]["step"]) == ("aborted", "probe")
        with pytest.raises(Refused, match="an operator asked for it"):
            await starting

    setup = _play(tmp_path, scenario)
    assert setup.happened() == ["served", "started", "aborted", "aborted"]
    assert setup.desk.history()[1]["why"] == ["looks odd"]
    assert setup.outcomes == ["swapped", "aborted"]


def test_what_the_source_desires_is_brought_in(tmp_path: Path) -> None:
    """A desired release that is not active is rolled out; the stable one, and one that was dealt with, are left."""

    async def scenario(setup: Setup) -> None:
        assert (setup.desk.status()["desired"]["digest"], setup.desk.status()["desired"]["pending"]) == (None, True)
        setup.source.say(None, fault="the folder is empty")
        await asyncio.sleep(0.1)
        assert setup.desk.status()["desired"]["fault"] == setup.desk.desired_fault == "the folder is empty"
        assert setup.desk.status()["desired"]["pending"] is False
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(3)
        assert setup.traffic.candidate is None
        setup.source.say(setup.write("r2"))
        await asyncio.sleep(0.1)
        assert setup.traffic.candidate is not None
        status = setup.desk.status()
        assert status["desired"] == {
            "release": "r2",
            "digest": setup.known["r2"].digest,
            "source": "folder",
            "asked_at": "t0",
            "fault": None,
            "pending": False,
            "tried_again_at": None,
        }
        assert status["candidate"]["asked_at"] == "t0"
        assert setup.desk.desired_fault is None
        await setup.desk.abort()
        setup.source.say(setup.known["r2"])
        await asyncio.sleep(30)
        assert setup.traffic.candidate is None  # it was aborted: not again before the source names another
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(3)
        setup.source.say(setup.known["r2"])
        await asyncio.sleep(3)
        assert setup.traffic.candidate is not None

    setup = _play(tmp_path, scenario)
    assert setup.happened() == ["served", "started", "aborted", "started"]


def test_another_desired_release_takes_the_candidates_place(tmp_path: Path) -> None:
    """The one before is taken back, also where the source goes back to the stable release."""

    async def scenario(setup: Setup) -> None:
        setup.source.say(setup.write("r2"))
        await asyncio.sleep(0.5)
        setup.source.say(setup.write("r3"))
        await asyncio.sleep(0.5)
        assert setup.traffic.candidate is not None
        assert setup.traffic.candidate.name == "r3"
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(0.5)
        assert setup.traffic.candidate is None
        assert (setup.desk.status()["state"], setup.desk.status()["refused"]["step"]) == ("replaced", "replaced")

    setup = _play(tmp_path, scenario)
    assert setup.happened() == ["served", "started", "replaced", "started", "replaced"]
    assert [entry["lenient"] for entry in setup.desk.history()] == [True, True, True, True, False]
    assert setup.desk.history()[0]["why"] == ["the source names the stable release"]


def test_a_desired_release_that_was_refused_is_not_tried_again(tmp_path: Path) -> None:
    """Not before the source names another; an operator may ask for it all the same."""

    async def scenario(setup: Setup) -> None:
        bad = setup.write("r2", {"differs": ["model: declared a, the server says b"]})
        setup.source.say(bad)
        await asyncio.sleep(600)
        assert setup.outcomes == ["fingerprint"]
        assert setup.desk.status()["desired"]["pending"] is False
        setup.options[bad.digest] = {}
        await setup.desk.start("r2")
        assert setup.traffic.candidate is not None

    assert _play(tmp_path, scenario).happened() == ["served", "refused", "started"]


def test_a_desired_release_whose_server_is_away_is_tried_again_later(tmp_path: Path) -> None:
    """That a server does not answer says nothing of the release: else a replica would be left behind for good.

    Of refusals that are alike the history has the last.
    """

    async def scenario(setup: Setup) -> None:
        away = Probe(Verdict.FAILED, "connect", 1.0)
        stored = setup.write("r2", {"probes": [{StageName.SMALL: away}]}, probe="enforce")
        setup.source.say(stored)
        await asyncio.sleep(20)
        assert setup.outcomes == ["probe"]
        assert _apart(setup) == 30
        await asyncio.sleep(30)
        assert setup.outcomes == ["probe", "probe"]
        assert _apart(setup) == 60
        assert setup.desk.status()["desired"]["pending"] is True
        assert setup.happened() == ["served", "refused"]  # what came again fills no history
        setup.options[stored.digest] = {}
        await asyncio.sleep(120)
        assert setup.outcomes == ["probe", "probe", "swapped"]
        assert setup.desk.status()["desired"]["tried_again_at"] is None

    _play(tmp_path, scenario)


def _apart(setup: Setup) -> float:
    """Return how many seconds after its refusal the desired release is tried again, as the status tells."""
    told = setup.desk.status()
    again, refused = (
        datetime.fromisoformat(written) for written in (told["desired"]["tried_again_at"], told["refused"]["at"])
    )
    return (again - refused).total_seconds()


def test_what_an_operator_starts_meanwhile_is_not_tried_again(tmp_path: Path) -> None:
    """The status tells of no other try, neither while the release is tried nor once it decides."""

    async def scenario(setup: Setup) -> None:
        away = Probe(Verdict.FAILED, "connect", 1.0)
        stored = setup.write("r2", {"probes": [{StageName.SMALL: away}]}, probe="enforce")
        setup.source.say(stored)
        await asyncio.sleep(20)
        assert setup.desk.status()["desired"]["tried_again_at"] is not None
        setup.options[stored.digest] = {}
        await setup.desk.start("r2", at_once=True)
        assert setup.desk.status()["desired"]["tried_again_at"] is None
        await asyncio.sleep(120)
        assert setup.desk.status()["desired"]["tried_again_at"] is None

    _play(tmp_path, scenario)


def test_a_source_that_fails_is_looked_at_again(tmp_path: Path) -> None:
    """Its fault is counted, and the next thing that it says is heard."""

    async def scenario(setup: Setup) -> None:
        setup.source.queue.put_nowait(OSError("gone"))
        await asyncio.sleep(2)
        setup.source.say(setup.write("r2"))
        await asyncio.sleep(1)
        assert setup.traffic.candidate is not None

    assert [type(fault) for fault in _play(tmp_path, scenario).faults] == [OSError]


def test_an_operators_release_is_not_undone_by_a_source_that_names_what_it_did_before(tmp_path: Path) -> None:
    """What the source has named all along was dealt with; only another name is news."""

    async def scenario(setup: Setup) -> None:
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(1)
        setup.write("r2")
        await setup.desk.start("r2", at_once=True)
        setup.source.say(setup.known["r1"])
        await asyncio.sleep(10)
        assert (setup.traffic.stable.name, setup.traffic.candidate) == ("r2", None)

    _play(tmp_path, scenario)


def test_what_cannot_be_taken_is_in_the_history(tmp_path: Path) -> None:
    """A release that is refused before it can be brought in, on a full disk say, leaves the one under way as it is."""

    async def scenario(setup: Setup) -> None:
        setup.write("r2")
        await setup.desk.start("r2")
        why = ("release r3.tar: cannot be written: No space left on device",)
        setup.refuses["r3"] = Refused(ActivationStep.READ, why)
        with pytest.raises(Refused, match="No space left on device"):
            await setup.desk.start("r3", at_once=True)
        assert setup.desk.status()["state"] == "running"
        entry = setup.desk.history()[0]
        assert (entry["what"], entry["release"], entry["step"], entry["why"]) == ("refused", "r3", "read", list(why))

    _play(tmp_path, scenario)


def test_a_full_disk_is_told_and_stops_nothing(tmp_path: Path) -> None:
    """The rollout goes on where its state cannot be kept; that is told once with why, and once it can be it is kept and told."""
    log = io.BytesIO()
    configure_logging("info", log)

    async def scenario(setup: Setup) -> None:
        setup.keeps.fails = OSError(28, "No space left on device")
        setup.write("r2")
        assert (await setup.desk.start("r2"))["state"] == "running"
        await asyncio.sleep(10 * TICK_S)
        assert setup.desk.status()["state_fault"] == "No space left on device"
        setup.keeps.fails = None
        await asyncio.sleep(2 * TICK_S)
        assert setup.desk.status()["state_fault"] is None
        kept = setup.keeps.read()
        assert kept is not None
        assert kept.candidate is not None

    assert _play(tmp_path, scenario).faults == []
    told = [line for line in map(orjson.loads, log.getvalue().splitlines()) if "kept" in line["event"]]
    assert [line["event"] for line in told] == ["rollout state cannot be kept", "rollout state is kept again"]
    assert told[0]["why"] == "No space left on device"


def test_the_rate_of_requests_goes_into_the_time_to_rollback(tmp_path: Path) -> None:
    """What is told of how soon a candidate is rolled back hangs on the requests of the last minute."""

    async def scenario(setup: Setup) -> None:
        setup.desk._within = lambda release, per_s: [{"release": release.name, "per_s": round(per_s, 1)}]
        assert setup.desk.status()["rollback_within"] == []
        for _ in range(300):
            setup.tell(Arm.STABLE)
            await asyncio.sleep(0.1)
        setup.write("r2")
        (told,) = (await setup.desk.start("r2"))["rollback_within"]
        assert told["release"] == "r2"
        assert told["per_s"] == pytest.approx(10, abs=0.5)
        await asyncio.sleep(100)
        assert setup.desk.status()["rollback_within"] == [{"release": "r2", "per_s": 0.0}]

    _play(tmp_path, scenario)


def test_what_runs_beside_a_candidate_ends_with_it(tmp_path: Path) -> None:
    """The shadow is closed before the release that it scores with, whether it goes back or becomes the stable one."""
    ended: list[tuple[str, bool]] = []

    class Beside:
        def __init__(self, candidate: Any) -> None:
            self._candidate = candidate

        async def aclose(self) -> None:
            ended.append((self._candidate.name, self._candidate.is_open))

    async def scenario(setup: Setup) -> None:
        setup.moves._beside_of = lambda stable, candidate, judge: Beside(candidate)
        setup.write("r2")
        setup.write("r3")
        await setup.desk.start("r2")
        await setup.desk.abort()
        await asyncio.sleep(1)
        await setup.desk.start("r3")
        await setup.desk.start("r3", at_once=True)
        await asyncio.sleep(1)

    _play(tmp_path, scenario)
    assert ended == [("r2", True), ("r3", True)]


def test_h2_what_cannot_begin_beside_a_candidate_takes_it_back(tmp_path: Path) -> None:
    """Then the swap has failed: the old release decides everything."""

    async def scenario(setup: Setup) -> None:
        def fail(stable: Any, candidate: Any, judge: Any) -> None:
            raise OSError("no shadow")

        setup.moves._beside_of = fail
        setup.write("r2")
        with pytest.raises(Refused, match="refused at swap"):
            await setup.desk.start("r2")
        assert (setup.traffic.stable.name, setup.traffic.candidate) == ("r1", None)

    _play(tmp_path, scenario)


def test_the_wait_for_one_release_is_none_for_another(tmp_path: Path) -> None:
    """A desired release whose server is away is waited with; the one that the source names next is not."""

    async def scenario(setup: Setup) -> None:
        away = Probe(Verdict.FAILED, "connect", 1.0)
        setup.source.say(setup.write("r2", {"probes": [{StageName.SMALL: away}]}, probe="enforce"))
        await asyncio.sleep(10)
        assert setup.outcomes == ["probe"]
        setup.source.say(setup.write("r3"))
        await asyncio.sleep(0.5)
        assert setup.traffic.candidate is not None
        assert setup.traffic.candidate.name == "r3"

    _play(tmp_path, scenario)


def test_a_completion_that_fails_takes_the_candidate_back(tmp_path: Path) -> None:
    """Where traffic cannot be turned to it for good, it is not left with its share and nobody to judge it."""

    async def scenario(setup: Setup) -> None:
        setup.next_controller = lambda: FakeController(verdicts=[RolloutVerdict.HOLD, _COMPLETE])
        setup.write("r2")
        await setup.desk.start("r2")
        setup.traffic.fails = RuntimeError("stuck")
        await asyncio.sleep(2 * TICK_S + 0.1)
        assert (setup.traffic.stable.name, setup.traffic.candidate) == ("r1", None)
        assert setup.desk.status()["state"] == "rolled_back"

    _play(tmp_path, scenario)


def test_a_fault_in_closing_what_was_left_is_counted(tmp_path: Path) -> None:
    """It happens in the background, and the release is closed where only what ran beside it could not be."""

    class Stuck:
        async def aclose(self) -> None:
            raise OSError("stuck")

    async def scenario(setup: Setup) -> None:
        setup.moves._beside_of = lambda stable, candidate, judge: Stuck()
        setup.write("r2")
        await setup.desk.start("r2")
        await setup.desk.abort()

    assert [type(fault) for fault in _play(tmp_path, scenario).faults] == [OSError]


def test_an_upload_is_taken_only_where_it_can_be_checked(tmp_path: Path) -> None:
    """Without release keys it is refused with what to do; with them its digest comes back, to be started by."""

    async def scenario(setup: Setup) -> None:
        stored = setup.write("r2")

        async def put(bundle: bytes) -> Any:
            assert bundle == b"a tar"
            return stored

        with pytest.raises(ConfigError, match="release_keys_file"):
            await setup.desk.put(b"a tar")
        setup.desk._put = put
        assert await setup.desk.put(b"a tar") == stored.digest

    _play(tmp_path, scenario)


def test_what_a_release_will_have_to_show_is_foreseen(tmp_path: Path) -> None:
    """It is asked of the release that is meant, against the stable one, at the rate of the moment; nothing begins."""

    async def scenario(setup: Setup) -> None:

        async def foresee(stable: Any, wanted: str, per_s: float) -> dict[str, Any]:
            return {"stable": stable.name, "digest": setup.known[wanted].digest, "per_s": per_s}

        with pytest.raises(ConfigError, match="not told here"):
            await setup.desk.foresee("r2")
        setup.desk._foresee = foresee
        digest = setup.write("r2").digest
        assert await setup.desk.foresee("r2") == {"stable": "r1", "digest": digest, "per_s": 0.0}
        with pytest.raises(ConfigError, match="that release is the stable one already"):
            await setup.desk.foresee("r1")
        assert setup.happened() == ["served"]

    _play(tmp_path, scenario)


def test_a_fault_of_the_loop_does_not_end_it(tmp_path: Path) -> None:
    """What cannot be shown is counted, again and again, and the desk goes on."""

    async def scenario(setup: Setup) -> None:
        def fail(step: int | None, share: float, guardrails: Any) -> None:
            raise ZeroDivisionError

        shown, setup.rollout = setup.rollout, fail  # type: ignore[method-assign]
        await asyncio.sleep(2 * TICK_S)
        setup.rollout = shown  # type: ignore[method-assign]
        setup.source.say(setup.write("r2"))
        await asyncio.sleep(TICK_S)
        assert setup.traffic.candidate is not None

    assert {type(fault) for fault in _play(tmp_path, scenario).faults} == {ZeroDivisionError}
