"""Fit the probability that the small order is good enough as it is."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from cascade.calibration.artefact import AcceptableModel

__all__ = ["TOLERANCE", "fit_acceptable"]

TOLERANCE: Final = 0.02
"""The small order is acceptable where it loses at most so much nDCG to the large one."""
_LEAST_OF_EACH: Final = 10


def fit_acceptable(
    summaries: npt.NDArray[np.float64], loss: npt.NDArray[np.float64], target: str
) -> AcceptableModel | None:
    """Fit logistic regression of ``loss`` (Q,) <= `TOLERANCE` on (Q, 3) expected loss, margin and entropy.

    None where either outcome is too rare to fit.
    """
    good = loss <= TOLERANCE
    if min(int(good.sum()), int((~good).sum())) < _LEAST_OF_EACH:
        return None
    model = LogisticRegression(C=1.0, max_iter=1000)
    p = cross_val_predict(model, summaries, good, cv=5, method="predict_proba")[:, 1]
    model.fit(summaries, good)
    return AcceptableModel(
        weights=tuple(map(float, model.coef_[0])),
        intercept=float(model.intercept_[0]),
        target=f"{target} loss at most {TOLERANCE}",
        share=float(good.mean()),
        brier=float(((p - good) ** 2).mean()),
    )
