"""Say what becomes of a candidate: hold, advance, roll back or complete. Pure; time comes as an argument."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, Self

from cascade.errors import ConfigError
from cascade.policy.release import RolloutRules
from cascade.rollout.guardrails.arm_comparison import ArmComparison
from cascade.rollout.guardrails.drift_evidence import DriftEvidence
from cascade.rollout.guardrails.names import GuardrailName, GuardrailVerdict
from cascade.rollout.guardrails.observed import Observed
from cascade.rollout.guardrails.ranking_evidence import RankingEvidence
from cascade.rollout.guardrails.spending import harm_alpha
from cascade.rollout.guardrails.told import Told
from cascade.types import Arm, StageName

__all__ = ["RolloutController", "RolloutVerdict"]

_FORMAT: Final = "cascade-rollout/1"
_NO_JUDGE: Final = "the stable large stage cannot judge the candidate's order, as the candidate has another, it orders lists, or there is none"
_NO_PAIRS: Final = "nothing is scored beside answers, as rollout.shadow.share is 0"
_NO_GOLD: Final = "; without judged queries an operator must look and promote"
_OTHER_STAGE: Final = "not compared: the stage is another, orders lists, or there is none"
_OTHER_CANDIDATES: Final = "not compared: the releases send other candidates to the stage"


class RolloutVerdict(StrEnum):
    """What becomes of a candidate. The list is closed."""

    HOLD = "hold"
    ADVANCE = "advance"
    ROLL_BACK = "roll_back"
    COMPLETE = "complete"


class RolloutController:
    """Lead a candidate through the steps of its release.

    ``large_changed`` says that the stable large stage cannot judge the candidate's order (`guardrails.changes` tells all
    four). ``started_at`` and ``now`` are seconds of one clock.

    A step is left when every guardrail that is needed passes, and enough answers and time are behind it. A guardrail
    that fails ends it, at any time. What is inconclusive holds.
    """

    def __init__(
        self,
        rules: RolloutRules,
        *,
        large_changed: bool,
        small_changed: bool,
        has_gold: bool,
        started_at: float,
        depth_changed: bool = False,
        escalation_changed: bool = False,
    ) -> None:
        self.rules = rules
        self.step = 0
        self.promoted: tuple[int, ...] = ()
        self._alpha = harm_alpha(rules)
        self._since = self._now = started_at
        self._warm_up = rules.warm_up
        self._arms = self._comparison()
        self._has_canary = self._compares()
        limits = rules.guardrails
        self._ranking: RankingEvidence | None = None
        self._gold: RankingEvidence | None = None
        if limits.ranking_loss is not None:
            loss, alphas = limits.ranking_loss, (self._alpha, rules.alpha)
            cannot = _NO_JUDGE if large_changed else None if rules.shadow.share else _NO_PAIRS
            why = None if cannot is None else cannot if has_gold else cannot + _NO_GOLD
            by_gold = has_gold and cannot is not None
            self._ranking = RankingEvidence(GuardrailName.RANKING_LOSS, loss, *alphas, needed=not by_gold, cannot=why)
            if has_gold:
                self._gold = RankingEvidence(GuardrailName.GOLD_LOSS, loss, *alphas, needed=by_gold)
        self._drift: DriftEvidence | None = None
        if limits.drift_psi is not None:
            other = {
                StageName.SMALL: depth_changed,
                StageName.LARGE: depth_changed or escalation_changed or small_changed,
            }
            not_compared = {stage: _OTHER_CANDIDATES for stage, differs in other.items() if differs}
            changed = ((StageName.SMALL, small_changed), (StageName.LARGE, large_changed))
            not_compared |= {stage: _OTHER_STAGE for stage, differs in changed if differs}
            self._drift = DriftEvidence(limits.drift_psi, self._alpha, not_compared)

    @property
    def share(self) -> float:
        """Return the candidate's share of the traffic at this step, 0 to 1."""
        return self.rules.steps[self.step] / 100.0

    @property
    def failed(self) -> bool:
        """Tell whether a guardrail has failed: cheap enough to ask after each answer."""
        return (
            self._arms.has_failed
            or (self._ranking is not None and self._ranking.has_failed)
            or (self._gold is not None and self._gold.has_failed)
            or (self._drift is not None and self._drift.has_failed)
        )

    @property
    def is_complete(self) -> bool:
        """Tell whether the candidate has all of the traffic."""
        return self.rules.steps[self.step] == 100

    def observe(self, observed: Observed) -> None:
        """Take one decided request of an arm. What the shadow scored is no answer, and counts by its pair alone."""
        if not self._has_canary:
            return
        if observed.arm is Arm.STABLE:
            self._arms.stable(observed)
            if self._drift is not None:
                self._drift.stable(observed)
        elif observed.arm is Arm.CANARY:
            self._arms.canary(observed)
            if self._drift is not None:
                self._drift.canary(observed)

    def observe_pair(self, loss: float) -> None:
        """Take the ranking loss of a pair scored beside, in [-1, 1], above 0 where the candidate is worse.

        Raises ConfigError for another number.
        """
        if self._ranking is not None:
            self._ranking.add(loss)

    def pair_left_out(self, outcome: str) -> None:
        """Take note of a request in the shadow's sample that gave no pair, by what became of it."""
        if self._ranking is not None:
            self._ranking.left_out(outcome)

    def observe_gold(self, loss: float) -> None:
        """Take the ranking loss on a judged query, in [-1, 1]. Raises ConfigError for another number."""
        if self._gold is not None:
            self._gold.add(loss)

    def tick(self, now: float) -> RolloutVerdict:
        """Look at what is shown by ``now``. After ADVANCE, ``share`` and ``step`` are the next ones."""
        self._now = max(self._now, now)
        if self._drift is not None:
            self._drift.look()
        if self.is_complete:
            return RolloutVerdict.COMPLETE
        if self.failed:
            return RolloutVerdict.ROLL_BACK
        if self._is_last or any(self._waits()):
            return RolloutVerdict.HOLD
        return self._go_on()

    def promote(self, now: float) -> None:
        """Go on to the next step as it stands; where that is without evidence, it is kept that it was so.

        Raises ConfigError where a guardrail has failed and where there is no next step.
        """
        if self.failed:
            raise ConfigError("a guardrail has failed: the release is rolled back, not promoted")
        if self._is_last:
            raise ConfigError(
                "the release has all of the traffic" if self.is_complete else "the release names no step after this one"
            )
        self._now = max(self._now, now)
        if any(self._unshown()):
            self.promoted = (*self.promoted, self.step)
        self._go_on()

    def guardrails(self) -> list[Told]:
        """Return what each guardrail says that is not switched off. At a step without a canary its arms are silent."""
        return list(self._told())

    def told(self) -> dict[str, Any]:
        """Return the guardrails with their numbers, and in sentences what the step waits for."""
        return {
            "guardrails": [one.as_data() for one in self._told()],
            "waits_for": list(self._waits()),
            "promoted_without_evidence": list(self.promoted),
        }

    def state(self) -> dict[str, Any]:
        """Return all of it as plain data for JSON, to be restored after a restart; time as seconds at the step."""
        return {
            "format": _FORMAT,
            "step": self.step,
            "seconds": self._now - self._since,
            "promoted": list(self.promoted),
            "arms": self._arms.state(),
            "ranking": None if self._ranking is None else self._ranking.state(),
            "gold": None if self._gold is None else self._gold.state(),
            "drift": None if self._drift is None else self._drift.state(),
        }

    @classmethod
    def restored(
        cls,
        state: Mapping[str, Any],
        rules: RolloutRules,
        *,
        large_changed: bool,
        small_changed: bool,
        has_gold: bool,
        now: float,
        depth_changed: bool = False,
        escalation_changed: bool = False,
    ) -> Self:
        """Return the controller that `state` was told by, going on ``now``. The time between does not count.

        Raises ConfigError for a state that is none, or not of these rules.
        """
        made = cls(
            rules,
            large_changed=large_changed,
            small_changed=small_changed,
            has_gold=has_gold,
            started_at=now,
            depth_changed=depth_changed,
            escalation_changed=escalation_changed,
        )
        try:
            if state["format"] != _FORMAT or not 0 <= state["step"] < len(rules.steps):
                raise ConfigError("rollout: the state is of another format or of other steps")
            made._restore(state)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise ConfigError("rollout: the state cannot be read") from None
        return made

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.step = int(state["step"])
        self._since = self._now - float(state["seconds"])
        self.promoted = tuple(map(int, state["promoted"]))
        self._warm_up = self.rules.warm_up + int(state["arms"]["answers"][2])  # caches and connections are cold again
        self._arms = self._comparison()
        self._arms.restore(state["arms"])
        self._has_canary = self._compares()
        for evidence, kept in ((self._ranking, state["ranking"]), (self._gold, state["gold"])):
            if evidence is not None:
                evidence.restore(kept)
        if self._drift is not None:
            self._drift.restore(state["drift"])

    @property
    def _is_last(self) -> bool:
        return self.step == len(self.rules.steps) - 1

    def _compares(self) -> bool:
        """Tell whether both releases answer at this step."""
        return 0.0 < self.share < 1.0

    def _comparison(self) -> ArmComparison:
        return ArmComparison(self.rules.guardrails, self._alpha, self.rules.alpha, self._warm_up)

    def _go_on(self) -> RolloutVerdict:
        """Begin the next step, and say what that is. What depends on load begins anew: a larger share is another load."""
        self._warm_up -= self._arms.warm_answers
        self.step += 1
        self._since = self._now
        self._arms = self._comparison()
        self._has_canary = self._compares()
        if self._ranking is not None:
            self._ranking.next_step()
        return RolloutVerdict.COMPLETE if self.is_complete else RolloutVerdict.ADVANCE

    def _told(self) -> Iterator[Told]:
        if self._has_canary:
            yield from self._arms.told()
        for evidence in (self._ranking, self._gold):
            if evidence is not None:
                yield evidence.told()
        if self._drift is not None:
            # Scores gather over all steps, and rarely asked stages have few: they are needed before the last one only.
            yield from self._drift.told(needed=self.rules.steps[self.step + 1 :] == (100,))

    def _waits(self) -> Iterator[str]:
        """Say what the step still waits for; the cheapest to tell comes first."""
        if self._is_last:
            if not self.is_complete:
                yield "an operator: the release names no step after this one"
            return
        rules = self.rules
        seconds = self._now - self._since
        if seconds < rules.min_seconds:
            yield f"time: {seconds:.0f} s of {rules.min_seconds:g}"
        if self._has_canary:
            if self._arms.canary_answers < rules.min_queries:
                yield f"answers of the candidate: {self._arms.canary_answers} of {rules.min_queries}{self._arms.who_left()}"
            if not self._arms.stable_answers:
                yield "answers of the stable release to compare with"
        elif self._ranking is not None and self._ranking.decides and self._ranking.step_count < rules.min_queries:
            yield f"pairs scored beside: {self._ranking.step_count} of {rules.min_queries}"
        yield from (f"{one.name.value}: {one.why}" for one in self._unshown())

    def _unshown(self) -> Iterator[Told]:
        """Return what each guardrail says that has to pass and has not."""
        return (one for one in self._told() if one.needed and one.verdict is not GuardrailVerdict.PASS)
