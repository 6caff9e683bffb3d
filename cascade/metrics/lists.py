"""Metrics of one list of document ids, equal to trec_eval's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from cascade.metrics.gain import Gain, gains_of

__all__ = ["hit", "ndcg", "recall", "reciprocal_rank"]


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], k: int, gain: Gain = Gain.LINEAR) -> float:
    """Return nDCG@k, with linear gain as trec_eval computes ``ndcg_cut``.

    ``ranked`` lists document ids, best first; ``grades`` maps judged ids to grades, where only
    positive ones gain. The ideal order is over all judged documents. 0.0 where none is relevant.
    """
    ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:k]
    if not ideal:
        return 0.0
    found = [grades.get(document, 0) for document in ranked[:k]]
    return _dcg(gains_of(found, gain).tolist()) / _dcg(gains_of(ideal, gain).tolist())


def _dcg(gains: Iterable[float]) -> float:
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


def reciprocal_rank(ranked: Sequence[str], grades: Mapping[str, int], least: int = 1, k: int | None = None) -> float:
    """Return 1 / rank of the first document of at least grade ``least`` among the first ``k``, 0.0 without one.

    ``k`` None means the whole list, as trec_eval's ``recip_rank``.
    """
    for rank, document in enumerate(ranked[:k], start=1):
        if grades.get(document, 0) >= least:
            return 1.0 / rank
    return 0.0


def recall(ranked: Sequence[str], grades: Mapping[str, int], k: int, least: int = 1) -> float:
    """Return the share of all documents of at least grade ``least`` that the first ``k`` hold, 0.0 without any."""
    relevant = sum(grade >= least for grade in grades.values())
    found = sum(grades.get(document, 0) >= least for document in ranked[:k])
    return found / relevant if relevant else 0.0


def hit(ranked: Sequence[str], grades: Mapping[str, int], k: int, least: int = 1) -> float:
    """Return 1.0 where the first ``k`` hold a document of at least grade ``least``, else 0.0."""
    return float(any(grades.get(document, 0) >= least for document in ranked[:k]))
