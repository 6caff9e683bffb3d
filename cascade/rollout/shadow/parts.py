"""Put the scores of parts together that were scored one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cascade.stages.added_cost import added
from cascade.types import Exclusion, StageScores

__all__ = ["joined"]


def joined(parts: Sequence[StageScores]) -> StageScores:
    """Return the scores of consecutive parts as those of one round; there is one part at least.

    Times add up, and one that a part does not tell is not told of the whole.
    """
    if len(parts) == 1:
        return parts[0]
    scores: list[float | None] = []
    shortened: set[int] = set()
    excluded: dict[int, Exclusion] = {}
    for part in parts:
        excluded |= {len(scores) + position: why for position, why in part.excluded.items()}
        shortened |= {len(scores) + position for position in part.shortened}
        scores += part.scores
    return StageScores(
        tuple(scores),
        excluded,
        replace(added([part.cost for part in parts]), room_ms=None),
        frozenset(shortened),
    )
