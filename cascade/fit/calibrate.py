"""Fit a calibration from score tables, from beginning to end. No human label is needed; judgements add what only they show."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

from cascade.calibration.artefact import (
    Benefit,
    CalibrationArtefact,
    IsotonicMap,
    PlattMap,
    ReliabilityRow,
    ScorerIdentity,
    TrainedOn,
    ValidRange,
)
from cascade.calibration.calibrated import Calibration, Estimate
from cascade.calibration.features import SMALL
from cascade.calibration.gain import CUTOFFS, entropy, expected_loss, margin
from cascade.calibration.reliability import reliability
from cascade.errors import ConfigError
from cascade.fit.acceptable import fit_acceptable
from cascade.fit.benefit import quality_of_ends, shown_benefit
from cascade.fit.cross import CrossFitted, cross_fit
from cascade.fit.entry import fit_entry
from cascade.fit.final_order import fit_final_order
from cascade.fit.prices import chosen_prices, replayed_sweep
from cascade.fit.reference import fit_reference
from cascade.fit.score_maps import fit_score_map
from cascade.fit.second_round import fit_second_round
from cascade.fit.training import TrainingQuery, examples, top_c, training_query
from cascade.metrics import Gain
from cascade.replay.joined import joined
from cascade.replay.queries import Replayed, ReplayedQuery, Roles, replayed
from cascade.replay.table import ScoreTable, data_sha256
from cascade.types import ScoreSpace

__all__ = [
    "CHECKED_PREFIXES",
    "LEAST_QUERIES",
    "Asked",
    "Fitted",
    "calibrate",
    "fit_calibration",
    "refuse_ranks",
    "scorer_identity",
]

LEAST_QUERIES: Final = 100
"""With fewer queries the probabilities are not worth the name: measured on real scores."""
_LEAST_AT_ALL: Final = 20
CHECKED_PREFIXES: Final = (20, 50, 100)
_FOLDS: Final = 5
_FEWER_FOLDS: Final = 3
_MANY_QUERIES: Final = 300
_BINS: Final = 15
_ALL: Final = "all"
_NO_ENTRY_BELOW: Final = 10
_ROOM_ABOVE: Final = 2.0
_PRESENT: Final = 0.5


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
    found = replayed([table], asked.roles, asked.k, Gain.LINEAR)
    queries = found.queries
    channels = tuple(asked.roles.first_stage)
    if SMALL in channels:
        raise ConfigError(f"--first-stage: a channel cannot be called {SMALL}")
    benefit = shown_benefit(queries, asked.k, asked.seed)
    notes = _few(len(queries), benefit, allowed=asked.allow_few)
    small, large = (
        scorer_identity(table, name, space)
        for name, space in ((asked.roles.small, asked.small_space), (asked.roles.large, asked.large_space))
    )
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
    entry = fit_entry(data, channels, data.large / scale).to_model()
    base = CalibrationArtefact(
        format="cascade-calibration/1",
        method="splines+logistic",
        trained_on=_trained_on(table, asked, found, _scored_by_both(training)),
        small=small,
        large=large,
        channels=channels,
        k=asked.k,
        valid=_valid(training, channels),
        entry=entry,
        second_round=second,
        benefit=benefit,
        notes=(*notes, *_chosen(table), *_guessed(table, asked)),
    )
    progress("replaying prices")
    of_fold = _fold_calibration(base, training, estimates, crossed, asked.seed)
    update = _judged_parts(base, queries, training, crossed, of_fold, estimates, asked)
    progress("checking reliability")
    update["reliability"] = tuple(_reliability(queries, training, crossed))
    artefact = CalibrationArtefact.model_validate({**base.model_dump(), **update})
    return Fitted(artefact, queries, tuple(crossed.fold.tolist()), of_fold)


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


def _judged_parts(
    base: CalibrationArtefact,
    queries: Sequence[ReplayedQuery],
    training: Sequence[TrainingQuery],
    crossed: CrossFitted,
    of_fold: Callable[[int], Calibration],
    estimates: Sequence[Estimate],
    asked: Asked,
) -> dict[str, Any]:
    """Fit what reads quality: prices, whether the small order is acceptable, score maps and a final order."""
    judged = not queries[0].judgement.silver
    ends = np.array([quality_of_ends(query, asked.k) for query in queries])
    sweep = replayed_sweep(queries, crossed.fold.tolist(), of_fold, asked.k)
    pairs = float(np.mean([query.pairs for query in queries]))
    summaries = np.array(
        [
            (expected_loss(one.p, _order(query), asked.k), margin(one.p, asked.k), entropy(one.p, asked.k))
            for one, query in zip(estimates, training, strict=True)
        ]
    )
    final, told = fit_final_order(queries, training, base.channels, asked.k, asked.seed)
    maps, losses = _score_maps(queries, training, asked.seed)
    return {
        "prices": chosen_prices(sweep, ends, pairs, asked.seed, judged=judged),
        "acceptable": fit_acceptable(
            summaries, ends[:, 1] - ends[:, 0], f"nDCG@{asked.k}" if judged else f"nDCG@{asked.k} by the large order"
        ),
        "score_maps": maps,
        "score_maps_target": "P(judged relevant)" if maps else "",
        "final_order": final,
        "reference": fit_reference(training, summaries[:, 1]),
        "notes": (*base.notes, told, *losses),
    }


def _fold_calibration(
    base: CalibrationArtefact,
    training: Sequence[TrainingQuery],
    estimates: Sequence[Estimate],
    crossed: CrossFitted,
    seed: int,
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
                seed,
            )
        update = {"entry": crossed.models[number], "second_round": second}
        return Calibration(base.model_copy(update=update), f"fold {number}")

    return of


def _order(query: TrainingQuery) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.argsort(np.where(np.isfinite(query.small), -query.small, np.inf), kind="stable")


def _score_maps(
    queries: Sequence[ReplayedQuery], training: Sequence[TrainingQuery], seed: int
) -> tuple[dict[str, PlattMap | IsotonicMap], list[str]]:
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


def _reliability(
    queries: Sequence[ReplayedQuery], training: Sequence[TrainingQuery], crossed: CrossFitted
) -> list[ReliabilityRow]:
    rows = []
    longest = max(len(one.small) for one in training)
    classes = np.array([query.slices.get("q_class", _ALL) for query in queries])
    for depth in [depth for depth in CHECKED_PREFIXES if depth < longest] + [longest]:
        p = [one.p for one in crossed.estimates(training, depth)]
        entered = [top_c(one.large[:depth]) for one in training]
        known = [np.isfinite(one.large[:depth]) & np.isfinite(one.small[:depth]) for one in training]
        for name in (_ALL, *sorted(set(classes.tolist()) - {_ALL})):
            chosen = [place for place in range(len(p)) if name in (_ALL, classes[place])]
            for column, cutoff in enumerate(CUTOFFS):
                predicted = np.concatenate([p[place][known[place], column] for place in chosen])
                came_true = np.concatenate([entered[place][known[place], column] for place in chosen])
                if not len(predicted):
                    continue
                found = reliability(predicted, came_true, _BINS)
                bins = tuple((b.count, b.predicted, b.observed) for b in found.bins) if name == _ALL else ()
                rows.append(
                    ReliabilityRow(
                        prefix=depth,
                        query_class=name,
                        cutoff=cutoff,
                        pairs=found.count,
                        brier=found.brier,
                        ece=found.ece,
                        ece_floor=found.ece_floor,
                        predicted=found.predicted,
                        observed=found.observed,
                        bins=bins,
                    )
                )
    return rows


def _chosen(table: ScoreTable) -> Iterator[str]:
    """Say how many queries of decision records are no sample of the traffic: a release chose to escalate them whole."""
    modes = table.of_queries("q_mode") if "q_mode" in table.attributes else ()
    if count := modes.count("cascade"):
        rest = "; --where q_mode=observe leaves them out" if count < len(modes) else ""
        yield f"{count} of {len(modes)} queries were escalated whole by a release: no sample of the traffic{rest}"


def _guessed(table: ScoreTable, asked: Asked) -> Iterator[str]:
    """Say which score spaces nobody declared: told from the scores, cosines above 0 look like probabilities."""
    for name, space in ((asked.roles.small, asked.small_space), (asked.roles.large, asked.large_space)):
        identity = scorer_identity(table, name, space)
        if space is None and identity.fingerprint is None:
            yield f"score space of {name}: nobody declared it; told from the scores it is {identity.space}"


def scorer_identity(table: ScoreTable, name: str, space: ScoreSpace | None) -> ScorerIdentity:
    """Return what a column's scorer was, as far as the table knows; a space that nobody declared is told from scores."""
    fingerprint = table.conditions.get("scorers", {}).get(name, {}).get("fingerprint")
    if space is None and fingerprint is not None:
        space = ScoreSpace(fingerprint["score_space"])
    if space is None:
        scores = table.column(name)
        scores = scores[np.isfinite(scores)]
        bounded = bool(len(scores)) and bool(scores.min() >= 0.0) and bool(scores.max() <= 1.0)
        space = ScoreSpace.PROBABILITY if bounded else ScoreSpace.LOGIT
    return ScorerIdentity(name=name, space=space, fingerprint=fingerprint)


def refuse_ranks(small: ScorerIdentity, large: ScorerIdentity) -> None:
    """Raise ConfigError where a scorer orders lists: what it would write of fewer documents, no column tells."""
    if ScoreSpace.RANK in (small.space, large.space):
        raise ConfigError("a stage that orders lists gives ranks, no scores: there is nothing to calibrate or certify")


def _scored_by_both(training: Sequence[TrainingQuery]) -> int:
    return sum(int((np.isfinite(one.small) & np.isfinite(one.large)).sum()) for one in training)


def _trained_on(table: ScoreTable, asked: Asked, found: Replayed, pairs: int) -> TrainedOn:
    columns = [*asked.roles.first_stage, asked.roles.small, asked.roles.large]
    return TrainedOn(
        queries=len(found.queries),
        pairs=pairs,
        data_sha256=data_sha256(table, columns).removeprefix("sha256:"),
        query_ids_sha256=tuple(hashlib.sha256(name.encode()).hexdigest()[:16] for name in table.query_ids),
        where=dict(asked.where),
        seed=asked.seed,
        first_stage=table.first_stage_name(asked.roles.first_stage),
    )


def _valid(training: Sequence[TrainingQuery], channels: Sequence[str]) -> ValidRange:
    """Hold estimates from lists of ten up to twice the longest seen, and with half the scores usually there."""
    longest = max(len(one.small) for one in training)
    present = {"small": _PRESENT}
    for name in channels:
        shares = [float(np.isfinite(one.channels[name]).mean()) for one in training]
        present[name] = _PRESENT * float(np.quantile(shares, 0.05))
    return ValidRange(
        least_candidates=min(_NO_ENTRY_BELOW, longest),
        most_candidates=int(_ROOM_ABOVE * longest),
        least_present=present,
    )
