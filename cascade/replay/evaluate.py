"""Replay policies on score tables and measure them: ``cascade eval`` without its command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.metrics import Gain
from cascade.policy.escalation import orders_by_fit
from cascade.replay import baselines
from cascade.replay.measure import Contest, Measured, measure
from cascade.replay.points import at_price, at_setting, points_beside
from cascade.replay.policy import Played, Policy, Progress, play
from cascade.replay.queries import SLICES, Replayed, ReplayedQuery, Roles, query_digest, replayed
from cascade.replay.report import Evaluation
from cascade.replay.sweep import Metric
from cascade.replay.table import ScoreTable, data_sha256
from cascade.replay.tied import tied

__all__ = ["Question", "evaluate"]

_RELEVANT: Final = "grade above 0; queries without a relevant document stay in every mean with 0"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the tables. ``price`` is what a pair costs in units of ``metric``."""

    roles: Roles
    k: int = 10
    gain: Gain = Gain.LINEAR
    metric: Metric = Metric.NDCG
    price: float = 0.0005
    seed: int = 0
    resamples: int = 2000
    where: tuple[tuple[str, str], ...] = ()


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
    found = replayed(list(chosen.values()), question.roles, question.k, question.gain)
    if found.silver and question.metric is not Metric.NDCG:
        raise ConfigError(f"{question.metric} needs judgements, and the tables have none")
    _check(calibration, question)
    played = None if policy is None else play(found.queries, policy, question.k, question.metric, progress)
    contest = _contest(found.queries, question, calibration, policy, played)
    return Evaluation(
        conditions={
            **_conditions(chosen, found, question, "small" if calibration is None else "static-fused"),
            **_fitted(calibration),
            **({} if policy is None else {"policy": dict(policy.described)}),
        },
        contest=contest,
        measured=measure(contest, question.resamples, question.seed),
        slices=_slices(found.queries, contest, question),
        reference="static" if played is None else "policy",
        silver=found.silver,
        notes=[*_notes(found, question, calibration), *_untold(played)],
        extra={
            "ties": {
                "small": asdict(tied(found.queries, lambda query: query.small, question.k)),
                "large": asdict(tied(found.queries, lambda query: query.large, question.k)),
            },
            **_decided(played),
        },
    )


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


def _notes(found: Replayed, question: Question, calibration: Calibration | None) -> list[str]:
    notes = [f"{found.dropped} queries that a reranker scored no candidate of are left out"] if found.dropped else []
    if calibration is None:
        return notes
    artefact, roles = calibration.artefact, question.roles
    for role, fitted, evaluated in (
        ("small", artefact.small.name, roles.small),
        ("large", artefact.large.name, roles.large),
    ):
        if fitted != evaluated:
            notes.append(f"the calibration was fitted for {role} {fitted}, and {evaluated} is evaluated")
    trained = set(artefact.trained_on.query_ids_sha256)
    seen = sum(query_digest(query.id) in trained for query in found.queries)
    if seen:
        notes.append(
            f"SEEN IN FITTING: {seen} of these queries trained the calibration, so that its figures are too good"
        )
    misfits = sum(calibration.misfit(*baselines.within_depth(query)) is not None for query in found.queries)
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


def _untold(played: Played | None) -> list[str]:
    names = () if played is None else played.never_told
    return [f"no table tells {name}: conditions on it never hold in this replay" for name in names]


def _decided(played: Played | None) -> dict[str, Any]:
    """Return what the policy did at its own price, as shares of the queries and means over them."""
    if played is None:
        return {}
    actions = {action.value: share for action, share in played.actions.items()}
    return {"decided": {"actions": actions, "rounds": played.rounds, "depth": played.depth}}


def _contest(
    queries: Sequence[ReplayedQuery],
    question: Question,
    calibration: Calibration | None,
    policy: Policy | None,
    played: Played | None,
) -> Contest:
    k, metric = question.k, question.metric
    by_small = baselines.small_ranks(queries)
    by_value = None if calibration is None else baselines.fused_ranks(queries, calibration, k)
    fused = [] if by_value is None else [baselines.static(queries, k, metric, by_value, "static-fused")]
    if calibration is not None and policy is not None and orders_by_fit(policy.escalation):
        blocks = baselines.final_blocks(queries, calibration)
        fused.append(baselines.static(queries, k, metric, by_small, "static-final", blocks))
    sweeps = [
        baselines.first_stage(queries, k, metric),
        baselines.small(queries, k, metric),
        baselines.large(queries, k, metric),
        baselines.static(queries, k, metric, by_small),
        *fused,
        baselines.random(queries, k, metric),
        baselines.oracle(queries, k, metric, by_small if by_value is None else by_value),
    ]
    if played is None:
        named = {sweep.name: sweep for sweep in sweeps}
        return Contest(named, points_beside(named, at_price(named["static"], question.price)), question.price)
    named = {sweep.name: sweep for sweep in (*sweeps, played.sweep)}
    own = at_setting(played.sweep, played.own, "as the release has it")
    return Contest(named, points_beside(named, own), question.price)


def _slices(queries: Sequence[ReplayedQuery], contest: Contest, question: Question) -> dict[str, dict[str, Measured]]:
    slices: dict[str, dict[str, Measured]] = {}
    for attribute in SLICES:
        values = np.array([query.slices.get(attribute, "") for query in queries])
        for value in sorted(set(values.tolist()) - {""}):
            part = contest.take(np.flatnonzero(values == value))
            slices.setdefault(attribute, {})[value] = measure(part, question.resamples, question.seed)
    return slices


def _conditions(tables: Mapping[str, ScoreTable], found: Replayed, question: Question, along: str) -> dict[str, Any]:
    roles = question.roles
    without = sum(query.judgement.ideal <= 0.0 for query in found.queries)
    return {
        "tables": [_table(name, table, roles) for name, table in tables.items()],
        "where": [f"{column}={value}" for column, value in question.where],
        "first_stage": list(roles.first_stage),
        "small": roles.small,
        "large": roles.large,
        "depth": roles.depth,
        "k": question.k,
        "metric": question.metric,
        "gain": "1/rank of the large order" if found.silver else question.gain,
        "judgements": "silver" if found.silver else "judged",
        "relevant": _RELEVANT,
        "queries_without_relevant": without,
        "queries_left_out": found.dropped,
        "price_per_pair": question.price,
        "cost": "pairs scored by the large stage; always-large scores every candidate within depth",
        "oracle": f"knows the large stage's top k and stops along the {along} order",
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
