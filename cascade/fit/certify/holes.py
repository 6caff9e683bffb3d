"""How far a certificate depends on what nobody judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cascade.calibration.certificate import Judged
from cascade.fit.certify.asked import Asked
from cascade.fit.certify.levels import Budget
from cascade.fit.certify.splits import betting_order
from cascade.replay import baselines
from cascade.replay.coded import decoded
from cascade.replay.policy import Policy, play
from cascade.replay.queries import ReplayedQuery, replayed
from cascade.replay.sweep import Metric, Sweep
from cascade.replay.table import ScoreTable
from cascade.statistics.betting import Prior, betting_upper_bound

__all__ = ["filled", "judged_heads"]


def judged_heads(
    table: ScoreTable, queries: Sequence[ReplayedQuery], asked: Asked, policy: Policy, budget: Budget, prior: Prior
) -> Judged | None:
    """Return how much of both heads is judged, and the bound where the rest is worth nothing, and most.

    None for a silver contract, which reads no judgement. Where all is judged the two are the same.
    """
    if asked.kind == "silver":
        return None
    large, served = _both(queries, asked, policy)
    nothing = _bound(queries, asked, budget, prior, large, served)
    if table.rel is None or not (table.rel < 0).any():
        most = nothing
    else:
        chosen = {query.id for query in queries}
        part = table.take([place for place, name in enumerate(table.query_ids) if name in chosen])
        others = replayed([filled(part)], asked.roles, asked.k, asked.gain).queries
        most = _bound(others, asked, budget, prior, *_both(others, asked, policy))
    return Judged(
        large=float(np.mean(decoded(large.judged))),
        policy=float(np.mean(decoded(served.judged))),
        bound_unjudged_nothing=nothing,
        bound_unjudged_most=most,
    )


def filled(table: ScoreTable) -> ScoreTable:
    """Return a judged table in which every unjudged candidate has the highest grade that there is."""
    rel = np.zeros(0, dtype=np.int64) if table.rel is None else table.rel
    highest = max(1, int(rel.max(initial=0)), *(max(grades, default=0) for grades in table.grades or ()))
    grades = None
    if table.grades is not None:
        unjudged = [int((rel[table.rows(query)] < 0).sum()) for query in range(len(table.query_ids))]
        grades = tuple((highest,) * count + known for count, known in zip(unjudged, table.grades, strict=True))
    return replace(table, rel=np.where(rel < 0, highest, rel), grades=grades)


def _both(queries: Sequence[ReplayedQuery], asked: Asked, policy: Policy) -> tuple[Sweep, Sweep]:
    large = baselines.large(queries, asked.k, Metric.NDCG)
    return large, play(queries, policy, asked.k, Metric.NDCG, prices=()).sweep


def _bound(
    queries: Sequence[ReplayedQuery], asked: Asked, budget: Budget, prior: Prior, large: Sweep, served: Sweep
) -> float:
    order = betting_order([query.id for query in queries], asked.seed)
    losses = asked.losses(large.quality[0], served.quality[0])[order]
    return betting_upper_bound(losses, budget.epsilon, budget.delta, asked.bets, prior)
