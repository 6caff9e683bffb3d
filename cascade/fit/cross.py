"""Cross-fitting: every query is estimated by models that have not seen it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cascade.calibration.artefact import EntryModel
from cascade.calibration.build import entry_of
from cascade.calibration.calibrated import Estimate, estimate_from
from cascade.calibration.features import describe
from cascade.fit.entry import fit_entry
from cascade.fit.training import TrainingQuery, examples, folds_of, prefix

__all__ = ["CrossFitted", "cross_fit"]


@dataclass(frozen=True, slots=True)
class CrossFitted:
    """The fold (Q,) of each query and, by fold, the entry model fitted on the others."""

    fold: npt.NDArray[np.int64]
    models: tuple[EntryModel, ...]
    channels: tuple[str, ...]

    def estimates(self, queries: Sequence[TrainingQuery], depth: int | None = None) -> list[Estimate]:
        """Estimate each query, or its first ``depth`` candidates, by the model that has not seen it."""
        entries = [entry_of(model, self.channels) for model in self.models]
        found = []
        for query, fold in zip(queries, self.fold, strict=True):
            part = query if depth is None else prefix(query, depth)
            found.append(estimate_from(entries[fold], describe(part.small, part.channels)))
        return found


def cross_fit(
    queries: Sequence[TrainingQuery], channels: tuple[str, ...], scale: float, folds: int, seed: int
) -> CrossFitted:
    """Fit an entry model for each fold on the queries of the others."""
    fold = folds_of(len(queries), folds, seed)
    models = []
    for number in range(folds):
        data = examples([query for query, at in zip(queries, fold, strict=True) if at != number])
        models.append(fit_entry(data, channels, data.large / scale).to_model())
    return CrossFitted(fold, tuple(models), channels)
