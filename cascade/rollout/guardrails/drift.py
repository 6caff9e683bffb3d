"""Whether the best scores of a stage that should be the same have moved."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cascade.rollout.guardrails.names import GuardrailVerdict
from cascade.rollout.guardrails.spending import look_alpha
from cascade.statistics.drift import ks_distance, ks_p_value, stability_index

__all__ = ["FIRST_LOOK", "DriftWatch"]

FIRST_LOOK: Final = 1000
"""Scores of each release; with fewer the index is noise."""
_MOST: Final = 4000


class _Score(NamedTuple):
    """A best score, and the unit of traffic whose request it is of; None where that is not known."""

    value: float
    unit: int | None


class DriftWatch:
    """Compare scores of the canary with as many of the stable release, each with the last before it.

    So both samples are of the same times, and a day that changes for both moves neither from the other. It looks at
    1000, 2000 and 4000, then begins anew, so it holds 4000 at most of each. It fails where the stability index is
    above ``limit`` *and* the gap is more than chance (Kolmogorov and Smirnov, with a share of ``alpha`` spent at each
    look): an index alone has no level, and at many scores chance alone rules out any gap, however small.

    Requests are dealt by unit and stay dealt, and a unit may have scores of its own. So scores count as independent
    only of different units: those of a sample as n^2 / sum n_u^2 (Kish), n_u of each unit, as if all of one were alike.
    """

    def __init__(self, limit: float, alpha: float) -> None:
        self.limit = limit
        self._alpha = alpha
        self._newest: _Score | None = None
        self._stable: list[_Score] = []
        self._canary: list[_Score] = []
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

    def stable(self, score: float, unit: int | None = None) -> None:
        """Take the best score of an answer of the stable release."""
        self._newest = _Score(score, unit)

    def canary(self, score: float, unit: int | None = None) -> None:
        """Take the best score of an answer of the canary; it counts if the stable release answered since the last."""
        if self._newest is not None and len(self._canary) < _MOST:
            self._stable.append(self._newest)
            self._canary.append(_Score(score, unit))
            self._newest = None

    def look(self) -> None:
        """Compare, if enough is there for the next look. It takes about a millisecond then."""
        if len(self._canary) < self._next_look or self.verdict is GuardrailVerdict.FAIL:
            return
        self.looks += 1
        self.looked_at = len(self._canary)
        stable, canary = ([score.value for score in scores] for scores in (self._stable, self._canary))
        self.index = stability_index(stable, canary)
        worth_of_each = 2.0 / (_alike(self._stable) + _alike(self._canary)) / self.looked_at
        self.p = ks_p_value(ks_distance(stable, canary) * math.sqrt(worth_of_each), self.looked_at)
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
            "stable": _columns(self._stable),
            "canary": _columns(self._canary),
            "next_look": self._next_look,
            "looks": self.looks,
            "looked_at": self.looked_at,
            "index": self.index,
            "p": self.p,
            "verdict": self.verdict.value,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self._stable, self._canary = (
            [
                _Score(float(value), None if unit is None else int(unit))
                for value, unit in zip(state[arm]["values"], state[arm]["units"], strict=True)
            ]
            for arm in ("stable", "canary")
        )
        self._next_look = int(state["next_look"])
        self.looks = int(state["looks"])
        self.looked_at = int(state["looked_at"])
        self.index, self.p = state["index"], state["p"]
        self.verdict = GuardrailVerdict(state["verdict"])


def _columns(scores: Sequence[_Score]) -> dict[str, list[Any]]:
    return {"values": [score.value for score in scores], "units": [score.unit for score in scores]}


def _alike(scores: Sequence[_Score]) -> float:
    """Return one over how many independent scores these are worth; one without a unit is of its own."""
    of_units = Counter(score.unit for score in scores)
    alone = of_units.pop(None, 0)
    return (alone + sum(count * count for count in of_units.values())) / len(scores) ** 2
