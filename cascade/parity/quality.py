"""What the difference costs in nDCG and MRR, where queries are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cascade.metrics import Gain, gains_of, ideal_dcg, ndcg_rows, reciprocal_rank_rows
from cascade.parity.lists import FloatArray
from cascade.parity.pairs import PairedList
from cascade.replay.intervals import Figure, figure, resampled

__all__ = ["Quality", "quality"]


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over judged queries; each ``delta`` is CAND minus REF with its paired bootstrap interval.

    ``without_relevant`` counts queries in every mean with 0, since nothing relevant is known of them.
    """

    queries: int
    without_relevant: int
    ndcg_ref: float
    ndcg_cand: float
    ndcg_delta: Figure
    mrr_ref: float
    mrr_cand: float
    mrr_delta: Figure


def quality(lists: Sequence[PairedList], k: int, resamples: int, seed: int) -> Quality | None:
    """Measure the orders of both sides over the same candidates, None where no query is judged.

    Gain is linear, the ideal order over all judged documents; MRR is of the whole order.
    """
    judged = [item for item in lists if item.grades is not None]
    if not judged:
        return None
    found = np.array([_metrics(item, k) for item in judged])  # (Q, metric, side)
    draws = resampled(len(judged), resamples, seed).means((found[:, :, 1] - found[:, :, 0]).T)  # (1 + B, metric)
    means = found.mean(axis=0)
    return Quality(
        queries=len(judged),
        without_relevant=sum(not item.ideal for item in judged),
        ndcg_ref=float(means[0, 0]),
        ndcg_cand=float(means[0, 1]),
        ndcg_delta=figure(draws[:, 0], len(judged), "undefined"),
        mrr_ref=float(means[1, 0]),
        mrr_cand=float(means[1, 1]),
        mrr_delta=figure(draws[:, 1], len(judged), "undefined"),
    )


def _metrics(item: PairedList, k: int) -> FloatArray:
    """Return nDCG@k and MRR (rows) of the orders of REF and CAND (columns)."""
    grades = np.asarray(item.grades)
    ideal = ideal_dcg(gains_of(item.ideal, Gain.LINEAR), k)
    orders = np.stack([np.argsort(-scores, kind="stable") for scores in (item.ref, item.cand)])
    gains = gains_of(grades, Gain.LINEAR)[orders]
    return np.stack([ndcg_rows(gains, ideal, k), reciprocal_rank_rows(grades[orders] > 0)])
