"""Put the scores of parts together that were scored one after another."""

from __future__ import annotations

from collections.abc import Sequence

from cascade.types import Exclusion, StageCost, StageScores

__all__ = ["joined"]


def joined(parts: Sequence[StageScores]) -> StageScores:
    """Return the scores of consecutive parts as those of one round; there is one part at least.

    Times add up, and one that a part does not tell is not told of the whole.
    """
    if len(parts) == 1:
        return parts[0]
    scores: list[float | None] = []
    excluded: dict[int, Exclusion] = {}
    for part in parts:
        excluded |= {len(scores) + position: why for position, why in part.excluded.items()}
        scores += part.scores
    costs = [part.cost for part in parts]
    return StageScores(
        tuple(scores),
        excluded,
        StageCost(
            calls=sum(cost.calls for cost in costs),
            tokens=sum(cost.tokens for cost in costs),
            tokens_estimated=any(cost.tokens_estimated for cost in costs),
            truncated=sum(cost.truncated for cost in costs),
            tokenize_ms=_sum([cost.tokenize_ms for cost in costs]),
            queue_ms=_sum([cost.queue_ms for cost in costs]),
            compute_ms=_sum([cost.compute_ms for cost in costs]),
            server_ms=_sum([cost.server_ms for cost in costs]),
            room_ms=None,
        ),
    )


def _sum(times: Sequence[float | None]) -> float | None:
    known = [each for each in times if each is not None]
    return sum(known) if len(known) == len(times) else None
