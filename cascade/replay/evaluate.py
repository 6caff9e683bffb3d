"""Replay policies on score tables and measure them: ``cascade eval`` without its command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.policy.levels import NORMAL
from cascade.replay.economics import Terms
from cascade.replay.intervals import resampled
from cascade.replay.measure import Contest, Measured, measure
from cascade.replay.part import Part
from cascade.replay.partition import Replaying, replay_partition
from cascade.replay.points import at_price, at_setting, points_beside
from cascade.replay.policy import Policy
from cascade.replay.queries import Roles, is_silver
from cascade.replay.question import Question
from cascade.replay.report import Evaluation
from cascade.replay.runs import Run, in_turn
from cascade.replay.score_table import ScoreTable
from cascade.replay.sections import decided, economics, joined, levels, ties
from cascade.replay.side_by_side import SideBySide
from cascade.replay.source import Source, source_in_memory
from cascade.replay.suited import (
    check_calibration,
    check_conditions,
    check_relevant,
    notes_of,
    notes_of_policy,
    unfinished,
)
from cascade.replay.sweep import Metric

__all__ = ["PARTITION_QUERIES", "Advance", "Question", "evaluate"]

PARTITION_QUERIES: Final = 250
"""Queries that are replayed, and held with all their candidates, at a time."""

Advance = Callable[[int, int], None]
"""Told how many queries are replayed, and of how many."""

_NO_TERMS: Final = Terms()
_RELEVANT: Final = "grade above 0; queries without a relevant document stay in every mean with 0"


def evaluate(
    tables: Mapping[str, ScoreTable | Source],
    question: Question,
    calibration: Calibration | None = None,
    policy: Policy | None = None,
    *,
    at_levels: Mapping[str, Policy | None] | None = None,
    terms: Terms = _NO_TERMS,
    run: Run = in_turn,
    partition_queries: int = PARTITION_QUERIES,
    advance: Advance = lambda done, total: None,
) -> Evaluation:
    """Replay the baselines on ``tables`` by name, a partition of whole queries at a time, and measure them.

    With a calibration there is ``static-fused`` too, with a policy whose block has a fitted order
    ``static-final``, which has it as well, and with a policy ``policy``; the others are then
    reported at its cost. ``at_levels`` are the policies of its load levels, ``policy`` the first of them;
    ``terms`` say what time and money are. Neither ``run`` nor ``partition_queries`` changes a digit. Raises ConfigError for what
    cannot be replayed.
    """
    sources = {name: _source(name, table, question) for name, table in tables.items()}
    for name, source in sources.items():
        check_conditions(name, source.conditions, question)
    names = [name for source in sources.values() for name in source.query_ids]
    if len(set(names)) < len(names):
        raise ConfigError(f"{len(names) - len(set(names))} queries are in more than one table; each counts once")
    silver = is_silver([source.judged for source in sources.values()])
    if silver and question.metric is not Metric.NDCG:
        raise ConfigError(f"{question.metric} needs judgements, and the tables have none")
    check_calibration(calibration, question)
    if at_levels is None:
        at_levels = {} if policy is None else {NORMAL: policy}
    replaying = Replaying(question, _most(sources.values(), question.roles), calibration, policy, silver, at_levels)
    whole, done, dropped = SideBySide(len(names)), 0, 0
    for returned in run(partial(replay_partition, replaying), _partitions(sources, partition_queries)):
        done, dropped = done + returned.queries, dropped + returned.dropped
        if returned.part is not None:
            whole.add(returned.part)
        advance(done, len(names))
    if not len(whole):
        raise ConfigError(f"no query has scores of both {question.roles.small} and {question.roles.large}")
    part = whole.whole()
    check_relevant(part.columns["fact.without_relevant"])
    contest = _contest(part, question)
    measured = measure(contest, question.resamples, question.seed)
    return Evaluation(
        conditions={
            **_conditions(sources, part, dropped, replaying),
            **_fitted(calibration),
            **({} if policy is None else {"policy": dict(policy.described)}),
        },
        contest=contest,
        measured=measured,
        slices=_slices(part, contest, measured, question),
        reference="static" if policy is None else "policy",
        silver=silver,
        notes=[
            *_unfinished(sources),
            *notes_of(part, dropped, replaying.most, question, calibration),
            *notes_of_policy(part, policy, question),
        ],
        extra={
            "ties": ties.told(part.columns),
            **decided.told(part.columns),
            **joined.told(part, contest, question, replaying.most),
            **_at_levels(part, contest, replaying, terms),
        },
    )


def _at_levels(part: Part, contest: Contest, replaying: Replaying, terms: Terms) -> dict[str, Any]:
    names, question = list(replaying.levels), replaying.question
    drawn = resampled(len(part.ids), question.resamples, question.seed)
    return {
        "levels": levels.told(part.columns, names, contest.sweeps["large"], drawn),
        "latency": economics.latency_told(part.columns, names, terms, drawn),
        "cost": economics.cost_told(part.columns, names, terms, drawn),
    }


def _source(name: str, table: ScoreTable | Source, question: Question) -> Source:
    if isinstance(table, Source):
        return table
    return source_in_memory(name, table, question.roles, question.where)


def _partitions(sources: Mapping[str, Source], queries: int) -> Iterator[tuple[str, ScoreTable]]:
    for name, source in sources.items():
        for table in source.partitions(queries):
            yield name, table


def _most(sources: Iterable[Source], roles: Roles) -> int:
    """Return the largest number of candidates within depth."""
    most = max(source.most for source in sources)
    return most if roles.depth is None else min(most, roles.depth)


def _unfinished(sources: Mapping[str, Source]) -> list[str]:
    told = (unfinished(name, source.conditions) for name, source in sources.items())
    return [each for each in told if each]


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


def _contest(part: Part, question: Question) -> Contest:
    own = part.own
    reference = (
        at_price(part.sweeps["static"], question.price)
        if own is None
        else at_setting(part.sweeps["policy"], own, "as the release has it")
    )
    best = part.columns["regret.best"]
    return Contest(part.sweeps, points_beside(part.sweeps, reference), question.price, best)


def _slices(part: Part, contest: Contest, measured: Measured, question: Question) -> dict[str, dict[str, Measured]]:
    slices: dict[str, dict[str, Measured]] = {}
    for attribute, told in part.slices.items():
        values = np.array(told)
        for value in sorted(set(told) - {""}):
            chosen = np.flatnonzero(values == value)
            slices.setdefault(attribute, {})[value] = (
                measured  # the same queries and the same resamples
                if chosen.size == len(part.ids)
                else measure(contest.take(chosen), question.resamples, question.seed)
            )
    return slices


def _conditions(sources: Mapping[str, Source], part: Part, dropped: int, replaying: Replaying) -> dict[str, Any]:
    question, roles = replaying.question, replaying.question.roles
    return {
        "tables": [_table(name, source) for name, source in sources.items()],
        "where": [f"{column}={value}" for column, value in question.where],
        "first_stage": list(roles.first_stage),
        "small": roles.small,
        "large": roles.large,
        "depth": roles.depth,
        "k": question.k,
        "metric": question.metric,
        "gain": "1/rank of the large order" if replaying.silver else question.gain,
        "judgements": "silver" if replaying.silver else "judged",
        "relevant": _RELEVANT,
        "queries_without_relevant": int(part.columns["fact.without_relevant"].sum()),
        "queries_left_out": dropped,
        "pairs_without_score": {role: int(part.columns[f"fact.without_{role}"].sum()) for role in ("small", "large")},
        "price_per_pair": question.price,
        "cost": "pairs scored by the large stage; always-large scores every candidate within depth",
        "oracle": f"knows the large stage's top k and stops along the {replaying.along} order",
        "seed": question.seed,
        "resamples": question.resamples,
    }


def _table(name: str, source: Source) -> dict[str, Any]:
    """Return what a table is: the digest covers what the evaluation read of it."""
    return {
        "name": name,
        "sha256": source.sha256,
        "queries": len(source.query_ids),
        "pairs": source.pairs,
        "first_stage_order": source.first_stage_order,
        "ideal": source.ideal,
        "collected": dict(source.conditions),
    }
