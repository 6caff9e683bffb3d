"""What a depth costs and gives: candidates' recall, then quality, then time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.decision import Action
from cascade.metrics import recall_rows
from cascade.policy.depth_rules import FixedDepth
from cascade.replay.actions import depths_within, quality_rows
from cascade.replay.columns import FloatArray
from cascade.replay.intervals import Figure, Resamples, undefined
from cascade.replay.percentile import percentile
from cascade.replay.policy import Played, Policy, play
from cascade.replay.queries import ReplayedQuery
from cascade.replay.question import Question
from cascade.replay.report import split
from cascade.replay.sections.means import mean_figures
from cascade.replay.serving import served_orders

__all__ = ["columns", "told"]

_P95: Final = 0.95
_POLICIES: Final = ("small", "large", "policy")
_NO_POLICY: Final = "no policy was replayed"
_NO_MS: Final = "the table does not tell the milliseconds of every pair"
_SILVER: Final = "the table has no judgements"


def columns(
    queries: Sequence[ReplayedQuery], question: Question, policy: Policy | None, most: int
) -> dict[str, NDArray[Any]]:
    """Return for each depth of :func:`cascade.replay.actions.depths_within` quality and milliseconds (Q, D).

    ``small`` serves the small order of the first d candidates, ``large`` sends all of them, ``policy`` is
    the release's with a fixed depth of d, at its own price. Milliseconds, NaN where a pair's are not
    told, are the sum over the pairs that each scores, one after the other.
    """
    found: dict[str, list[FloatArray]] = {}
    for depth in depths_within(most):
        at_depth = _fixed(queries, question, depth)
        if policy is not None:
            fixed = replace(policy, depth=FixedDepth(depth=depth))
            played = play(queries, fixed, question.k, question.metric, prices=())
            at_depth["policy"] = played.sweep.quality[played.own]
            at_depth["policy_ms"] = _policy_ms(queries, played)
        for name, values in at_depth.items():
            found.setdefault(f"depth_sweep.{name}", []).append(values)
    return {name: np.stack(values, axis=1) for name, values in found.items()}


def _fixed(queries: Sequence[ReplayedQuery], question: Question, depth: int) -> dict[str, FloatArray]:
    """Return what needs no policy (Q,): recall of the first candidates, quality and time of both stages on them."""
    recall, small, large = [], [], []
    for query in queries:
        within = np.arange(query.small.size) < min(depth, query.pairs)
        sent = np.stack([np.zeros_like(within), within])
        orders = served_orders(sent, np.where(within, query.small, np.nan), query.large)
        quality = quality_rows(query.judgement, orders, question.k, question.metric)
        small.append(quality[0])
        large.append(quality[1])
        recall.append(recall_rows(query.judgement.relevant, query.judgement.total, depth))
    told = {"small": np.array(small), "large": np.array(large)}
    told |= {
        f"{stage}_ms": np.array([_ms(query, stage, np.arange(query.small.size) < depth) for query in queries])
        for stage in ("small", "large")
    }
    return told if queries[0].judgement.silver else {"recall": np.array(recall), **told}


def _ms(query: ReplayedQuery, stage: str, scored: NDArray[np.bool_]) -> float:
    if stage not in query.ms:
        return float("nan")
    return float(query.ms[stage][scored & (np.arange(scored.size) < query.pairs)].sum())


def _policy_ms(queries: Sequence[ReplayedQuery], played: Played) -> FloatArray:
    spent = []
    for query, step in zip(queries, played.steps, strict=True):
        reached = 0 if step.action is Action.DIRECT else step.depth
        spent.append(_ms(query, "small", np.arange(query.small.size) < reached) + _ms(query, "large", step.sent))
    return np.array(spent)


def told(columns: Mapping[str, NDArray[Any]], most: int, drawn: Resamples) -> list[dict[str, Any]]:
    """Return a row for each depth; ``p95_ms`` holds the 95th percentile over queries of each policy."""
    return [{"depth": depth, **split(_row(columns, at, drawn))} for at, depth in enumerate(depths_within(most))]


def _row(columns: Mapping[str, NDArray[Any]], at: int, drawn: Resamples) -> dict[str, Any]:
    means = {
        name: columns[f"depth_sweep.{column}"][:, at]
        for name, column in (("candidate_recall", "recall"), *((policy, policy) for policy in _POLICIES))
        if f"depth_sweep.{column}" in columns
    }
    absent = {"candidate_recall": undefined(_SILVER), "policy": undefined(_NO_POLICY)}
    times: dict[str, Figure] = {"policy": undefined(_NO_POLICY)}
    for name in _POLICIES:
        if f"depth_sweep.{name}_ms" in columns:
            times[name] = percentile(columns[f"depth_sweep.{name}_ms"][:, at], _P95, _NO_MS)
    return {**absent, **mean_figures(means, drawn), "p95_ms": times}
