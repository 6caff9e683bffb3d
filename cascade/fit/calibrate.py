"""Fit a calibration from score tables, from beginning to end. No human label is needed; judgements add what only they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from cascade.calibration.artefact import Benefit, CalibrationArtefact
from cascade.calibration.calibrated import Calibration, Estimate
from cascade.calibration.features import SMALL
from cascade.calibration.gain import CUTOFFS
from cascade.errors import ConfigError
from cascade.fit.benefit import shown_benefit
from cascade.fit.cross import CrossFitted, cross_fit
from cascade.fit.entry import fit_entry
from cascade.fit.provenance import escalated_by_release, trained_on, valid_range
from cascade.fit.quality_parts import fit_quality_parts
from cascade.fit.reliability import reliability_rows
from cascade.fit.scorers import guessed_spaces, refuse_ranks, scorer_identity
from cascade.fit.second_round import fit_second_round
from cascade.fit.training import TrainingQuery, examples, training_query
from cascade.metrics import Gain
from cascade.replay.joined import joined
from cascade.replay.queries import ReplayedQuery, Roles, replayed
from cascade.replay.table import ScoreTable
from cascade.types import ScoreSpace

__all__ = ["LEAST_QUERIES", "Asked", "Fitted", "calibrate", "fit_calibration"]

LEAST_QUERIES: Final = 100
"""With fewer queries the probabilities are not worth the name: measured on real scores."""
_LEAST_AT_ALL: Final = 20
_FOLDS: Final = 5
_FEWER_FOLDS: Final = 3
_MANY_QUERIES: Final = 300


@dataclass(frozen=True, slots=True)
class Asked:
    """What to fit: the columns, the length of the answer's head, and what the raw scores are.

    A space that is None is taken from the table's conditions, and else told from the scores: in [0, 1]
    they are probabilities. ``allow_few`` goes on below `LEAST_QUERIES`.
    """

    roles: Roles
    k: int = 10
    small_space: ScoreSpace | None = None
    large_space: ScoreSpace | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    allow_few: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """An artefact, the queries that it was fitted on, and by fold what was fitted without those of the fold."""

    artefact: CalibrationArtefact
    queries: tuple[ReplayedQuery, ...]
    fold: tuple[int, ...]
    of_fold: Callable[[int], Calibration]


def calibrate(
    tables: Sequence[ScoreTable], asked: Asked, progress: Callable[[str], None] = lambda step: None
) -> CalibrationArtefact:
    """Fit everything that an artefact holds; see `fit_calibration`."""
    return fit_calibration(tables, asked, progress).artefact


def fit_calibration(
    tables: Sequence[ScoreTable], asked: Asked, progress: Callable[[str], None] = lambda step: None
) -> Fitted:
    """Fit everything that an artefact holds. Raises ConfigError for what cannot be fitted.

    ``tables``, of different queries, have the rows that ``asked.where`` names already. Every figure of the artefact is cross-fitted:
    each query is judged by entry models that have not seen it. Fewer than `LEAST_QUERIES` queries are
    refused, unless judgements refute that the large stage helps: then nothing is escalated by the probabilities.
    """
    # In one thread: matrices are small, so that threads mostly wait for each other, and sums come out the same
    # whatever the number of cores.
    with threadpool_limits(limits=1, user_api="blas"):
        return _calibrated(tables, asked, progress)


def _calibrated(tables: Sequence[ScoreTable], asked: Asked, progress: Callable[[str], None]) -> Fitted:
    if asked.k not in CUTOFFS:
        raise ConfigError(f"--k: {asked.k} is none of {', '.join(map(str, CUTOFFS))}")
    table = joined(tables)
    queries = replayed([table], asked.roles, asked.k, Gain.LINEAR).queries
    channels = tuple(asked.roles.first_stage)
    if SMALL in channels:
        raise ConfigError(f"--first-stage: a channel cannot be called {SMALL}")
    benefit = shown_benefit(queries, asked.k, asked.seed)
    notes = _few(len(queries), benefit, allowed=asked.allow_few)
    small = scorer_identity(table, asked.roles.small, asked.small_space)
    large = scorer_identity(table, asked.roles.large, asked.large_space)
    refuse_ranks(small, large)
    training = [training_query(query, small.space, large.space) for query in queries]
    scores = np.concatenate([one.large for one in training])
    if np.nanmin(scores) == np.nanmax(scores):
        raise ConfigError(f"column {asked.roles.large}: all scores are equal")
    scale = float(np.nanstd(scores))
    progress("cross-fitting entry probabilities")
    folds = _FEWER_FOLDS if len(training) >= _MANY_QUERIES else _FOLDS
    crossed = cross_fit(training, channels, scale, folds, asked.seed)
    estimates = crossed.estimates(training)
    progress("fitting the second round")
    second = fit_second_round(training, estimates, channels, asked.k, scale, asked.seed)
    progress("fitting on all queries")
    data = examples(training)
    base = CalibrationArtefact(
        format="cascade-calibration/1",
        method="splines+logistic",
        trained_on=trained_on(table, training, asked.roles, where=asked.where, seed=asked.seed),
        small=small,
        large=large,
        channels=channels,
        k=asked.k,
        valid=valid_range(training, channels),
        entry=fit_entry(data, channels, data.large / scale).to_model(),
        second_round=second,
        benefit=benefit,
        notes=(
            *notes,
            *escalated_by_release(table),
            *guessed_spaces(((small, asked.small_space), (large, asked.large_space))),
        ),
    )
    progress("replaying prices")
    fold: list[int] = crossed.fold.tolist()
    of_fold = _fold_calibration(base, training, estimates, crossed)
    update = fit_quality_parts(base, queries, training, fold, of_fold, estimates)
    progress("checking reliability")
    update["reliability"] = reliability_rows(queries, training, crossed)
    artefact = CalibrationArtefact.model_validate({**base.model_dump(), **update})
    return Fitted(artefact, queries, tuple(fold), of_fold)


def _few(queries: int, benefit: Benefit, *, allowed: bool) -> tuple[str, ...]:
    """Return what has to be said of so many queries. Raises ConfigError where they are too few."""
    if queries >= LEAST_QUERIES:
        return ()
    if queries < _LEAST_AT_ALL or not (allowed or benefit.status == "none-found"):
        raise ConfigError(
            f"{queries} queries have scores of both stages; calibrating needs {LEAST_QUERIES}"
            + (f", and {_LEAST_AT_ALL} in any case" if allowed else "; --allow-few goes on with fewer")
        )
    return (f"ONLY {queries} QUERIES: below {LEAST_QUERIES} the probabilities are not worth the name",)


def _fold_calibration(
    base: CalibrationArtefact,
    training: Sequence[TrainingQuery],
    estimates: Sequence[Estimate],
    crossed: CrossFitted,
) -> Callable[[int], Calibration]:
    """Return what was fitted without the queries of a fold: the entry model, and the second round."""

    @cache
    def of(number: int) -> Calibration:
        second = base.second_round
        if second is not None:
            others = np.flatnonzero(crossed.fold != number).tolist()
            second = fit_second_round(
                [training[place] for place in others],
                [estimates[place] for place in others],
                base.channels,
                base.k,
                second.scale,
                base.trained_on.seed,
            )
        update = {"entry": crossed.models[number], "second_round": second}
        return Calibration(base.model_copy(update=update), f"fold {number}")

    return of
