"""Replay two policies on the same queries: what changes in quality, in cost, and in what is decided and served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.decision import Action
from cascade.errors import ConfigError
from cascade.policy.escalation_rules import CalibratedEscalation, FusedEscalation
from cascade.replay.columns import FloatArray
from cascade.replay.intervals import Figure, Resamples, figure, resampled
from cascade.replay.policy import Played, Policy, play
from cascade.replay.queries import ReplayedQuery, is_silver, query_digest, replayed_part
from cascade.replay.question import Question
from cascade.replay.source import Source
from cascade.replay.suited import check_calibration, check_conditions, check_relevant, unfinished

__all__ = ["paired"]

_QUERIES: Final = 250
"""Queries that are replayed at a time."""
_COUNTED: Final = ("large_pairs", "small_pairs", "large_tokens", "small_tokens")
_SAMENESS: Final = ("depth", "action", "escalated", "any", "orders")
_SIDES: Final = ("before", "after")

Columns = dict[str, NDArray[Any]]


def paired(sources: Mapping[str, Source], question: Question, before: Policy, after: Policy) -> dict[str, Any]:
    """Return, as plain data, what two policies do on the queries of tables by name, and their paired differences.

    Every figure is a mean over queries with its interval on the same resamples; a difference is ``after`` less
    ``before``. Both are replayed as they stand, at their first load level. Raises ConfigError for what cannot be
    replayed, as an evaluation does.
    """
    for name, source in sources.items():
        check_conditions(name, source.conditions, question)
    ids = [name for source in sources.values() for name in source.query_ids]
    if len(set(ids)) < len(ids):
        raise ConfigError(f"{len(ids) - len(set(ids))} queries are in more than one table; each counts once")
    silver = is_silver([source.judged for source in sources.values()])
    for policy in (before, after):
        check_calibration(policy.calibration, question)
    parts: list[Columns] = []
    dropped = 0
    never_told: dict[str, None] = {}
    for table in (table for source in sources.values() for table in source.partitions(_QUERIES)):
        found = replayed_part(table, question.roles, question.k, question.gain, silver=silver)
        dropped += found.dropped
        if found.queries:
            sides = [play(found.queries, each, question.k, question.metric, prices=()) for each in (before, after)]
            never_told |= dict.fromkeys(name for side in sides for name in side.never_told)
            parts.append(_columns(found.queries, (before, after), sides, question.k))
    if not parts:
        raise ConfigError(f"no query has scores of both {question.roles.small} and {question.roles.large}")
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    check_relevant(columns["without_relevant"])
    drawn = resampled(len(columns["without_relevant"]), question.resamples, question.seed)
    same = _figures({name: columns[name] for name in _SAMENESS}, drawn)
    return {
        "tables": [*sources],
        "queries": drawn.queries,
        "k": question.k,
        "silver": silver,
        "quality": _sides(columns, "quality", drawn),
        "cost": {name: _sides(columns, name, drawn) for name in _COUNTED},
        "decisions": {name: same[name] for name in _SAMENESS if name != "orders"},
        "orders": same["orders"],
        "notes": [
            *(told for name, source in sources.items() if (told := unfinished(name, source.conditions))),
            *_notes(columns, dropped, silver=silver),
            *_notes_of_rules((before, after), question.k),
            *(f"no table tells {name}: conditions on it never hold in this replay" for name in never_told),
        ],
    }


def _columns(queries: Sequence[ReplayedQuery], policies: Sequence[Policy], sides: Sequence[Played], k: int) -> Columns:
    """Return what is known of each query (Q,): of each side under its name, and where the two are not the same."""
    steps = [side.steps for side in sides]
    pairs = [*zip(*steps, strict=True)]
    depth = np.array([one.depth != other.depth for one, other in pairs])
    action = np.array([one.action is not other.action for one, other in pairs])
    escalated = np.array([not np.array_equal(one.sent, other.sent) for one, other in pairs])
    orders = zip(*(side.orders for side in sides), strict=True)
    found: Columns = {
        "small.unscored": np.array([_unscored(query, query.small) for query in queries]),
        "large.unscored": np.array([_unscored(query, query.large) for query in queries]),
        "without_relevant": np.array([query.judgement.ideal <= 0.0 for query in queries]),
        "depth": depth,
        "action": action,
        "escalated": escalated,
        "any": depth | action | escalated,
        "orders": np.array([not np.array_equal(one[:k], other[:k]) for one, other in orders]),
    }
    for name, policy, side in zip(_SIDES, policies, sides, strict=True):
        for what, values in _of_side(queries, policy, side):
            found[f"{name}.{what}"] = values
    return found


def _unscored(query: ReplayedQuery, scores: FloatArray) -> int:
    """Return how many candidates within depth have no score."""
    return query.pairs - int(np.isfinite(scores[: query.pairs]).sum())


def _of_side(queries: Sequence[ReplayedQuery], policy: Policy, side: Played) -> Iterator[tuple[str, NDArray[Any]]]:
    reached = [0 if step.action is Action.DIRECT else step.depth for step in side.steps]
    scored = [np.arange(query.small.size) < most for query, most in zip(queries, reached, strict=True)]
    sent = [step.sent for step in side.steps]
    trained = frozenset(() if policy.calibration is None else policy.calibration.artefact.trained_on.query_ids_sha256)
    yield "quality", side.sweep.quality[side.own]
    yield "large_pairs", np.array([each.sum() for each in sent])
    yield "small_pairs", np.array(reached)
    yield "large_tokens", _tokens(queries, sent)
    yield "small_tokens", _tokens(queries, scored)
    yield "seen", np.array([query_digest(query.id) in trained for query in queries])
    yield "misfit", np.array([step.misfit is not None for step in side.steps])


def _tokens(queries: Sequence[ReplayedQuery], scored: Sequence[NDArray[np.bool_]]) -> FloatArray:
    """Return the tokens (Q,) of the pairs that were scored, NaN where the table does not count them."""
    counted = [
        np.nan if query.tokens is None else float(query.tokens[each].sum())
        for query, each in zip(queries, scored, strict=True)
    ]
    return np.array(counted, dtype=np.float64)


def _sides(columns: Columns, what: str, drawn: Resamples) -> dict[str, Any] | None:
    """Return the means of both sides and their difference, None where a table does not count it."""
    before, after = (np.asarray(columns[f"{name}.{what}"], dtype=np.float64) for name in _SIDES)
    if np.isnan(before).any() or np.isnan(after).any():
        return None
    return _figures({"before": before, "after": after, "difference": after - before}, drawn)


def _figures(values: Mapping[str, NDArray[Any]], drawn: Resamples) -> dict[str, Any]:
    means = drawn.means(np.stack([*values.values()]))
    return {name: _plain(figure(means[:, at], drawn.queries, "")) for at, name in enumerate(values)}


def _plain(found: Figure) -> dict[str, Any]:
    return {
        "value": found.value,
        "interval": None if found.interval is None else list(found.interval),
        **({} if found.reason is None else {"reason": found.reason}),
    }


def _notes(columns: Columns, dropped: int, *, silver: bool) -> Iterator[str]:
    if silver:
        yield "the tables have no judgements: quality is agreement with the order of the large reranker"
    if dropped:
        yield f"{dropped} queries that a reranker scored no candidate of are left out"
    without = int(columns["without_relevant"].sum())
    if without:
        yield f"{without} queries have no relevant document and stay in every mean with 0"
    for stage in ("small", "large"):
        unscored = columns[f"{stage}.unscored"]
        if unscored.any():
            yield (
                f"{int(unscored.sum())} pairs of {int((unscored > 0).sum())} queries have no {stage} score: they stay "
                "candidates, behind those that have one"
            )
    for name in _SIDES:
        seen, misfits = (int(columns[f"{name}.{what}"].sum()) for what in ("seen", "misfit"))
        if seen:
            yield f"SEEN IN FITTING: {seen} of these queries trained the calibration of the release {name}"
        if misfits:
            yield f"the calibration of the release {name} does not hold for {misfits} queries: it does not decide there"


def _notes_of_rules(policies: Sequence[Policy], k: int) -> Iterator[str]:
    for name, policy in zip(_SIDES, policies, strict=True):
        rule = policy.escalation
        if isinstance(rule, CalibratedEscalation | FusedEscalation) and rule.k != k:
            yield f"the release {name} decides for the top {rule.k}, and quality is at {k}"
