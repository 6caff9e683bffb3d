"""Replay policies on score tables and measure them: ``cascade eval`` without its command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.replay.measure import Contest, Measured, measure
from cascade.replay.partition import Part, Replaying, replay_part, side_by_side
from cascade.replay.points import at_price, at_setting, points_beside
from cascade.replay.policy import Policy, Progress
from cascade.replay.queries import Roles, is_judged, is_silver, replayed_part
from cascade.replay.question import Question
from cascade.replay.report import Evaluation
from cascade.replay.sections import decided, ties
from cascade.replay.sweep import Metric
from cascade.replay.table import ScoreTable, data_sha256

__all__ = ["Question", "evaluate"]

_RELEVANT: Final = "grade above 0; queries without a relevant document stay in every mean with 0"


def evaluate(
    tables: Mapping[str, ScoreTable],
    question: Question,
    calibration: Calibration | None = None,
    policy: Policy | None = None,
    progress: Progress = iter,
) -> Evaluation:
    """Replay the baselines on ``tables`` by name, and measure them.

    With a calibration there is ``static-fused`` too, with a policy whose block has a fitted order
    ``static-final``, which has it as well, and with a policy ``policy``; the others are then
    reported at its cost. Raises ConfigError for what cannot be replayed.
    """
    chosen = {name: _where(name, table, question.where) for name, table in tables.items()}
    names = [name for table in chosen.values() for name in table.query_ids]
    if len(set(names)) < len(names):
        raise ConfigError(f"{len(names) - len(set(names))} queries are in more than one table; each counts once")
    silver = is_silver([is_judged(table) for table in chosen.values()])
    if silver and question.metric is not Metric.NDCG:
        raise ConfigError(f"{question.metric} needs judgements, and the tables have none")
    _check(calibration, question)
    replaying = Replaying(question, _most(chosen.values(), question.roles), calibration, policy)
    parts, dropped = [], 0
    for name, table in chosen.items():
        found = replayed_part(table, question.roles, question.k, question.gain, silver=silver)
        dropped += found.dropped
        part = replay_part(name, found, replaying, progress)
        parts += [] if part is None else [part]
    if not parts:
        raise ConfigError(f"no query has scores of both {question.roles.small} and {question.roles.large}")
    part = side_by_side(parts)
    contest = _contest(part, question)
    return Evaluation(
        conditions={
            **_conditions(chosen, part, dropped, replaying, silver=silver),
            **_fitted(calibration),
            **({} if policy is None else {"policy": dict(policy.described)}),
        },
        contest=contest,
        measured=measure(contest, question.resamples, question.seed),
        slices=_slices(part, contest, question),
        reference="static" if policy is None else "policy",
        silver=silver,
        notes=[*_notes(part, dropped, question, calibration), *_untold(part)],
        extra={"ties": ties.told(part.columns), **decided.told(part.columns)},
    )


def _most(tables: Iterable[ScoreTable], roles: Roles) -> int:
    """Return the largest number of candidates within depth."""
    most = max(int(np.diff(table.offsets).max()) for table in tables)
    return most if roles.depth is None else min(most, roles.depth)


def _where(name: str, table: ScoreTable, conditions: Sequence[tuple[str, str]]) -> ScoreTable:
    try:
        for column, value in conditions:
            table = table.where(column, value)
    except ConfigError as error:
        raise ConfigError(f"table {name}: {error}") from None
    return table


def _check(calibration: Calibration | None, question: Question) -> None:
    """Refuse a calibration that reads what the evaluation is not told of."""
    unread = set(calibration.channels if calibration else ()) - set(question.roles.first_stage)
    if unread:
        raise ConfigError(
            f"the calibration reads channels that the first stage does not name: {', '.join(sorted(unread))}"
        )


def _notes(part: Part, dropped: int, question: Question, calibration: Calibration | None) -> list[str]:
    notes = [f"{dropped} queries that a reranker scored no candidate of are left out"] if dropped else []
    if calibration is None:
        return notes
    artefact, roles = calibration.artefact, question.roles
    for role, fitted, evaluated in (
        ("small", artefact.small.name, roles.small),
        ("large", artefact.large.name, roles.large),
    ):
        if fitted != evaluated:
            notes.append(f"the calibration was fitted for {role} {fitted}, and {evaluated} is evaluated")
    seen = int(part.columns["fact.seen"].sum())
    if seen:
        notes.append(
            f"SEEN IN FITTING: {seen} of these queries trained the calibration, so that its figures are too good"
        )
    misfits = int(part.columns["fact.misfit"].sum())
    if misfits:
        notes.append(f"the calibration does not hold for the candidates of {misfits} queries: it does not decide there")
    return notes


def _fitted(calibration: Calibration | None) -> dict[str, Any]:
    if calibration is None:
        return {}
    artefact = calibration.artefact
    return {
        "calibration": {
            "sha256": calibration.sha256,
            "method": artefact.method,
            "k": artefact.k,
            "channels": list(artefact.channels),
            "fitted_on": {
                "queries": artefact.trained_on.queries,
                "data_sha256": artefact.trained_on.data_sha256,
                "where": artefact.trained_on.where,
            },
        }
    }


def _untold(part: Part) -> list[str]:
    return [f"no table tells {name}: conditions on it never hold in this replay" for name in sorted(part.never_told)]


def _contest(part: Part, question: Question) -> Contest:
    own = part.own
    reference = (
        at_price(part.sweeps["static"], question.price)
        if own is None
        else at_setting(part.sweeps["policy"], own, "as the release has it")
    )
    return Contest(part.sweeps, points_beside(part.sweeps, reference), question.price)


def _slices(part: Part, contest: Contest, question: Question) -> dict[str, dict[str, Measured]]:
    slices: dict[str, dict[str, Measured]] = {}
    for attribute, told in part.slices.items():
        values = np.array(told)
        for value in sorted(set(told) - {""}):
            chosen = contest.take(np.flatnonzero(values == value))
            slices.setdefault(attribute, {})[value] = measure(chosen, question.resamples, question.seed)
    return slices


def _conditions(
    tables: Mapping[str, ScoreTable], part: Part, dropped: int, replaying: Replaying, *, silver: bool
) -> dict[str, Any]:
    question, roles = replaying.question, replaying.question.roles
    return {
        "tables": [_table(name, table, roles) for name, table in tables.items()],
        "where": [f"{column}={value}" for column, value in question.where],
        "first_stage": list(roles.first_stage),
        "small": roles.small,
        "large": roles.large,
        "depth": roles.depth,
        "k": question.k,
        "metric": question.metric,
        "gain": "1/rank of the large order" if silver else question.gain,
        "judgements": "silver" if silver else "judged",
        "relevant": _RELEVANT,
        "queries_without_relevant": int(part.columns["fact.without_relevant"].sum()),
        "queries_left_out": dropped,
        "price_per_pair": question.price,
        "cost": "pairs scored by the large stage; always-large scores every candidate within depth",
        "oracle": f"knows the large stage's top k and stops along the {replaying.along} order",
        "seed": question.seed,
        "resamples": question.resamples,
    }


def _table(name: str, table: ScoreTable, roles: Roles) -> dict[str, Any]:
    """Return what a table is: the digest covers what the evaluation read of it."""
    judged = ["rel"] if table.rel is not None else []
    judged += ["q_grades"] if table.grades is not None else []
    first = ["rank_first"] if table.rank_first is not None else []
    return {
        "name": name,
        "sha256": data_sha256(table, [*roles.first_stage, roles.small, roles.large, *judged, *first]),
        "queries": len(table.query_ids),
        "pairs": len(table.doc_ids),
        "first_stage_order": table.first_stage_name(roles.first_stage),
        "ideal": "all judged documents" if table.grades is not None else "the candidates in the table",
        "collected": dict(table.conditions),
    }
