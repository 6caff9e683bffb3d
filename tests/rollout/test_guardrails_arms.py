"""The canary's answers against the stable release's."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.policy.release import GuardrailLimits
from cascade.rollout.arms import UNIT_NUMBERS
from cascade.rollout.guardrails.arm_comparison import ArmComparison
from cascade.rollout.guardrails.names import GuardrailName, GuardrailVerdict
from cascade.rollout.guardrails.observed import Observed
from cascade.rollout.guardrails.told import Told
from cascade.rollout.guardrails.wager import Wager
from cascade.types import Arm

_HARM, _PASS = 0.002, 0.05


def _comparison(warm_up: int = 0, **limits: float | None) -> ArmComparison:
    return ArmComparison(GuardrailLimits(**limits), _HARM, _PASS, warm_up)


def _stable(**fields: float | bool) -> Observed:
    return Observed(Arm.STABLE, **fields)  # type: ignore[arg-type]


def _canary(**fields: float | bool) -> Observed:
    return Observed(Arm.CANARY, **fields)  # type: ignore[arg-type]


def _told(comparison: ArmComparison, name: GuardrailName) -> Told:
    return next(one for one in comparison.told() if one.name is name)


def _wagered(limit: float, *differences: float) -> tuple[int, float, float]:
    wager = Wager(limit, _HARM, _PASS)
    for one in differences:
        wager.add(one)
    return wager.count, wager.p_harm, wager.p_pass


def _numbers(told: Told) -> tuple[int, float | None, float | None]:
    return told.n, told.p_harm, told.p_pass


def test_a_canary_answer_is_held_against_the_mean_of_the_stable_ones_since_the_last() -> None:
    """Two of four late, then a canary answer in time: -0.5; none of one, then a late one: 1."""
    both = _comparison()
    for late in (True, False, True, False):
        both.stable(_stable(late=late))
    both.canary(_canary(late=False))
    both.stable(_stable(late=False))
    both.canary(_canary(late=True))
    told = _told(both, GuardrailName.LATE)
    assert _numbers(told) == _wagered(0.01, -0.5, 1.0)
    assert (told.stable, told.canary) == (0.4, 0.5)
    assert told.difference == pytest.approx(0.1)


def test_canary_answers_wait_for_a_stable_one_and_all_count() -> None:
    """Where the canary has most of the traffic its mean is paired: three answers, one an error, against one of none."""
    both = _comparison()
    for error in (True, False, False):
        both.canary(_canary(error=error))
    assert _told(both, GuardrailName.ERRORS).n == 0
    both.stable(_stable())
    told = _told(both, GuardrailName.ERRORS)
    assert _numbers(told) == _wagered(0.005, 1 / 3)
    assert told.canary == pytest.approx(1 / 3)
    assert both.canary_answers == 3


def test_a_cost_is_relative() -> None:
    """At a limit of a quarter more, 0.5 against 0.4 is just within: a difference of 0; told is a quarter."""
    both = _comparison(cost=0.25)
    both.stable(_stable(cost=0.4))
    both.canary(_canary(cost=0.5))
    told = _told(both, GuardrailName.COST)
    assert _numbers(told) == pytest.approx(_wagered(0.0, 0.0))
    assert told.difference == pytest.approx(0.25)
    assert told.limit == 0.25
    both.stable(_stable(cost=0.1))
    both.canary(_canary(cost=1.0))
    assert _numbers(_told(both, GuardrailName.COST)) == pytest.approx(_wagered(0.0, 0.0, 0.8 - 0.1))


def test_releases_that_cost_nothing_are_not_held_up_by_it() -> None:
    """A quarter more than nothing is nothing: it can neither fail nor pass, so it is not waited for."""
    both = _comparison()
    assert _told(both, GuardrailName.COST).needed
    both.stable(_stable())
    both.canary(_canary())
    told = _told(both, GuardrailName.COST)
    assert (told.needed, told.difference) == (False, None)
    assert told.why == "no request of either release has cost anything"
    both.stable(_stable())
    both.canary(_canary(cost=0.1))
    assert _told(both, GuardrailName.COST).needed


def test_the_first_answers_may_be_late_or_degraded_and_are_no_errors_the_less() -> None:
    """Of a warm-up of two, lateness and fallback are not counted, in the means neither; errors are."""
    both = _comparison(warm_up=2)
    for _ in range(2):
        both.stable(_stable())
        both.canary(_canary(late=True, fallback=True, error=True))
    for is_late in (False, True):
        both.stable(_stable())
        both.canary(_canary(late=is_late))
    late, fallback, errors = (
        _told(both, name) for name in (GuardrailName.LATE, GuardrailName.FALLBACK, GuardrailName.ERRORS)
    )
    assert (late.canary, _numbers(late)) == (0.5, _wagered(0.01, 0.0, 1.0))
    assert (fallback.canary, _numbers(fallback)) == (0.0, _wagered(0.02, 0.0, 0.0))
    assert (errors.canary, _numbers(errors)) == (0.5, _wagered(0.005, 1.0, 1.0, 0.0, 0.0))


def test_a_guardrail_that_is_off_says_nothing_and_fails_nothing() -> None:
    """Null is off, whatever is seen."""
    both = _comparison(errors=None)
    for _ in range(100):
        both.stable(_stable())
        both.canary(_canary(error=True))
    assert GuardrailName.ERRORS not in [one.name for one in both.told()]
    assert not both.has_failed


def test_an_outage_of_the_canary_fails_within_ten_answers_and_like_answers_pass() -> None:
    """One test, three outcomes, each with its sentence."""
    both = _comparison()
    assert {one.verdict for one in both.told()} == {GuardrailVerdict.INCONCLUSIVE}
    assert _told(both, GuardrailName.ERRORS).why == "0 comparisons; a pass needs 664 at least, where nothing differs"
    for _ in range(10):
        both.stable(_stable())
        both.canary(_canary(error=True))
    assert both.has_failed
    assert _told(both, GuardrailName.ERRORS).verdict is GuardrailVerdict.FAIL
    alike = _comparison()
    for _ in range(664):
        alike.stable(_stable(cost=0.5))
        alike.canary(_canary(cost=0.5))
    assert {one.verdict for one in alike.told()} == {GuardrailVerdict.PASS}
    assert not alike.has_failed


def test_answers_without_a_pair_are_counted_and_told() -> None:
    """The means are over all answers of the step; what is not paired yet is among them."""
    both = _comparison()
    assert _told(both, GuardrailName.ESCALATION).stable is None
    both.stable(_stable(escalated_share=0.5))
    told = _told(both, GuardrailName.ESCALATION)
    assert (told.stable, told.canary, told.difference, told.n) == (0.5, None, None, 0)
    assert _told(both, GuardrailName.COST).difference is None


def test_a_limit_of_zero_says_what_it_needs_and_many_that_differ_say_so() -> None:
    """The sentence tells which of the reasons it is."""
    zero = _comparison(late=0.0)
    assert _told(zero, GuardrailName.LATE).why == "a limit of 0 passes only where the candidate is shown to be better"
    for turn in range(400):
        zero.stable(_stable(fallback=turn % 2 == 0))
        zero.canary(_canary(fallback=turn % 2 == 1))
    assert _told(zero, GuardrailName.FALLBACK).why == "400 comparisons show neither"


def _answered(both: ArmComparison, turns: int, late: dict[int, float], canary: set[int], harm: float = 0.0) -> None:
    """Have each unit answered once a turn, late by its own share, and by ``harm`` more where the canary answers it."""
    for turn in range(turns):
        for unit, share in late.items():
            is_late = (turn * 37 + unit * 11) % 100 < 100 * (share + (harm if unit in canary else 0.0))
            (both.canary if unit in canary else both.stable)(
                (_canary if unit in canary else _stable)(late=is_late, unit=unit)
            )


def test_a_caller_that_is_late_wherever_it_is_is_not_held_against_the_release() -> None:
    """One of twenty is always late, as two of the stable release's are: its wager shows harm, and the guardrail says whose."""
    both = _comparison()
    _answered(both, 100, {unit: 1.0 if unit in {0, 7, 13} else 0.0 for unit in range(20)}, {0, 1})
    told = _told(both, GuardrailName.LATE)
    assert told.p_harm is not None
    assert told.p_harm < _HARM
    assert (told.verdict, both.has_failed) == (GuardrailVerdict.INCONCLUSIVE, False)
    assert "units of traffic differ" in told.why


def test_few_callers_that_are_much_worse_off_than_others_are_held_against_the_release() -> None:
    """Callers differ by a few hundredths; those of the canary are late half of the time."""
    both = _comparison()
    _answered(both, 100, {unit: 0.01 * (unit % 5) for unit in range(60)}, {0, 1}, harm=0.5)
    assert both.has_failed
    assert _told(both, GuardrailName.LATE).verdict is GuardrailVerdict.FAIL


def test_after_a_restart_harm_of_units_is_not_held_against_the_release_by_what_is_left_of_them() -> None:
    """What is known of units is gone: one late answer of a caller that is always late must not end what it did not end before."""
    before, both = _comparison(), _comparison()
    late = {unit: 1.0 if unit in {0, 7, 13} else 0.0 for unit in range(20)}
    _answered(before, 100, late, {0, 1})
    before.canary(_canary(unit=1))  # so that no answer of the stable release waits for one of the candidate
    both.restore(before.state())
    _answered(both, 100, late, {0, 1})
    told = _told(both, GuardrailName.LATE)
    assert told.p_harm is not None
    assert told.p_harm < _HARM
    assert (told.verdict, both.has_failed) == (GuardrailVerdict.INCONCLUSIVE, False)


def test_after_a_restart_harm_is_met_by_what_came_since() -> None:
    """The release begins to fail after it: as many answers are needed as at first."""
    before, both = _comparison(), _comparison()
    _answered(before, 5, dict.fromkeys(range(60), 0.0), {0, 1})
    both.restore(before.state())
    _answered(both, 100, dict.fromkeys(range(60), 0.0), {0, 1}, harm=0.5)
    assert _told(both, GuardrailName.LATE).verdict is GuardrailVerdict.FAIL


def test_a_large_caller_that_always_fails_hides_no_outage_of_the_candidate() -> None:
    """A third of the traffic fails in the stable release, all of one caller's; of the candidate all of each caller's does."""
    both = _comparison()
    for _ in range(40):
        for unit in range(100):
            if unit < 4:
                both.canary(_canary(error=True, unit=unit))
            else:
                both.stable(_stable(unit=unit))
        for _ in range(50):
            both.stable(_stable(error=True, unit=100))
    assert _told(both, GuardrailName.ERRORS).verdict is GuardrailVerdict.FAIL


def test_where_the_canary_has_most_units_it_is_they_that_tell_how_units_differ() -> None:
    """A like release at 90%: 8 of its 27 callers are always late, and of the three that are left none."""
    both = _comparison()
    _answered(both, 100, {unit: 1.0 if 3 <= unit < 11 else 0.0 for unit in range(30)}, set(range(3, 30)))
    told = _told(both, GuardrailName.LATE)
    assert told.p_harm is not None
    assert told.p_harm < _HARM
    assert (told.verdict, both.has_failed) == (GuardrailVerdict.INCONCLUSIVE, False)


def _many(bad_of_canary: int) -> ArmComparison:
    """Have 20,000 units answered by the stable release, a twentieth of them always badly, and 500 by the canary, 8 times each."""
    rng = np.random.default_rng(3)
    units = rng.integers(UNIT_NUMBERS, size=20_500).tolist()
    both = _comparison()
    for _ in range(8):
        for number in rng.permutation(20_500).tolist():
            if number < 500:
                both.canary(_canary(error=number < bad_of_canary, unit=units[number]))
            else:
                both.stable(_stable(error=number % 20 == 0, unit=units[number]))
    return both


@pytest.mark.parametrize(("bad", "verdict"), [(37, GuardrailVerdict.INCONCLUSIVE), (200, GuardrailVerdict.FAIL)])
def test_callers_are_told_apart_however_many_there_are(bad: int, verdict: GuardrailVerdict) -> None:
    """Of the canary's callers 7.4% always fail where 5% of all do: too few to be the release's doing; two fifths are not."""
    told = _told(_many(bad), GuardrailName.ERRORS)
    assert told.p_harm is not None
    assert told.p_harm < _HARM
    assert told.verdict is verdict


def test_a_failure_is_kept_though_what_is_known_of_units_is_not() -> None:
    """The process may end between the answer and the roll back."""
    first, second = _comparison(), _comparison()
    for _ in range(10):
        first.stable(_stable())
        first.canary(_canary(error=True))
    second.restore(first.state())
    assert second.has_failed
    assert list(second.told()) == list(first.told())


def test_a_state_goes_on_as_if_nothing_had_been() -> None:
    """Half of a pair, half of the warm-up, and a guardrail that is off are kept too."""
    whole, first = _comparison(warm_up=2, late=None), _comparison(warm_up=2, late=None)
    for both in (whole, first):
        both.stable(_stable(error=True, cost=0.5))
        both.canary(_canary(escalated_share=0.5))
        both.canary(_canary(fallback=True))
    second = _comparison(warm_up=2, late=None)
    second.restore(first.state())
    for both in (whole, second):
        both.stable(_stable(fallback=True))
        both.canary(_canary(fallback=True))
    assert list(second.told()) == list(whole.told())
    assert second.state() == whole.state()
