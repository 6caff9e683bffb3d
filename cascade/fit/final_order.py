"""Fit an order for the scored block on judgements, and tell whether it beats the large stage's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from cascade.calibration.artefact import FinalOrder
from cascade.calibration.features import describe, pair_feature_names
from cascade.fit.training import TrainingQuery, folds_of
from cascade.metrics import ndcg_rows
from cascade.replay.intervals import figure, resampled
from cascade.replay.queries import ReplayedQuery

__all__ = ["fit_final_order"]

FloatArray = npt.NDArray[np.float64]

_FOLDS: Final = 5
_C: Final = 0.1
_LEAST_OF_EACH: Final = 200
_RESAMPLES: Final = 2000
_CONSTANT: Final = 1e-9


def fit_final_order(
    queries: Sequence[ReplayedQuery], training: Sequence[TrainingQuery], channels: tuple[str, ...], k: int, seed: int
) -> tuple[FinalOrder | None, str]:
    """Fit logistic regression of relevance on the large score and the pair features of judged candidates.

    Returns the order where its cross-fitted nDCG@k beats the large order with an interval above zero, else
    None; and what was found, in a sentence.
    """
    if queries[0].judgement.silver:
        return None, "final order: not tried without judgements"
    rows = [np.column_stack([one.large, describe(one.small, one.channels).pair]) for one in training]
    judged = [
        np.isfinite(one.large) & query.judgement.judged[: query.pairs]
        for one, query in zip(training, queries, strict=True)
    ]
    relevant = [query.judgement.relevant[: query.pairs] for query in queries]
    positives = sum(int(r[j].sum()) for r, j in zip(relevant, judged, strict=True))
    pairs = sum(int(j.sum()) for j in judged)
    if min(positives, pairs - positives) < _LEAST_OF_EACH:
        return None, f"final order: not tried on {positives} relevant of {pairs} judged pairs"
    fold = folds_of(len(queries), _FOLDS, seed)
    gains = np.empty(len(queries))
    for number in range(_FOLDS):
        model = _fit([(x, r, j) for x, r, j, f in zip(rows, relevant, judged, fold, strict=True) if f != number])
        for place in np.flatnonzero(fold == number).tolist():
            gains[place] = _ndcg(queries[place], rows[place] @ model, k) - _ndcg(queries[place], rows[place][:, 0], k)
    found = figure(resampled(len(queries), _RESAMPLES, seed).means(gains), len(queries), "not defined")
    low, high = found.interval or (None, None)
    ends = " to ".join("none" if end is None else f"{end:+.4f}" for end in (low, high))
    told = f"final order: {found.value:+.4f} nDCG@{k} over the large order, interval {ends}"
    weights = _fit(list(zip(rows, relevant, judged, strict=True)))
    if low is None or high is None or low <= 0.0 or found.value is None or weights[0] <= 0.0:
        return None, f"{told}; not kept"
    names = pair_feature_names(channels)
    order = FinalOrder(
        large=float(weights[0]),
        features={name: float(weight) for name, weight in zip(names, weights[1:], strict=True)},
        gain=found.value,
        low=low,
        high=high,
    )
    return order, f"{told}; kept in the artefact, off unless the release asks for it"


def _fit(parts: Sequence[tuple[FloatArray, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]) -> FloatArray:
    design = np.concatenate([x[j] for x, _, j in parts])
    relevant = np.concatenate([r[j] for _, r, j in parts])
    spread = design.std(axis=0)
    spread = np.where(spread > _CONSTANT, spread, np.inf)  # what does not differ weighs nothing
    model = LogisticRegression(C=_C, solver="newton-cholesky", max_iter=200).fit(design / spread, relevant)
    return np.asarray(model.coef_[0] / spread)


def _ndcg(query: ReplayedQuery, scores: FloatArray, k: int) -> float:
    order = np.argsort(-np.where(np.isfinite(scores), scores, -np.inf), kind="stable")
    judgement = query.judgement
    return float(ndcg_rows(judgement.gains[order[:k]][None], judgement.ideal, k)[0])
