"""Hold the canary's answers against the stable release's, at one step of a rollout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cascade.policy.release import GuardrailLimits
from cascade.rollout.guardrails.names import GuardrailName, GuardrailVerdict
from cascade.rollout.guardrails.observed import Observed
from cascade.rollout.guardrails.told import Told, verdict_of, why_of
from cascade.rollout.guardrails.unit_spread import UnitSpread
from cascade.rollout.guardrails.wager import Wager, least_to_pass

__all__ = ["ArmComparison"]

_LATE: Final = 0
_FALLBACK: Final = 1
_COST: Final = 4
_NAMES: Final = (
    GuardrailName.LATE,
    GuardrailName.FALLBACK,
    GuardrailName.ERRORS,
    GuardrailName.ESCALATION,
    GuardrailName.COST,
)
"""In the order of the sums below; the first two do not count answers of the warm-up."""
_FREE: Final = "no request of either release has cost anything"
_BY_UNITS: Final = (
    "the candidate is beyond its limit, but not shown to be by more than units of traffic differ by themselves: they may be few and "
    "unlike; an operator must look"
)
_LOOK_AGAIN: Final = 64
"""Answers of the canary between looks at units: each takes a while."""
_ZEROS: Final = (0.0, 0.0, 0.0, 0.0, 0.0)


class ArmComparison:
    """Pair answers of the two releases, and wager on the differences.

    A pair is made as soon as both releases have answered since the last pair: D is the mean of the canary's answers in
    it minus the mean of the stable release's. With a small share that is one answer of the canary against all stable
    ones since the last; with a large one, answers of the canary wait for one of the stable release. So both sides of a
    D are of the same moments, every answer counts once, and whatever changes for both releases alike cancels. Where both
    answer alike, E[D] is 0 whichever answers were dealt to whom.

    Where that shows harm it must also be more than the units of traffic differ by themselves (`UnitSpread`). What is known
    of those is gone after `restore`: then harm must also be shown by what came since, the same that tells of the units.

    The cost of the canary is held against (1 + limit) times the stable one's; that difference, over (1 + limit), is in
    [-1, 1].
    """

    def __init__(self, limits: GuardrailLimits, harm_alpha: float, pass_alpha: float, warm_up: int) -> None:
        self._limits = (limits.late, limits.fallback, limits.errors, limits.escalation, limits.cost)
        self._alphas = harm_alpha, pass_alpha
        self._wagers = self._begun()
        self._since = self._wagers
        self._cost_factor = 1.0 + (limits.cost or 0.0)
        self._warm_up = warm_up
        self._stable_new = self._canary_new = self._warm_new = 0
        self._stable_sums, self._canary_sums = list(_ZEROS), list(_ZEROS)
        self._stable_told, self._canary_told = list(_ZEROS), list(_ZEROS)
        self.stable_answers = self.canary_answers = self.warm_answers = 0
        self._stable_left = self._canary_left = 0
        self._units = UnitSpread()
        self._failed: set[int] = set()
        self._looked: dict[int, int] = {}

    @property
    def has_failed(self) -> bool:
        """Tell whether harm is shown."""
        return bool(self._failed)

    def stable(self, observed: Observed) -> None:
        """Take an answer of the stable release, or count a caller who left before it."""
        if observed.left:
            self._stable_left += 1
            return
        self.stable_answers += 1
        self._stable_new += 1
        self._units.stable(observed)
        sums = self._stable_sums
        if observed.late:
            sums[0] += 1.0
        if observed.fallback:
            sums[1] += 1.0
        if observed.error:
            sums[2] += 1.0
        sums[3] += observed.escalated_share
        sums[4] += observed.cost
        if self._canary_new:
            self._pair()

    def canary(self, observed: Observed) -> None:
        """Take an answer of the canary, or count a caller who left before it.

        The first answers may be late or degraded: they are left out of these two.
        """
        if observed.left:
            self._canary_left += 1
            return
        self.canary_answers += 1
        self._canary_new += 1
        sums = self._canary_sums
        is_warm = self.warm_answers < self._warm_up
        self._units.canary(observed, warm=is_warm)
        if is_warm:
            self.warm_answers += 1
            self._warm_new += 1
        else:
            if observed.late:
                sums[0] += 1.0
            if observed.fallback:
                sums[1] += 1.0
        if observed.error:
            sums[2] += 1.0
        sums[3] += observed.escalated_share
        sums[4] += observed.cost
        if self._stable_new:
            self._pair()

    def _pair(self) -> None:
        stable_count, canary_count, counted = self._stable_new, self._canary_new, self._canary_new - self._warm_new
        stable, canary = self._stable_sums, self._canary_sums
        for place, (wager, since) in enumerate(zip(self._wagers, self._since, strict=True)):
            self._stable_told[place] += stable[place]
            self._canary_told[place] += canary[place]
            if wager is None or since is None:
                continue
            count = counted if place <= _FALLBACK else canary_count
            if not count:
                continue
            before = stable[place] / stable_count
            now = canary[place] / count
            difference = (now / self._cost_factor if place == _COST else now) - before
            wager.add(difference)
            if since is not wager:
                since.add(difference)
            if wager.shows_harm and since.shows_harm and place not in self._failed:
                self._look_at_units(place)
        self._stable_sums, self._canary_sums = list(_ZEROS), list(_ZEROS)
        self._stable_new = self._canary_new = self._warm_new = 0

    def _begun(self) -> tuple[Wager | None, ...]:
        return tuple(
            None if limit is None else Wager(0.0 if place == _COST else limit, *self._alphas)
            for place, limit in enumerate(self._limits)
        )

    def _look_at_units(self, place: int) -> None:
        """Let a guardrail fail of which harm is shown, where the release must be at fault."""
        looked = self._looked.get(place)
        if looked is not None and self.canary_answers < looked + _LOOK_AGAIN:
            return
        self._looked[place] = self.canary_answers
        limit, factor = (0.0, self._cost_factor) if place == _COST else (self._limits[place] or 0.0, 1.0)
        if self._units.is_exceeded(place, limit, factor):
            self._failed.add(place)

    def who_left(self) -> str:
        """Return what to say of callers who left before the canary's answer, nothing where there were none."""
        if not self._canary_left:
            return ""
        of_stable = f"{self._stable_left} of {self._stable_left + self.stable_answers}"
        return f"; {self._canary_left} callers of it left before theirs, of the stable release {of_stable}"

    def told(self) -> Iterator[Told]:
        """Return what each guardrail says that is not switched off."""
        for place, (name, limit, wager) in enumerate(zip(_NAMES, self._limits, self._wagers, strict=True)):
            if limit is None or wager is None:
                continue
            stable, canary = self._means(place)
            verdict = verdict_of(wager, by_release=place in self._failed)
            free = place == _COST and not (stable or canary)
            yield Told(
                name=name,
                verdict=verdict,
                needed=not (free and wager.count),
                n=wager.count,
                stable=stable,
                canary=canary,
                difference=self._difference(place, stable, canary),
                limit=limit,
                p_harm=wager.p_harm,
                p_pass=wager.p_pass,
                harm_alpha=self._alphas[0],
                pass_alpha=self._alphas[1],
                why=_FREE if free and wager.count else self._why(place, wager, verdict, stable),
            )

    def _why(self, place: int, wager: Wager, verdict: GuardrailVerdict, stable: float | None) -> str:
        if wager.shows_harm and place not in self._failed:
            return _BY_UNITS
        return why_of(verdict, wager.count, self._least(place, stable))

    def _means(self, place: int) -> tuple[float | None, float | None]:
        """Return the mean of each release over all its answers at this step, those without a pair among them."""
        counted = self.canary_answers - (self.warm_answers if place <= _FALLBACK else 0)
        stable = self._stable_told[place] + self._stable_sums[place]
        canary = self._canary_told[place] + self._canary_sums[place]
        return (
            stable / self.stable_answers if self.stable_answers else None,
            canary / counted if counted else None,
        )

    def _difference(self, place: int, stable: float | None, canary: float | None) -> float | None:
        if stable is None or canary is None:
            return None
        if place != _COST:
            return canary - stable
        return canary / stable - 1.0 if stable else None

    def _least(self, place: int, stable: float | None) -> int | None:
        """Return how many differences a pass needs where the releases cost, or are late, alike and always the same."""
        limit = self._limits[place] or 0.0
        if place == _COST:
            limit *= (1.0 if stable is None else stable) / self._cost_factor
        return least_to_pass(limit, self._alphas[1])

    def state(self) -> dict[str, Any]:
        """Return all of it as plain data, but what is known of units and who left: of that a restart begins anew."""
        return {
            "wagers": [None if wager is None else wager.state() for wager in self._wagers],
            "new": [self._stable_new, self._canary_new, self._warm_new],
            "answers": [self.stable_answers, self.canary_answers, self.warm_answers],
            "sums": [list(self._stable_sums), list(self._canary_sums)],
            "told": [list(self._stable_told), list(self._canary_told)],
            "failed": sorted(self._failed),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        for wager, kept in zip(self._wagers, state["wagers"], strict=True):
            if wager is not None:
                wager.restore(kept)
        self._stable_new, self._canary_new, self._warm_new = map(int, state["new"])
        self.stable_answers, self.canary_answers, self.warm_answers = map(int, state["answers"])
        self._stable_sums, self._canary_sums = (list(map(float, sums)) for sums in state["sums"])
        self._stable_told, self._canary_told = (list(map(float, sums)) for sums in state["told"])
        self._failed = set(map(int, state["failed"]))
        self._since = self._begun()
