"""What live traffic is held against later: how the training queries lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.calibration.artefact import Reference, ReferenceBins
from cascade.fit.training import TrainingQuery
from cascade.statistics.drift import bin_edges, bin_shares

__all__ = ["fit_reference"]

_CANDIDATES: Final = 20
"""Live lists are cut at other depths than those of training, and the best of more is better: so the best of these."""


def fit_reference(training: Sequence[TrainingQuery], margins: npt.NDArray[np.float64]) -> Reference | None:
    """Return the bins of the training queries, None where fewer than half have a small score for each of as many candidates.

    What is counted is what nine of ten queries have at least: a few long ones among short ones are no sample. ``margins`` (n,) are those of cross-fitted estimates at the calibration's k, one a query.
    """
    count = min(_CANDIDATES, max(1, int(np.quantile([len(one.small) for one in training], 0.1, method="lower"))))
    heads = [one.small[:count] for one in training if len(one.small) >= count]
    best = np.array([head.max() for head in heads if np.isfinite(head).all()])
    if best.size * 2 < len(training):
        return None
    return Reference(candidates=count, score=_bins(best), margin=_bins(margins))


def _bins(values: npt.NDArray[np.float64]) -> ReferenceBins:
    edges = bin_edges(values)
    return ReferenceBins(edges=tuple(edges.tolist()), shares=tuple(bin_shares(edges, values).tolist()))
