"""Whether the best scores of a stage that should be the same have moved."""

from __future__ import annotations

from typing import Any, Final

from cascade.rollout.guardrails.names import GuardrailVerdict
from cascade.rollout.guardrails.spending import look_alpha
from cascade.statistics.drift import ks_distance, ks_p_value, stability_index

__all__ = ["FIRST_LOOK", "DriftWatch"]

FIRST_LOOK: Final = 1000
"""Scores of each release; with fewer the index is noise."""
_MOST: Final = 4000


class DriftWatch:
    """Compare scores of the canary with as many of the stable release, each with the last before it.

    So both samples are of the same times, and a day that changes for both moves neither from the other. It looks at
    1000, 2000 and 4000, then begins anew, so it holds 4000 at most of each. It fails where the stability index is
    above ``limit`` *and* the gap is more than chance (Kolmogorov and Smirnov, with a share of ``alpha`` spent at each
    look): an index alone has no level, and at many scores chance alone rules out any gap, however small.
    """

    def __init__(self, limit: float, alpha: float) -> None:
        self.limit = limit
        self._alpha = alpha
        self._newest: float | None = None
        self._stable: list[float] = []
        self._canary: list[float] = []
        self._next_look = FIRST_LOOK
        self.looks = 0
        self.looked_at = 0
        self.index: float | None = None
        self.p: float | None = None
        self.verdict = GuardrailVerdict.INCONCLUSIVE

    @property
    def count(self) -> int:
        """Return how many scores of each release the next look has so far."""
        return len(self._canary)

    def stable(self, score: float) -> None:
        """Take the best score of an answer of the stable release."""
        self._newest = score

    def canary(self, score: float) -> None:
        """Take the best score of an answer of the canary; it counts if the stable release answered since the last."""
        if self._newest is not None and len(self._canary) < _MOST:
            self._stable.append(self._newest)
            self._canary.append(score)
            self._newest = None

    def look(self) -> None:
        """Compare, if enough is there for the next look. It takes about a millisecond then."""
        if len(self._canary) < self._next_look or self.verdict is GuardrailVerdict.FAIL:
            return
        self.looks += 1
        self.looked_at = len(self._canary)
        self.index = stability_index(self._stable, self._canary)
        self.p = ks_p_value(ks_distance(self._stable, self._canary), self.looked_at)
        moved = self.index > self.limit
        shown = self.p <= look_alpha(self._alpha, self.looks)
        if moved and shown:
            self.verdict = GuardrailVerdict.FAIL
        else:
            self.verdict = GuardrailVerdict.INCONCLUSIVE if moved else GuardrailVerdict.PASS
        self._next_look *= 2
        if self._next_look > _MOST:
            self._next_look = FIRST_LOOK
            self._stable.clear()
            self._canary.clear()

    def state(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "stable": list(self._stable),
            "canary": list(self._canary),
            "next_look": self._next_look,
            "looks": self.looks,
            "looked_at": self.looked_at,
            "index": self.index,
            "p": self.p,
            "verdict": self.verdict.value,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self._stable = [float(score) for score in state["stable"]]
        self._canary = [float(score) for score in state["canary"]]
        self._next_look = int(state["next_look"])
        self.looks = int(state["looks"])
        self.looked_at = int(state["looked_at"])
        self.index, self.p = state["index"], state["p"]
        self.verdict = GuardrailVerdict(state["verdict"])
