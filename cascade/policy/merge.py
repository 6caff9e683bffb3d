"""Put rounds together into one order, and give that order outward scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, assert_never

from cascade.decision import Movement
from cascade.types import ScoreSpace, StageName

__all__ = ["logit", "merge", "movement", "order_by_score", "outward_scores", "rank_changes", "rank_scores", "to_unit"]

_STEP: Final = 1.0 - 2.0**-22
"""The ratio between neighbours that float32 still tells apart."""
_FAR_BELOW: Final = 1.0 - 2.0**-15
"""A ratio between neighbours so far apart that no rounding has to be looked at; most are, and looking is dear."""
_HIGHEST: Final = 1.0 - 2.0**-24
"""The greatest float32 below one."""
_LOWEST: Final = 1e-30
_HEAD: Final = 10
"""Places whose movement is told."""


def order_by_score(indices: Sequence[int], scores: Mapping[int, float]) -> list[int]:
    """Sort ``indices`` by score, highest first; ties keep the order given.

    Every index must have a finite score.
    """
    return sorted(indices, key=lambda index: -scores[index])


def merge(
    count: int, small: Mapping[int, float] | None, large: Mapping[int, float] | None
) -> tuple[list[int], list[StageName]]:
    """Order ``count`` candidates: the large block on top, then the small order, then first-stage order.

    ``small`` and ``large`` map candidate index to raw score, None where the stage scored nothing.
    Scores of the two are never compared. Ties keep first-stage order. Returns the order, a
    permutation of ``range(count)``, and the stage that placed each entry of it.
    """
    large = large or {}
    small = small or {}
    in_first_stage_order = range(count)
    block = order_by_score([i for i in in_first_stage_order if i in large], large)
    middle = order_by_score([i for i in in_first_stage_order if i in small and i not in large], small)
    tail = [i for i in in_first_stage_order if i not in large and i not in small]
    stages = [StageName.LARGE] * len(block) + [StageName.SMALL] * len(middle) + [StageName.RETRIEVAL] * len(tail)
    return [*block, *middle, *tail], stages


def to_unit(score: float, space: ScoreSpace) -> float:
    """Map a raw score to [0, 1] by its declared space, in float64 and monotonically."""
    match space:
        case ScoreSpace.LOGIT:
            if score >= 0:
                return 1.0 / (1.0 + math.exp(-score))
            odds = math.exp(score)
            return odds / (1.0 + odds)
        case ScoreSpace.PROBABILITY | ScoreSpace.RANK:
            return min(1.0, max(0.0, score))
        case ScoreSpace.COSINE:
            return min(1.0, max(0.0, (1.0 + score) / 2.0))
        case _:
            assert_never(space)


def logit(probability: float) -> float:
    """Return ln(p / (1 - p)) for a probability strictly inside (0, 1)."""
    return math.log(probability) - math.log1p(-probability)


def outward_scores(
    order: Sequence[int], stages: Sequence[StageName], unit_score: Callable[[StageName, int], float]
) -> list[float]:
    """Give every place of ``order`` a score that falls strictly down the order and lies in (0, 1).

    It falls in float32 too, and so does its logit: clients sort again by what they parse. ``unit_score(stage, index)`` is the score in [0, 1] that a stage gave an index. A place never
    scores higher than the one before: the running minimum keeps the order that was decided when a
    client sorts again by score. Places behind the scored ones share the room that is left above
    zero evenly. An order that no stage scored carries (n - rank) / n with rank from zero.
    """
    count = len(order)
    scored = count - stages.count(StageName.RETRIEVAL)
    if not scored:
        return rank_scores(count)
    scores: list[float] = []
    for index, stage in zip(order[:scored], stages[:scored], strict=True):
        # The floor first: below it, places must still fall, or scores that are all 0 would tie.
        score = min(_HIGHEST, max(_LOWEST, unit_score(stage, index)))
        if scores and score > scores[-1] * _FAR_BELOW:
            score = min(score, _next_below(scores[-1]))
        scores.append(score)
    behind = count - scored
    return scores + [scores[-1] * (behind - place) / (behind + 1) for place in range(behind)]


def rank_scores(count: int) -> list[float]:
    """Return (n - rank) / n with rank from zero for each place: what an order says that has no scores."""
    return [min(_HIGHEST, (count - rank) / count) for rank in range(count)]


def _next_below(score: float) -> float:
    """Return the highest score below another that float32 tells apart from it, and its logit from the other's."""
    higher = logit(score)
    lower = higher - max(abs(higher), 1.0) * (1.0 - _STEP)
    return min(score * _STEP, to_unit(lower, ScoreSpace.LOGIT))


def rank_changes(order: Sequence[int], k: int) -> int:
    """Count the candidates of the first ``k`` places that were not at the same place before."""
    return sum(index != rank for rank, index in enumerate(order[:k]))


def movement(small: Mapping[int, float], order: Sequence[int]) -> Movement | None:
    """Return how far an order, a permutation of all candidates, is from the one that the small scores alone make of them.

    None where there are no small scores.
    """
    if not small:
        return None
    before, _ = merge(len(order), small, None)
    place = {index: rank for rank, index in enumerate(order)}
    places = [place[index] for index in before[:_HEAD]]
    return Movement(
        overlap=sum(now < len(places) for now in places) / len(places),
        displacement=sum(abs(now - rank) for rank, now in enumerate(places)) / len(places),
    )
