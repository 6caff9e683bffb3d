"""Fit the map from a stage's raw score to the probability of relevance: Platt's or isotonic, whichever predicts better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from cascade.calibration.artefact import IsotonicMap, PlattMap
from cascade.fit.training import TrainingQuery, folds_of
from cascade.replay.queries import ReplayedQuery

__all__ = ["FittedMap", "fit_score_map", "fit_score_maps"]

FloatArray = npt.NDArray[np.float64]
FittedMap = tuple[PlattMap | IsotonicMap, dict[str, float]]

_FOLDS: Final = 5
_LEAST_OF_EACH: Final = 50
_CLIP: Final = 1e-4
_POINTS: Final = 64


def fit_score_maps(
    queries: Sequence[ReplayedQuery], training: Sequence[TrainingQuery], seed: int
) -> tuple[dict[str, PlattMap | IsotonicMap], list[str]]:
    """Fit the map of each stage on the judged pairs that it scored; and say of each what was fitted, or why nothing was."""
    maps: dict[str, PlattMap | IsotonicMap] = {}
    told = []
    if queries[0].judgement.silver:
        return maps, ["score maps: not fitted without judgements"]
    judged = [query.judgement.judged[: query.pairs] for query in queries]
    relevant = np.concatenate([query.judgement.relevant[: query.pairs] for query in queries])
    of_query = np.repeat(np.arange(len(queries)), [query.pairs for query in queries])
    for name in ("small", "large"):
        scores = np.concatenate([getattr(one, name) for one in training])
        kept = np.concatenate(judged) & np.isfinite(scores)
        fitted = fit_score_map(scores[kept], relevant[kept], of_query[kept], seed)
        if fitted is None:
            told.append(f"score map of {name}: not fitted: too few judged pairs of one kind, or it does not rise")
            continue
        maps[name], losses = fitted
        figures = ", ".join(f"{kind} {loss:.5f}" for kind, loss in losses.items())
        told.append(f"score map of {name}: {maps[name].kind}; log loss by query folds: {figures}")
    return maps, told


def fit_score_map(
    scores: FloatArray, relevant: npt.NDArray[np.bool_], of_query: npt.NDArray[np.int64], seed: int
) -> FittedMap | None:
    """Fit both maps on judged pairs, (R,) each, and keep the one of less cross-validated log loss.

    Folds are of queries, not of pairs. None where relevant or irrelevant pairs are too few or all of one
    fold, or where a higher score does not mean more relevant. The second value has the log loss of each.
    """
    if min(int(relevant.sum()), int((~relevant).sum())) < _LEAST_OF_EACH:
        return None
    fold = folds_of(int(of_query.max()) + 1, _FOLDS, seed)[of_query]
    if any(len(set(fold[kind].tolist())) < 2 for kind in (relevant, ~relevant)):
        return None
    losses = {}
    for name, fit in (("platt", _platt), ("isotonic", _isotonic)):
        p = np.empty(len(scores))
        for number in range(_FOLDS):
            train, test = fold != number, fold == number
            if test.any():
                p[test] = fit(scores[train], relevant[train])[0](scores[test])
        p = np.clip(p, _CLIP, 1.0 - _CLIP)
        losses[name] = float(-np.where(relevant, np.log(p), np.log1p(-p)).mean())
    best = _isotonic if losses["isotonic"] < losses["platt"] else _platt
    kept = best(scores, relevant)[1]
    return (kept, losses) if _rises(kept) else None


def _rises(kept: PlattMap | IsotonicMap) -> bool:
    return kept.slope > 0.0 if isinstance(kept, PlattMap) else kept.probabilities[0] < kept.probabilities[-1]


def _platt(scores: FloatArray, relevant: npt.NDArray[np.bool_]) -> tuple[Any, PlattMap]:
    centre, spread = float(scores.mean()), float(max(scores.std(), 1e-9))
    model = LogisticRegression(C=1e4, max_iter=1000).fit(((scores - centre) / spread)[:, None], relevant)
    slope = max(0.0, float(model.coef_[0, 0]) / spread)
    intercept = float(model.intercept_[0]) - slope * centre
    return (lambda x: 1.0 / (1.0 + np.exp(-np.clip(slope * x + intercept, -700, 700)))), PlattMap(
        slope=slope, intercept=intercept
    )


def _isotonic(scores: FloatArray, relevant: npt.NDArray[np.bool_]) -> tuple[Any, IsotonicMap]:
    model = IsotonicRegression(out_of_bounds="clip").fit(scores, relevant.astype(np.float64))
    x, y = model.X_thresholds_, model.y_thresholds_
    if len(x) > _POINTS:
        chosen = np.unique(np.linspace(0, len(x) - 1, _POINTS).round().astype(int))
        x, y = x[chosen], y[chosen]
    return (lambda s: np.interp(s, x, y)), IsotonicMap(
        kind="isotonic", scores=tuple(map(float, x)), probabilities=tuple(map(float, y))
    )
