"""Fit the parts of an artefact that read quality, by judgements or, without any, by the large order in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cascade.calibration.artefact import CalibrationArtefact
from cascade.calibration.calibrated import Calibration, Estimate
from cascade.calibration.gain import entropy, expected_loss, margin
from cascade.fit.acceptable import fit_acceptable
from cascade.fit.benefit import quality_of_ends
from cascade.fit.final_order import fit_final_order
from cascade.fit.prices import chosen_prices, replayed_sweep
from cascade.fit.reference import fit_reference
from cascade.fit.score_maps import fit_score_maps
from cascade.fit.training import TrainingQuery
from cascade.replay.queries import ReplayedQuery

__all__ = ["fit_quality_parts"]


def fit_quality_parts(
    base: CalibrationArtefact,
    queries: Sequence[ReplayedQuery],
    training: Sequence[TrainingQuery],
    fold: Sequence[int],
    of_fold: Callable[[int], Calibration],
    estimates: Sequence[Estimate],
) -> dict[str, Any]:
    """Return the fields for prices, whether the small order is acceptable, score maps, a final order, and what drift is held against.

    ``queries``, ``training``, ``fold`` and ``estimates``, which are cross-fitted, are of the same queries in one order.
    """
    k, seed = base.k, base.trained_on.seed
    judged = not queries[0].judgement.silver
    ends = np.array([quality_of_ends(query, k) for query in queries])
    sweep = replayed_sweep(queries, fold, of_fold, k)
    pairs = float(np.mean([query.pairs for query in queries]))
    summaries = np.array(
        [
            (expected_loss(one.p, _order(query), k), margin(one.p, k), entropy(one.p, k))
            for one, query in zip(estimates, training, strict=True)
        ]
    )
    final, told = fit_final_order(queries, training, base.channels, k, seed)
    maps, losses = fit_score_maps(queries, training, seed)
    return {
        "prices": chosen_prices(sweep, ends, pairs, seed, judged=judged),
        "acceptable": fit_acceptable(
            summaries, ends[:, 1] - ends[:, 0], f"nDCG@{k}" if judged else f"nDCG@{k} by the large order"
        ),
        "score_maps": maps,
        "score_maps_target": "P(judged relevant)" if maps else "",
        "final_order": final,
        "reference": fit_reference(training, summaries[:, 1]),
        "notes": (*base.notes, told, *losses),
    }


def _order(query: TrainingQuery) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.argsort(np.where(np.isfinite(query.small), -query.small, np.inf), kind="stable")
