"""Ranking metrics over graded judgements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["ndcg", "reciprocal_rank"]


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return nDCG@k with linear gain, as trec_eval computes ``ndcg_cut``.

    ``ranked`` lists document ids, best first; ``grades`` maps judged ids to grades, where only
    positive ones gain. The ideal order is over all judged documents. 0.0 where none is relevant.
    """
    ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:k]
    if not ideal:
        return 0.0
    gains = (max(0, grades.get(document, 0)) for document in ranked[:k])
    return _dcg(gains) / _dcg(ideal)


def _dcg(gains: Iterable[int]) -> float:
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


def reciprocal_rank(ranked: Sequence[str], grades: Mapping[str, int], least: int = 1) -> float:
    """Return 1 / rank of the first document of at least grade ``least``, 0.0 where there is none."""
    for rank, document in enumerate(ranked, start=1):
        if grades.get(document, 0) >= least:
            return 1.0 / rank
    return 0.0
