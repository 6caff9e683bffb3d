"""Fit the depth of a release from score tables, from beginning to end, and say what was compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from threadpoolctl import threadpool_limits

from cascade.errors import ConfigError
from cascade.fit.benefit import shown_benefit
from cascade.fit.depth import Compared, DepthFit, fit_depth
from cascade.fit.observed import Observed, large_quality, observe
from cascade.metrics import Gain
from cascade.policy.depth_rules import FixedDepth
from cascade.replay.joined import joined
from cascade.replay.queries import Roles, replayed
from cascade.replay.table import ScoreTable

__all__ = ["DEPTH_PRICE", "SENT", "FittedDepth", "depth_grid", "fitted_depth"]

DEPTH_PRICE: Final = 0.0003
"""nDCG that one more candidate must gain, where nobody says otherwise."""
SENT: Final = 20
"""Candidates that stand in large order where the large stage is used: a release sends about so many."""
_STEPS: Final = (10, 20, 30, 50, 75, 100)


@dataclass(frozen=True, slots=True)
class FittedDepth:
    """What was fitted, and lines that say it: the price and the judge, the mean quality by depth, the comparisons.

    ``deeper`` is one more where the large stage is used: what it would find deeper does not count.
    """

    fit: DepthFit
    notes: tuple[str, ...]
    deeper: str


def depth_grid(deepest: int) -> tuple[int, ...]:
    """Return the depths that are tried: 10, 20, 30, 50, 75 and 100 below ``deepest``, and ``deepest``.

    Raises ConfigError where these are fewer than two.
    """
    grid = (*(step for step in _STEPS if step < deepest), deepest)
    if len(grid) < 2:
        raise ConfigError(f"--fit-depth: depths from {_STEPS[0]} on are compared, and no more are scored of any query")
    return grid


def fitted_depth(tables: Sequence[ScoreTable], roles: Roles, k: int, price: float, most: int, seed: int) -> FittedDepth:
    """Fit how many candidates, ``most`` at the outside, the small stage scores, each at a price in nDCG@k.

    Quality is nDCG@k of the order served: of the small order where judgements do not show that the large stage
    helps, else with its first `SENT` in large order on top; by judgements, or without any by the large order:
    silver. Deterministic
    for one seed. Raises ConfigError for what cannot be fitted.
    """
    found = replayed([joined(tables)], roles, k, Gain.LINEAR)
    grid = depth_grid(min(most, max(query.pairs for query in found.queries)))
    sent = 0 if shown_benefit(found.queries, k, seed).status == "none-found" else SENT
    seen = observe(found.queries, k, grid, sent)
    with threadpool_limits(limits=1, user_api="blas"):  # so that sums come out the same whatever the number of cores
        fit = fit_depth(seen, price, seed=seed)
    large = large_quality(found.queries, k, grid).mean(axis=0)
    notes = tuple(_notes(fit, seen, k, price, sent, silver=found.silver))
    return FittedDepth(fit, notes, _deeper(grid, large.tolist()))


def _notes(fit: DepthFit, seen: Observed, k: int, price: float, sent: int, *, silver: bool) -> Iterator[str]:
    if silver:
        yield (
            "DEPTH IS JUDGED BY THE LARGE ORDER, NOT BY JUDGEMENTS: what is relevant is not known, only what the large "
            "stage puts first"
        )
    judge = "silver, by the large order" if silver else "by judgements"
    kept = f"fixed {fit.rule.depth}" if isinstance(fit.rule, FixedDepth) else fit.rule.kind
    yield (
        f"depth: {kept} is kept at {price:g} a candidate, by ndcg@{k} of {_served(sent)}, {judge}, "
        f"of {len(seen.quality)} queries"
    )
    yield f"depth: {_served(sent)}, mean ndcg@{k} at {_by_depth(seen.depths, seen.quality.mean(axis=0).tolist())}"
    if all(name is None for name in seen.classes):
        yield "depth: no column q_class tells classes, so that greedy is a fixed depth"
    yield from map(_comparison, fit.compared)


def _served(sent: int) -> str:
    return f"the small order with its first {sent} in large order" if sent else "the small order"


def _deeper(depths: Sequence[int], large: Sequence[float]) -> str:
    return (
        f"depth: what the large stage would find further down the small order does not count in it: its order of all has "
        f"{_by_depth(depths, large)}. "
        "Prices a pair were replayed with every candidate in reach: see with cascade eval what the release recovers"
    )


def _by_depth(depths: Sequence[int], means: Sequence[float]) -> str:
    return ", ".join(f"{depth}: {mean:.4f}" for depth, mean in zip(depths, means, strict=True))


def _comparison(one: Compared) -> str:
    what = f"depth: {one.kind} against {one.against} at a mean depth of {one.mean_depth:.1f}, cross-fitted"
    verdict = "wins" if one.wins else "does not win"
    return f"{what}: {one.difference:+.4f} [{one.low:+.4f}, {one.high:+.4f}], {verdict}"
