"""What a release would have answered where the scores of both stages are known: mode observe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cascade.metrics import ideal_dcg, ndcg_rows
from cascade.metrics.med import most_ndcg_lost
from cascade.policy.merge import merge
from cascade.replay.columns import FloatArray
from cascade.replay.logged.deciding import Decider, taken
from cascade.replay.record_lines import DecisionLine
from cascade.types import QueryClass

__all__ = ["Shadowed", "shadowed"]


@dataclass(frozen=True, slots=True)
class Shadowed:
    """One observed request as the target would have answered it.

    ``silver`` is nDCG@k with gain 1/rank of the large order. ``lost`` is the most nDCG@k that the large order can
    have over the target's, whatever the judgements, and ``won`` the most that the target's can have over it.
    ``pairs`` go to the large stage, of ``all_pairs`` that always-large sends.
    """

    query: str
    query_class: QueryClass
    sample: float
    silver: float
    lost: float
    won: float
    pairs: float
    all_pairs: float


def shadowed(target: Decider, record: DecisionLine, k: int) -> Shadowed | None:
    """Return what the target does with a complete record of mode observe, None where the record does not tell.

    It does not where the target scores deeper than was observed, or reads a text.
    """
    done = taken(target, record, observed=True)
    if done is None or done.order is None:
        return None
    large = {index: score for index, score in enumerate(record.large) if score is not None}
    always = merge(len(record.ids), None, large)[0]
    gains = _gains(always[: len(large)], len(record.ids))
    return Shadowed(
        query=record.query_hash,
        query_class=record.q_class,
        sample=record.recorded,
        silver=float(ndcg_rows(gains[list(done.order[:k])], ideal_dcg(gains, k), k)),
        lost=most_ndcg_lost(always, done.order, k),
        won=most_ndcg_lost(done.order, always, k),
        pairs=float(len(done.sent)),
        all_pairs=float(record.depth),
    )


def _gains(scored: list[int], count: int) -> FloatArray:
    gains = np.zeros(count)
    gains[scored] = 1.0 / np.arange(1, len(scored) + 1)
    return gains
