"""Ranking losses, and scores that drift."""

from __future__ import annotations

import numpy as np
import orjson
import pytest

from cascade.errors import ConfigError
from cascade.policy.release import GuardrailLimits, RolloutRules
from cascade.rollout.guardrails.drift import DriftWatch
from cascade.rollout.guardrails.drift_evidence import DriftEvidence
from cascade.rollout.guardrails.names import GuardrailName, GuardrailVerdict
from cascade.rollout.guardrails.observed import Observed
from cascade.rollout.guardrails.ranking_evidence import RankingEvidence
from cascade.rollout.guardrails.spending import canary_steps, harm_alpha, look_alpha
from cascade.statistics.drift import ks_distance, ks_p_value
from cascade.types import Arm, StageName


def _ranking(cannot: str | None = None) -> RankingEvidence:
    return RankingEvidence(GuardrailName.RANKING_LOSS, 0.01, 0.002, 0.05, needed=True, cannot=cannot)


def test_losses_that_are_none_pass_and_large_ones_fail() -> None:
    """332 pairs without loss are enough; ten that lose everything are too."""
    alike, worse = _ranking(), _ranking()
    for _ in range(331):
        alike.add(0.0)
    assert alike.told().verdict is GuardrailVerdict.INCONCLUSIVE
    assert alike.told().why == "331 comparisons; a pass needs 332 at least, where nothing differs"
    alike.add(0.0)
    assert alike.told().verdict is GuardrailVerdict.PASS
    for _ in range(10):
        worse.add(1.0)
    assert worse.has_failed
    told = worse.told()
    assert (told.verdict, told.n, told.difference, told.limit) == (GuardrailVerdict.FAIL, 10, 1.0, 0.01)
    with pytest.raises(ConfigError):
        worse.add(1.5)


def test_a_pass_goes_on_over_steps_and_harm_is_asked_anew() -> None:
    """What a long good time won does not stand against what goes wrong later."""
    evidence = _ranking()
    for _ in range(5000):
        evidence.add(0.0)
    evidence.next_step()
    assert (evidence.verdict, evidence.count, evidence.step_count) == (GuardrailVerdict.PASS, 5000, 0)
    for _ in range(10):
        evidence.add(1.0)
    assert evidence.verdict is GuardrailVerdict.FAIL


def test_losses_that_cannot_tell_say_neither_and_why() -> None:
    """Gains of another large stage than the candidate's are no evidence, for it or against it."""
    evidence = _ranking("the judge is another")
    for _ in range(500):
        evidence.add(1.0)
    assert not evidence.has_failed
    assert (evidence.verdict, evidence.told().why) == (GuardrailVerdict.INCONCLUSIVE, "the judge is another")


def test_evidence_that_is_starved_says_so_and_why() -> None:
    """From 20 left out, and where those are the most: a step that waits for pairs must not do so without a word."""
    evidence = _ranking()
    for _ in range(4):
        evidence.add(0.0)
    for _ in range(19):
        evidence.left_out("silver_failed")
    assert evidence.told().why == "4 comparisons; a pass needs 332 at least, where nothing differs"
    evidence.left_out("paused")
    assert evidence.told().why == (
        "4 comparisons; a pass needs 332 at least, where nothing differs; "
        "starved: of 24 in the sample 4 were compared, the rest mostly silver_failed"
    )
    for _ in range(17):
        evidence.add(0.0)
    assert "starved" not in evidence.told().why
    for _ in range(400):
        evidence.left_out("paused")
        evidence.add(0.0)
    assert evidence.told().why == "it is shown to be within its limit"


def test_ranking_evidence_is_restored() -> None:
    """Both wagers, as they were."""
    first, second = _ranking(), _ranking()
    first.add(0.5)
    first.next_step()
    first.add(0.25)
    second.restore(first.state())
    assert second.told() == first.told()


def _watched(shift: float, count: int, seed: int = 1) -> DriftWatch:
    rng = np.random.default_rng(seed)
    watch = DriftWatch(0.25, 0.002)
    for before, after in zip(rng.normal(size=count), rng.normal(shift, 1.0, count), strict=True):
        watch.stable(float(before))
        watch.canary(float(after))
        watch.look()
    return watch


def test_scores_that_moved_fail_and_those_that_did_not_pass_from_a_thousand_on() -> None:
    """Before that nothing is said."""
    assert _watched(1.0, 999).verdict is GuardrailVerdict.INCONCLUSIVE
    assert _watched(1.0, 1000).verdict is GuardrailVerdict.FAIL
    alike = _watched(0.0, 1000)
    assert (alike.verdict, alike.looks, alike.looked_at) == (GuardrailVerdict.PASS, 1, 1000)


def test_a_shift_that_is_certain_and_small_passes() -> None:
    """A fifth of a spread is more than chance at 4000 scores, and less than the limit."""
    watch = _watched(0.2, 4000)
    assert watch.verdict is GuardrailVerdict.PASS
    assert watch.p is not None
    assert watch.p < 1e-6


def test_an_index_above_the_limit_that_chance_allows_says_neither() -> None:
    """At a limit that noise exceeds, the gap decides."""
    rng = np.random.default_rng(2)
    watch = DriftWatch(0.001, 0.002)
    for _ in range(1000):
        watch.stable(float(rng.normal()))
        watch.canary(float(rng.normal()))
    watch.look()
    assert watch.verdict is GuardrailVerdict.INCONCLUSIVE
    assert watch.index is not None
    assert watch.index > 0.001


def _of_callers(count: int, canary_shift: float, seed: int) -> DriftWatch:
    """Have so many callers, each in one arm for good with best scores of its own, ask 4000 scores of each release."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(0.0, 0.7, count)
    watch = DriftWatch(0.25, 0.002)
    for _ in range(4000):
        for take, who, shift in (
            (watch.stable, rng.integers(count // 2, count), 0.0),
            (watch.canary, rng.integers(count // 2), canary_shift),
        ):
            take(float(rng.normal(middles[who] + shift, 0.7)), int(who))
        watch.look()
    return watch


def test_callers_whose_scores_differ_by_themselves_are_no_drift() -> None:
    """Of 40 like releases with 16 callers 12 have an index above the limit at last; of none it is held against the release."""
    watches = [_of_callers(16, 0.0, seed) for seed in range(40)]
    assert GuardrailVerdict.FAIL not in {watch.verdict for watch in watches}
    assert sum(watch.verdict is GuardrailVerdict.INCONCLUSIVE for watch in watches) >= 5


def test_scores_of_many_callers_that_moved_fail() -> None:
    """Two hundred of them are enough to tell a stage that scores otherwise from callers that are unlike."""
    assert _of_callers(200, 1.0, 1).verdict is GuardrailVerdict.FAIL


@pytest.mark.parametrize(("times", "verdict"), [(1.5, GuardrailVerdict.INCONCLUSIVE), (1.8, GuardrailVerdict.FAIL)])
def test_a_first_look_spends_its_share_of_alpha_alone(times: float, verdict: GuardrailVerdict) -> None:
    """That is 6 / pi^2 of it: a gap with a p-value below alpha is not enough where it is above that."""
    rng = np.random.default_rng(2)
    before, after = rng.normal(size=1000).tolist(), rng.normal(0.1, 1.0, 1000).tolist()
    p = ks_p_value(ks_distance(before, after), 1000)
    watch = DriftWatch(0.001, times * p)
    for one, other in zip(before, after, strict=True):
        watch.stable(one)
        watch.canary(other)
    watch.look()
    assert (watch.p, watch.verdict) == (p, verdict)


def test_a_score_is_compared_with_the_last_of_the_stable_release_and_each_once() -> None:
    """So both samples are of the same times, whatever the share."""
    watch = DriftWatch(0.25, 0.002)
    watch.canary(1.0)
    assert watch.count == 0
    for score in (1.0, 2.0):
        watch.stable(score)
    watch.canary(5.0)
    watch.canary(6.0)
    kept = watch.state()
    assert (watch.count, kept["stable"]["values"], kept["canary"]["values"]) == (1, [2.0], [5.0])


def test_it_holds_four_thousand_at_most_and_begins_anew() -> None:
    """Looks at 1000, 2000 and 4000, then at 1000 new ones; without a look no more are taken."""
    watch = _watched(0.0, 4000)
    assert (watch.looks, watch.count) == (3, 0)
    for _ in range(5000):
        watch.stable(0.0)
        watch.canary(0.0)
    assert watch.count == 4000
    watch.look()
    assert (watch.looks, watch.looked_at) == (4, 4000)


def _scored(arm: Arm, small: float | None = None, large: float | None = None) -> Observed:
    return Observed(arm, small_top=small, large_top=large)


def test_each_stage_that_is_the_same_is_watched_and_another_is_not_waited_for() -> None:
    """A stage that cannot be compared says why, and needs no pass."""
    evidence = DriftEvidence(0.25, 0.002, {StageName.LARGE: "the stage is another"})
    for turn in range(1000):
        evidence.stable(_scored(Arm.STABLE, float(turn % 7), 1.0))
        evidence.canary(_scored(Arm.CANARY, float(turn % 7), 9.0))
    small, large = evidence.told(needed=True)
    assert (small.n, small.why) == (1000, "1000 scores of each release; 1000 are needed")
    evidence.look()
    small, large = evidence.told(needed=True)
    assert (small.name, small.verdict, small.needed) == (GuardrailName.DRIFT_SMALL, GuardrailVerdict.PASS, True)
    assert small.why == "the scores were alike at 1000 of each release"
    assert (large.name, large.verdict, large.needed) == (
        GuardrailName.DRIFT_LARGE,
        GuardrailVerdict.INCONCLUSIVE,
        False,
    )
    assert (large.n, large.why) == (0, "the stage is another")
    assert not evidence.has_failed


def test_a_stage_that_scored_nothing_is_not_counted_and_one_that_moved_fails() -> None:
    """The large stage scores some queries only; its scores are compared all the same."""
    evidence = DriftEvidence(0.25, 0.002, {})
    for turn in range(2000):
        large = float(turn % 10) if turn % 2 else None
        evidence.stable(_scored(Arm.STABLE, None, large))
        evidence.canary(_scored(Arm.CANARY, None, None if large is None else large + 5.0))
    evidence.look()
    small, large_told = evidence.told(needed=True)
    assert (small.n, large_told.n) == (0, 1000)
    assert evidence.has_failed
    assert large_told.why == "the scores are shown to be others although the stage is the same"
    restored = DriftEvidence(0.25, 0.002, {})
    restored.restore(evidence.state())
    assert list(restored.told(needed=True)) == list(evidence.told(needed=True))


def test_scores_that_differ_as_chance_may_say_so() -> None:
    """Neither outcome has a sentence too."""
    rng = np.random.default_rng(2)
    evidence = DriftEvidence(0.001, 0.002, {StageName.LARGE: "another"})
    for _ in range(1000):
        evidence.stable(_scored(Arm.STABLE, float(rng.normal())))
        evidence.canary(_scored(Arm.CANARY, float(rng.normal())))
    evidence.look()
    told = next(iter(evidence.told(needed=True)))
    assert told.why == "the scores differ at 1000 of each release, and no more than chance or units of traffic may do"


def test_alpha_is_shared_out_among_all_tests() -> None:
    """Five guardrails at three steps, ranking loss at three and by judged queries, drift of two stages: 21."""
    assert harm_alpha(RolloutRules()) == pytest.approx(0.05 / 21)
    assert harm_alpha(RolloutRules(steps=(0.0, 5.0, 100.0))) == pytest.approx(0.05 / (5 + 2 + 1 + 2))
    none = dict.fromkeys(GuardrailLimits.model_fields)
    assert harm_alpha(RolloutRules(guardrails=GuardrailLimits(**none))) == 0.05
    assert canary_steps(RolloutRules(steps=(0.0, 5.0, 100.0))) == [1]
    assert sum(look_alpha(0.05, look) for look in range(1, 10_000)) == pytest.approx(0.05, rel=1e-3)


def test_a_watch_that_was_restored_still_knows_whose_scores_it_has() -> None:
    """Those of one unit are worth one score after a restart too."""
    first, second, third = (DriftWatch(0.25, 0.002) for _ in range(3))
    for number in range(1000):
        for watch in (first, third):
            watch.stable(0.0, number)
            watch.canary(1.0, None if watch is third else 1)
    second.restore(orjson.loads(orjson.dumps(first.state())))
    for watch in (first, second, third):
        watch.look()
    assert (first.verdict, third.verdict) == (GuardrailVerdict.INCONCLUSIVE, GuardrailVerdict.FAIL)
    assert second.state() == first.state()
