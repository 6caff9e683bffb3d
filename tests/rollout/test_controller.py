"""What becomes of a candidate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import RolloutRules
from cascade.rollout.controller import RolloutController, RolloutVerdict
from cascade.rollout.guardrails import GuardrailVerdict, Observed
from cascade.types import Arm

_OFF = {"ranking_loss": None, "drift_psi": None}
_QUICK: dict[str, Any] = {"steps": [10, 50, 100], "min_queries": 10, "min_seconds": 5, "warm_up": 0}
_STABLE = Observed(Arm.STABLE, cost=0.5, small_top=1.0, large_top=1.0)
_CANARY = Observed(Arm.CANARY, cost=0.5, small_top=1.0, large_top=1.0)
_WRONG = Observed(Arm.CANARY, error=True, cost=0.5)


def _rules(**changed: Any) -> RolloutRules:
    return RolloutRules.model_validate(_QUICK | changed)


def _controller(rules: RolloutRules | None = None, **given: Any) -> RolloutController:
    known: dict[str, Any] = {"large_changed": False, "small_changed": False, "has_gold": False, "started_at": 0.0}
    return RolloutController(rules or _rules(guardrails=_OFF), **(known | given))


def _answer(controller: RolloutController, count: int, canary: Observed = _CANARY) -> None:
    for _ in range(count):
        controller.observe(_STABLE)
        controller.observe(canary)


def test_a_like_release_goes_through_the_steps_with_evidence_at_each() -> None:
    """Answers and time are both needed, anew at each step; after the last it is complete, and stays so."""
    controller = _controller()
    assert (controller.share, controller.step) == (0.1, 0)
    _answer(controller, 700)
    assert controller.tick(4.0) is RolloutVerdict.HOLD
    assert controller.told()["waits_for"] == ["time: 4 s of 5"]
    assert controller.tick(5.0) is RolloutVerdict.ADVANCE
    assert (controller.share, controller.step) == (0.5, 1)
    assert controller.tick(20.0) is RolloutVerdict.HOLD
    assert controller.told()["waits_for"][:2] == [
        "answers of the candidate: 0 of 10",
        "answers of the stable release to compare with",
    ]
    _answer(controller, 700)
    assert controller.tick(21.0) is RolloutVerdict.COMPLETE
    assert (controller.share, controller.is_complete) == (1.0, True)
    _answer(controller, 100, _WRONG)
    assert controller.tick(22.0) is RolloutVerdict.COMPLETE
    assert controller.told() == {"guardrails": [], "waits_for": [], "promoted_without_evidence": []}


def test_callers_who_leave_are_no_answers_and_are_told_of() -> None:
    """A candidate that answers nobody in time for impatient callers would else hold without a word of why."""
    controller = _controller()
    _answer(controller, 3, Observed(Arm.CANARY, left=True))
    controller.observe(Observed(Arm.STABLE, left=True))
    controller.tick(5.0)
    told = controller.told()["waits_for"][0]
    assert told == "answers of the candidate: 0 of 10; 3 callers of it left before theirs, of the stable release 1 of 4"
    _answer(controller, 700)
    assert controller.tick(6.0) is RolloutVerdict.ADVANCE
    assert "left" not in controller.told()["waits_for"][0]


def test_a_breach_rolls_back_at_once_and_for_good() -> None:
    """No least number of answers and no time is waited for; what is shown is told."""
    controller = _controller()
    _answer(controller, 10, _WRONG)
    assert controller.failed
    assert controller.tick(0.1) is RolloutVerdict.ROLL_BACK
    _answer(controller, 1000)
    assert controller.tick(100.0) is RolloutVerdict.ROLL_BACK
    failed = [one for one in controller.guardrails() if one.verdict is GuardrailVerdict.FAIL]
    assert [(one.name.value, one.why) for one in failed] == [("errors", "it is shown to be beyond its limit")]
    with pytest.raises(ConfigError, match="a guardrail has failed"):
        controller.promote(101.0)


def test_little_traffic_is_inconclusive_and_never_promoted_by_itself() -> None:
    """Time alone shows nothing."""
    controller = _controller(_rules(min_queries=1))
    _answer(controller, 20)
    assert controller.tick(1e6) is RolloutVerdict.HOLD
    told = controller.told()
    assert {one["verdict"] for one in told["guardrails"] if one["needed"]} == {"inconclusive"}
    assert "errors: 20 comparisons; a pass needs 664 at least, where nothing differs" in told["waits_for"]


def test_an_operator_may_go_on_without_evidence_and_it_is_kept_that_it_was_so() -> None:
    """Each step that was left so is told by its place."""
    controller = _controller()
    controller.promote(1.0)
    assert (controller.step, controller.share, controller.tick(2.0)) == (1, 0.5, RolloutVerdict.HOLD)
    controller.promote(3.0)
    assert controller.tick(3.0) is RolloutVerdict.COMPLETE
    assert controller.told()["promoted_without_evidence"] == [0, 1]
    with pytest.raises(ConfigError, match="all of the traffic"):
        controller.promote(4.0)


def test_a_step_that_is_left_early_with_all_evidence_is_none_without() -> None:
    """Time and the number of answers are not waited for; every guardrail has passed."""
    controller = _controller(_rules(guardrails=_OFF, min_queries=5000))
    _answer(controller, 700)
    controller.promote(1.0)
    assert (controller.step, controller.told()["promoted_without_evidence"]) == (1, [])


def test_a_release_that_is_scored_beside_only_holds_for_ever() -> None:
    """Its only step is 0; arms are not compared, and no step comes after."""
    controller = _controller(_rules(steps=[0], guardrails={"drift_psi": None}))
    for _ in range(400):
        controller.observe_pair(0.0)
    _answer(controller, 100, _WRONG)
    assert controller.tick(1000.0) is RolloutVerdict.HOLD
    told = controller.told()
    assert told["waits_for"] == ["an operator: the release names no step after this one"]
    assert [(one["name"], one["verdict"]) for one in told["guardrails"]] == [("ranking_loss", "pass")]
    with pytest.raises(ConfigError, match="names no step after"):
        controller.promote(1001.0)


def test_a_first_step_of_zero_needs_pairs_and_not_answers() -> None:
    """There `min_queries` counts pairs; where ranking loss is off, time is all."""
    rules = _rules(steps=[0, 50, 100], min_queries=400, guardrails={"drift_psi": None})
    controller = _controller(rules)
    for _ in range(399):
        controller.observe_pair(0.0)
    assert controller.tick(10.0) is RolloutVerdict.HOLD
    assert controller.told()["waits_for"] == ["pairs scored beside: 399 of 400"]
    controller.observe_pair(0.0)
    assert controller.tick(11.0) is RolloutVerdict.ADVANCE
    assert _controller(_rules(steps=[0, 50, 100], guardrails=_OFF)).tick(5.0) is RolloutVerdict.ADVANCE


def test_a_first_step_of_zero_needs_no_pairs_where_judged_queries_decide() -> None:
    """Where the stable release has no stage that could judge, none ever comes."""
    rules = _rules(steps=[0, 50, 100], guardrails={"drift_psi": None})
    controller = _controller(rules, large_changed=True, has_gold=True)
    assert controller.tick(10.0) is RolloutVerdict.HOLD
    for _ in range(332):
        controller.observe_gold(0.0)
    assert controller.tick(11.0) is RolloutVerdict.ADVANCE


def test_ranking_loss_fails_at_any_step() -> None:
    """Ten pairs that lose everything are enough."""
    controller = _controller(_rules(guardrails={"drift_psi": None}))
    for _ in range(10):
        controller.observe_pair(1.0)
    assert controller.tick(1.0) is RolloutVerdict.ROLL_BACK


def test_harm_in_ranking_is_asked_anew_at_each_step_and_a_pass_goes_on() -> None:
    """What a step showed against the candidate, short of its limit, is not held against it at the next one."""
    controller = _controller(_rules(guardrails=_OFF | {"ranking_loss": 0.01}))
    for loss in [0.5, *[-0.1] * 40]:
        controller.observe_pair(loss)
    before = next(one for one in controller.guardrails() if one.name.value == "ranking_loss")
    assert before.p_harm is not None
    assert before.p_harm < 1.0
    controller.promote(1.0)
    after = next(one for one in controller.guardrails() if one.name.value == "ranking_loss")
    assert (after.p_harm, after.p_pass, after.n) == (1.0, before.p_pass, 41)


def test_another_large_stage_without_judged_queries_is_inconclusive() -> None:
    """Whatever the pairs say; it says why, and only an operator goes on."""
    controller = _controller(_rules(guardrails={"drift_psi": None}), large_changed=True)
    _answer(controller, 1000)
    for loss in (0.0, 1.0):
        for _ in range(1000):
            controller.observe_pair(loss)
    assert controller.tick(100.0) is RolloutVerdict.HOLD
    [waits] = controller.told()["waits_for"]
    assert waits.startswith("ranking_loss: the stable large stage cannot judge the candidate's order")
    assert waits.endswith("without judged queries an operator must look and promote")
    controller.observe_gold(1.0)
    assert "gold_loss" not in [one.name.value for one in controller.guardrails()]
    controller.promote(101.0)
    assert controller.step == 1


def test_judged_queries_decide_where_pairs_cannot() -> None:
    """With another large stage they are needed, and pairs are not; they pass or fail by the same limit."""
    rules = _rules(guardrails={"drift_psi": None})
    controller = _controller(rules, large_changed=True, has_gold=True)
    _answer(controller, 1000)
    assert controller.tick(10.0) is RolloutVerdict.HOLD
    for _ in range(332):
        controller.observe_gold(0.0)
    assert controller.tick(11.0) is RolloutVerdict.ADVANCE
    worse = _controller(rules, large_changed=True, has_gold=True)
    for _ in range(10):
        worse.observe_gold(1.0)
    assert worse.tick(1.0) is RolloutVerdict.ROLL_BACK


@pytest.mark.parametrize("has_gold", [False, True])
def test_where_nothing_is_scored_beside_judged_queries_decide_or_an_operator(has_gold: bool) -> None:
    """With a share of 0 no pair ever comes: it says so, and is not waited for where something else can tell."""
    controller = _controller(_rules(guardrails={"drift_psi": None}, shadow={"share": 0}), has_gold=has_gold)
    _answer(controller, 1000)
    told = {one.name.value: one for one in controller.guardrails()}
    assert "rollout.shadow.share is 0" in told["ranking_loss"].why
    assert told["ranking_loss"].needed is not has_gold
    assert controller.tick(10.0) is RolloutVerdict.HOLD
    for _ in range(332):
        controller.observe_gold(0.0)
    assert controller.tick(11.0) is (RolloutVerdict.ADVANCE if has_gold else RolloutVerdict.HOLD)


def test_judged_queries_are_not_waited_for_where_pairs_can_tell_and_fail_all_the_same() -> None:
    """A handful of them cannot pass; what they show to be worse is worse."""
    controller = _controller(_rules(guardrails={"drift_psi": None}), has_gold=True)
    told = {one.name.value: one.needed for one in controller.guardrails()}
    assert (told["ranking_loss"], told["gold_loss"]) == (True, False)
    for _ in range(10):
        controller.observe_gold(1.0)
    assert controller.failed


def test_drift_is_waited_for_before_the_last_step_only_and_fails_at_any() -> None:
    """Its scores gather over all steps."""
    rules = _rules(guardrails={"ranking_loss": None})
    controller = _controller(rules)
    _answer(controller, 700)
    assert controller.tick(10.0) is RolloutVerdict.ADVANCE
    _answer(controller, 299)
    assert "drift_small: 999 scores of each release; 1000 are needed" in controller.told()["waits_for"]
    _answer(controller, 400)
    assert controller.tick(20.0) is RolloutVerdict.COMPLETE
    moved = _controller(rules)
    for turn in range(1000):
        moved.observe(Observed(Arm.STABLE, small_top=turn % 10))
        moved.observe(Observed(Arm.CANARY, small_top=5 + turn % 10))
    assert moved.tick(1.0) is RolloutVerdict.ROLL_BACK


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"small_changed": True}, ("the stage is another", "other candidates")),
        ({"large_changed": True}, (None, "the stage is another")),
        ({"depth_changed": True}, ("other candidates", "other candidates")),
        ({"escalation_changed": True}, (None, "other candidates")),
    ],
)
def test_drift_is_asked_only_of_a_stage_that_scores_the_same(
    given: dict[str, bool], why: tuple[str | None, str | None]
) -> None:
    """Another stage, and other candidates for it, move scores without anything being wrong."""
    controller = _controller(_rules(guardrails={"ranking_loss": None}), **given)
    told = [one for one in controller.guardrails() if one.name.value.startswith("drift")]
    for one, expected in zip(told, why, strict=True):
        assert (expected or "1000 are needed") in one.why


def test_what_the_shadow_scored_is_no_answer() -> None:
    """Its requests are in nobody's rates."""
    controller = _controller()
    for _ in range(100):
        controller.observe(Observed(Arm.SHADOW, error=True))
    assert controller.tick(1.0) is RolloutVerdict.HOLD
    assert {one.n for one in controller.guardrails()} == {0}


def test_the_warm_up_is_once_and_not_at_each_step() -> None:
    """What is left of it goes on to the next step; more than that does not."""
    controller = _controller(_rules(warm_up=15, guardrails=_OFF))
    late = Observed(Arm.CANARY, late=True)
    _answer(controller, 10, late)
    controller.promote(1.0)
    _answer(controller, 10, late)
    told = next(one for one in controller.guardrails() if one.name.value == "late")
    assert (told.n, told.canary) == (5, 1.0)


def test_after_a_restart_the_first_answers_may_be_late_again() -> None:
    """Its caches and connections are cold again: fifteen of a warm-up of fifteen are let be, and what comes after is not."""
    rules = _rules(warm_up=15, guardrails=_OFF)
    given = {"large_changed": False, "small_changed": False, "has_gold": False}
    late = Observed(Arm.CANARY, late=True)
    before = _controller(rules)
    _answer(before, 40)
    after = RolloutController.restored(before.state(), rules, now=0.0, **given)
    _answer(after, 15, late)
    assert after.tick(1.0) is RolloutVerdict.HOLD
    told = next(one for one in after.guardrails() if one.name.value == "late")
    assert (told.n, told.canary) == (25, 0.0)
    _answer(after, 30, late)
    assert after.tick(2.0) is RolloutVerdict.ROLL_BACK


def test_time_that_runs_backwards_is_no_time() -> None:
    """A clock that jumps back neither ends a step nor begins it anew."""
    controller = _controller()
    _answer(controller, 700)
    assert controller.tick(4.0) is RolloutVerdict.HOLD
    assert controller.tick(-100.0) is RolloutVerdict.HOLD
    assert controller.tick(5.0) is RolloutVerdict.ADVANCE


def test_after_a_restart_it_goes_on_from_where_it_was() -> None:
    """Its state is JSON; the same answers lead to the same, and the time that it was away does not count."""
    rules = _rules(warm_up=3)
    given = {"large_changed": False, "small_changed": False, "has_gold": True}
    first = RolloutController(rules, started_at=0.0, **given)
    first.promote(1.0)
    _answer(first, 300)
    for _ in range(500):
        first.observe_pair(0.001)
        first.observe_gold(0.0)
    first.tick(3.0)
    state = json.loads(json.dumps(first.state()))
    second = RolloutController.restored(state, rules, now=1000.0, **given)
    assert (second.step, second.promoted, second.told()) == (1, (0,), first.told())
    for controller, now in ((first, 6.5), (second, 1003.5)):
        _answer(controller, 900)
        assert controller.tick(now - 1.0) is RolloutVerdict.HOLD
        assert controller.tick(now) is RolloutVerdict.COMPLETE
    assert second.told() == first.told()


def test_a_breach_is_still_one_after_a_restart() -> None:
    """A crash between the verdict and the traffic does not forgive it."""
    controller = _controller(_rules(guardrails={"late": None, **_OFF}))
    _answer(controller, 10, _WRONG)
    given = {"large_changed": False, "small_changed": False, "has_gold": False}
    restored = RolloutController.restored(controller.state(), controller.rules, now=0.0, **given)
    assert restored.tick(0.1) is RolloutVerdict.ROLL_BACK


@pytest.mark.parametrize(
    "changed",
    [
        {"format": "cascade-rollout/0"},
        {"step": 7},
        {"step": -1},
        {"arms": None},
        {"ranking": [[1.0]]},
        {"seconds": "long"},
        {"drift": {}},
    ],
)
def test_a_state_that_is_none_is_refused(changed: dict[str, Any]) -> None:
    """It is told, so that whoever keeps it begins anew, and never half taken up."""
    rules = _rules()
    given = {"large_changed": False, "small_changed": False, "has_gold": False}
    state = RolloutController(rules, started_at=0.0, **given).state()
    with pytest.raises(ConfigError, match="rollout: the state"):
        RolloutController.restored(state | changed, rules, now=0.0, **given)
