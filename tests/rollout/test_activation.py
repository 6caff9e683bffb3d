"""An activation goes through its steps in order; where one fails the old release is whole and nothing of the new is left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cascade.decision import DegradedReason
from cascade.errors import ConfigError, NotAnswered
from cascade.rollout.activation import ActivationStep, Asked, Refused
from cascade.rollout.ports import Serving
from cascade.rollout.signing import ReleaseKeys
from cascade.stages.probe import Probe, Verdict
from cascade.testing.clock import run_virtual
from cascade.types import StageName
from tests.rollout.desk_fakes import OK, FakeRelease, Setup, asked, decision

_SMOKE = {"smoke": [{"query": "secret kingfisher", "documents": ["blue", "red"], "first": 0}]}
_IN_ORDER = list(ActivationStep)


class Swapped:
    """Take note of what is swapped in; fail where told so."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.releases: list[Serving] = []
        self._fault = fault

    def __call__(self, release: FakeRelease) -> None:
        if self._fault is not None:
            raise self._fault
        self.releases.append(release)


def _none_left(setup: Setup) -> None:
    """Assert that the old release is whole and that everything of the new one was given back."""
    old, *new = setup.releases
    assert setup.traffic.stable is old
    assert setup.traffic.candidate is None
    assert old.is_open
    assert not any(release.is_open for release in new)
    assert len(asyncio.all_tasks()) == 1


def test_the_steps_are_taken_in_order_and_the_release_is_handed_to_the_swap(tmp_path: Path) -> None:
    """A release that nothing speaks against is started, probed, asked, and swapped in once."""

    async def scenario() -> None:
        setup = Setup(tmp_path)
        stored = setup.write("r2", rollout=_SMOKE)
        steps: list[ActivationStep] = []
        setup.activation.began = steps.append
        swapped = Swapped()
        release = await setup.activation.run(asked(stored), swapped)
        assert steps == _IN_ORDER
        assert swapped.releases == [release]
        assert (release.name, release.digest, release.is_open, release.asked) == ("r2", stored.digest, True, 1)
        await release.aclose()

    run_virtual(scenario())


def _broken(setup: Setup, step: ActivationStep, fault: Exception) -> tuple[Asked, Swapped]:
    """Return an activation that fails at ``step``, by the nearest thing to what would fail there."""
    swapped = Swapped(fault if step is ActivationStep.SWAP else None)
    stored = setup.write("r2", {"faults": {step: fault}}, rollout=_SMOKE)
    wanted = asked(stored)
    match step:
        case ActivationStep.READ:
            stored.path.write_text("release: r2\nno_such_key: 1\n", encoding="utf-8")
        case ActivationStep.SIGNATURE:
            setup.activation.keys = lambda: ReleaseKeys({})
        case ActivationStep.VERIFY:
            wanted = Asked(stored.path, "sha256:" + "0" * 64, lenient=True)
        case _:
            pass
    return wanted, swapped


@pytest.mark.parametrize("step", _IN_ORDER)
@pytest.mark.parametrize("fault", [ConfigError("it says why"), RuntimeError("kingfisher")], ids=["known", "fault"])
def test_h2_a_fault_at_any_step_leaves_the_old_release_whole(
    tmp_path: Path, step: ActivationStep, fault: Exception
) -> None:
    """Whichever step fails, it is named with why, nothing was swapped, and of the new release nothing is left."""

    async def scenario() -> None:
        setup = Setup(tmp_path)
        wanted, swapped = _broken(setup, step, fault)
        with pytest.raises(Refused) as refused:
            await setup.activation.run(wanted, swapped)
        assert refused.value.step is step
        (why,) = refused.value.why
        assert "kingfisher" not in why
        if step not in {ActivationStep.READ, ActivationStep.SIGNATURE, ActivationStep.VERIFY}:
            known = isinstance(fault, ConfigError)
            assert why == ("it says why" if known else "an internal fault: RuntimeError")
            assert setup.faults == ([] if known else [fault])
        assert swapped.releases == []
        _none_left(setup)

    run_virtual(scenario())


@pytest.mark.parametrize("step", [ActivationStep.START, ActivationStep.PROBE, ActivationStep.SMOKE])
def test_h2_an_activation_that_is_cancelled_leaves_nothing(tmp_path: Path, step: ActivationStep) -> None:
    """Where a step hangs and who waits is cancelled, what came of the new release is closed before that is told."""

    async def scenario() -> None:
        setup = Setup(tmp_path)
        stored = setup.write("r2", {"hangs_at": step}, rollout=_SMOKE)
        task = asyncio.create_task(setup.activation.run(asked(stored), Swapped()))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        _none_left(setup)

    run_virtual(scenario())


def test_a_release_that_never_starts_is_given_up(tmp_path: Path) -> None:
    """After a minute the start is ended, and the release refused there."""

    async def scenario() -> None:
        setup = Setup(tmp_path)
        stored = setup.write("r2", {"hangs_at": ActivationStep.START})
        with pytest.raises(Refused) as refused:
            await setup.activation.run(asked(stored), Swapped())
        assert (refused.value.step, refused.value.why) == ("start", ("it had not started after 60 seconds",))
        _none_left(setup)

    run_virtual(scenario())


def test_a_fault_in_closing_does_not_hide_why(tmp_path: Path) -> None:
    """What is told is why the release was refused; that it could not be closed is a fault of its own."""

    class Stuck(FakeRelease):
        async def aclose(self) -> None:
            await super().aclose()
            raise OSError("stuck")

    async def scenario() -> None:
        setup = Setup(tmp_path)
        stored = setup.write("r2", {"differs": ["small stage: model: declared a, the server says b"]})
        setup.activation.build = lambda bundle: Stuck(bundle, differs=["model: declared a"])
        with pytest.raises(Refused) as refused:
            await setup.activation.run(asked(stored), Swapped())
        assert (refused.value.step, refused.value.why) == ("fingerprint", ("model: declared a",))
        assert [type(fault) for fault in setup.faults] == [OSError]

    run_virtual(scenario())


def test_warnings_refuse_unless_it_is_lenient(tmp_path: Path) -> None:
    """A release without evidence has warnings: refused at verify with each of them, and taken where that was asked."""

    async def scenario() -> None:
        setup = Setup(tmp_path)
        stored = setup.write("r2")
        with pytest.raises(Refused) as refused:
            await setup.activation.run(asked(stored, lenient=False), Swapped())
        assert refused.value.step is ActivationStep.VERIFY
        assert "evidence: it names no certificate" in refused.value.why
        assert refused.value.why[-1] == (
            "all of these are warnings: --lenient lets them pass "
            "(over HTTP lenient: true; for all releases strict_activation: false)"
        )
        _none_left(setup)
        await (await setup.activation.run(asked(stored), Swapped())).aclose()

    run_virtual(scenario())


def test_a_file_that_changes_while_it_is_looked_at_is_refused(tmp_path: Path) -> None:
    """What is loaded is what was verified, or nothing."""

    async def scenario() -> None:
        setup = Setup(tmp_path)
        stored = setup.write("r2")

        def began(step: ActivationStep) -> None:
            if step is ActivationStep.LOAD:
                setup.write("r2", depth=7)

        setup.activation.began = began
        with pytest.raises(Refused) as refused:
            await setup.activation.run(asked(stored), Swapped())
        assert (refused.value.step, refused.value.why) == ("load", ("it was changed while it was looked at",))
        _none_left(setup)

    run_virtual(scenario())


_WRONG = Probe(Verdict.WRONG_ORDER, "", 1.0)
_AWAY = Probe(Verdict.FAILED, "refused", 1.0, DegradedReason.STAGE_UNREACHABLE)


@pytest.mark.parametrize(
    ("probe", "lenient", "why"),
    [
        ("warn", False, ("small stage: wrong_order",)),
        ("enforce", True, ("small stage: wrong_order",)),
        ("warn", True, ("small stage: wrong_order",)),
        ("off", False, None),
    ],
)
def test_wrong_scores_of_known_pairs_refuse(
    tmp_path: Path, probe: str, lenient: bool, why: tuple[str, ...] | None
) -> None:
    """Activation enforces probes even where a cold start only warns, and where warnings of `verify` pass; off asks nothing."""

    async def scenario() -> None:
        setup = Setup(tmp_path)
        stored = setup.write("r2", {"probes": [{StageName.SMALL: _WRONG}]}, probe=probe)
        setup.activation.off_loop = _without_warnings(setup) if not lenient else setup.activation.off_loop
        run = setup.activation.run(asked(stored, lenient=lenient), Swapped())
        if why is None:
            await (await run).aclose()
            return
        with pytest.raises(Refused) as refused:
            await run
        assert (refused.value.step, refused.value.why, refused.value.passing) == ("probe", why, False)
        _none_left(setup)

    run_virtual(scenario())


def _without_warnings(setup: Setup) -> Any:
    """Run work as before, but let a verification find nothing: these releases name no evidence."""
    from dataclasses import replace

    from cascade.rollout.verify import Verification

    inner = setup.activation.off_loop

    async def run(work: Any, /) -> Any:
        found = await inner(work)
        return replace(found, findings=()) if isinstance(found, Verification) else found

    return run


def test_a_server_that_is_still_starting_is_asked_again(tmp_path: Path) -> None:
    """It is probed until it answers, for ten seconds; the answer is what counts."""

    async def scenario() -> None:
        setup = Setup(tmp_path)
        probes: list[dict[StageName, Probe]] = [{StageName.SMALL: each} for each in (_AWAY, _AWAY, OK)]
        stored = setup.write("r2", {"probes": probes}, probe="enforce")
        await (await setup.activation.run(asked(stored), Swapped())).aclose()

    run_virtual(scenario())


def test_a_server_that_stays_away_refuses_and_is_told_from_a_wrong_one(tmp_path: Path) -> None:
    """After ten seconds it is refused as passing: the release may be right."""

    async def scenario() -> None:
        setup = Setup(tmp_path)
        probes = [{StageName.SMALL: _AWAY, StageName.LARGE: OK}]
        stored = setup.write("r2", {"probes": probes}, probe="enforce")
        began = asyncio.get_running_loop().time()
        with pytest.raises(Refused) as refused:
            await setup.activation.run(asked(stored), Swapped())
        assert (refused.value.step, refused.value.why) == ("probe", ("small stage: stage_unreachable (refused)",))
        assert refused.value.passing
        assert asyncio.get_running_loop().time() - began < 10.5

    run_virtual(scenario())


def _smoked(tmp_path: Path, options: dict[str, Any]) -> tuple[tuple[str, ...], int]:
    """Return what is said of a release with two smoke queries, and how often it was asked."""

    async def scenario() -> tuple[tuple[str, ...], int]:
        setup = Setup(tmp_path)
        queries = [{"query": "kingfisher", "documents": ["a"]}, {"query": "heron", "documents": ["a", "b"], "first": 1}]
        stored = setup.write("r2", options, rollout={"smoke": queries})
        run = setup.activation.run(asked(stored), Swapped())
        (ended,) = await asyncio.gather(run, return_exceptions=True)
        if isinstance(ended, Refused):
            assert ended.step is ActivationStep.SMOKE
            return ended.why, setup.releases[-1].asked
        assert isinstance(ended, FakeRelease)
        await ended.aclose()
        return (), ended.asked

    return run_virtual(scenario())


def test_smoke_queries_are_named_by_position_only(tmp_path: Path) -> None:
    """A degraded answer and another first document refuse, each by the place of its query; no text is told."""
    first_degraded = [(DegradedReason.STAGE_INVALID_ANSWER,)]
    assert _smoked(tmp_path, {"first": 0, "answers": first_degraded}) == (
        (
            "smoke query 0: degraded: stage_invalid_answer",
            "smoke query 1: document 0 came first, not document 1",
        ),
        2,
    )
    assert _smoked(tmp_path, {"first": 1}) == ((), 2)


def test_a_late_answer_to_a_smoke_query_is_asked_for_again(tmp_path: Path) -> None:
    """Twice at most: a server that was just connected to may be late once."""
    late = (DegradedReason.STAGE_TIMEOUT,)
    assert _smoked(tmp_path, {"first": 1, "answers": [late, late]}) == ((), 4)
    told, times = _smoked(tmp_path, {"first": 1, "answers": [late, late, late]})
    assert (told, times) == (("smoke query 0: degraded: stage_timeout",), 4)


def test_load_and_a_short_list_are_not_held_against_smoke_answers(tmp_path: Path) -> None:
    """The level is not the release's, and a list shorter than the calibration's range is the query's."""
    answers = [(DegradedReason.LOAD_LEVEL,), (DegradedReason.CALIBRATION_MISMATCH,)]
    assert _smoked(tmp_path, {"first": 1, "answers": answers}) == ((), 2)


def test_an_error_in_place_of_a_degraded_answer_refuses_too(tmp_path: Path) -> None:
    """A release whose fallback is an error raises where it would be degraded: that is told as a degraded answer."""
    said = decision(degraded=(DegradedReason.BREAKER_OPEN,))
    told, _ = _smoked(tmp_path, {"faults": {ActivationStep.SMOKE: NotAnswered(said)}})
    assert told == ("smoke query 0: degraded: breaker_open", "smoke query 1: degraded: breaker_open")
