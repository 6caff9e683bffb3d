"""The policies that a policy is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cascade.calibration.calibrated import Calibration
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.queries import ReplayedQuery
from cascade.replay.serving import ranks_by_score
from cascade.replay.sweep import Metric, Sweep, outcome, sweep_of

__all__ = [
    "Ranks",
    "final_blocks",
    "first_stage",
    "fused_ranks",
    "large",
    "oracle",
    "random",
    "small",
    "small_ranks",
    "static",
    "within_depth",
]

Ranks = Sequence[IntArray]
"""The order in which a policy would send each query's candidates: ranks (n,) from 0, in first-stage order."""

_WORTHS: Final = (0.0, *np.geomspace(1e-4, 1.0, 60).tolist())
"""What a pair costs the oracle, in shares of the large top k."""


def small_ranks(queries: Sequence[ReplayedQuery]) -> Ranks:
    """Return ranks by small score; what the small stage did not score comes last."""
    return [ranks_by_score(query.small) for query in queries]


def fused_ranks(queries: Sequence[ReplayedQuery], calibration: Calibration, k: int) -> Ranks:
    """Return ranks by the expected share of the large order's gain at k, which fuses all channels.

    ``k`` is one of the calibration's cutoffs, else its own k counts. Where the calibration does not fit
    a query's candidates it is the small order, as in the safe mode.
    """
    cutoff = k if k in calibration.artefact.cutoffs else calibration.k
    return [ranks_by_score(_expected(query, calibration, cutoff)) for query in queries]


def _expected(query: ReplayedQuery, calibration: Calibration, cutoff: int) -> FloatArray:
    small, channels = within_depth(query)
    if calibration.misfit(small, channels) is not None:
        return query.small
    expected = np.full(query.small.size, np.nan)
    expected[: query.pairs] = calibration.value(calibration.entry(small, channels), cutoff)
    return expected


def final_blocks(queries: Sequence[ReplayedQuery], calibration: Calibration) -> list[FloatArray]:
    """Return what each query's scored candidates (n,) are ordered by where the release asks for the fitted order."""
    return [_final(query, calibration) for query in queries]


def _final(query: ReplayedQuery, calibration: Calibration) -> FloatArray:
    small, channels = within_depth(query)
    if calibration.misfit(small, channels) is not None:
        return query.large
    scores = calibration.final_scores(calibration.estimate(small, channels), query.large[: query.pairs])
    if scores is None:
        return query.large
    block = np.full(query.large.size, np.nan)
    block[: query.pairs] = scores
    return block


def within_depth(query: ReplayedQuery) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Return the small scores and the channels of the candidates that rerankers may score."""
    return query.small[: query.pairs], {name: scores[: query.pairs] for name, scores in query.channels.items()}


def first_stage(queries: Sequence[ReplayedQuery], k: int, metric: Metric) -> Sweep:
    """Serve the order that came, and send nothing anywhere."""
    outcomes = (outcome(query, _none(query), k, small=np.full_like(query.small, np.nan)) for query in queries)
    return sweep_of("first-stage", (0.0,), outcomes, metric)


def small(queries: Sequence[ReplayedQuery], k: int, metric: Metric) -> Sweep:
    """Serve the small order."""
    return sweep_of("small", (0.0,), (outcome(query, _none(query), k) for query in queries), metric)


def large(queries: Sequence[ReplayedQuery], k: int, metric: Metric) -> Sweep:
    """Send every candidate within depth to the large stage."""
    return sweep_of("large", (1.0,), (outcome(query, _all(query), k) for query in queries), metric)


def random(queries: Sequence[ReplayedQuery], k: int, metric: Metric) -> Sweep:
    """Send all of a random share of the queries.

    Expected over the draw, everything is linear in the share, so that its two ends are the whole sweep.
    """
    outcomes = (outcome(query, np.concatenate([_all(query), _none(query)]), k) for query in queries)
    return sweep_of("random", (1.0, 0.0), outcomes, metric)


def static(
    queries: Sequence[ReplayedQuery],
    k: int,
    metric: Metric,
    ranks: Ranks,
    name: str = "static",
    blocks: Sequence[FloatArray] | None = None,
    most: int | None = None,
) -> Sweep:
    """Send the first m of an order, the same m for every query, for every m up to ``most``.

    ``blocks`` are what the scored candidates are ordered by, where that is not the large scores. Without
    ``most`` it is as many as any of these queries has.
    """
    settings = np.arange(max(query.pairs for query in queries) if most is None else most, -1, -1)
    ordered_by = [query.large for query in queries] if blocks is None else blocks
    outcomes = (
        outcome(query, _first(query, order, settings), k, block=block)
        for query, order, block in zip(queries, ranks, ordered_by, strict=True)
    )
    return sweep_of(name, settings.astype(np.float64).tolist(), outcomes, metric)


def oracle(queries: Sequence[ReplayedQuery], k: int, metric: Metric, ranks: Ranks) -> Sweep:
    """Know the large stage's top k, and stop along an order where what is left of it is not worth the pairs.

    No rule that stops along the same order does better at finding the large top k. It is no bound on
    quality: where the large stage errs, a policy that finds less of it may serve better. The setting is
    what a pair costs, in shares of that top k: from every member of it to nothing.
    """
    outcomes = (
        outcome(query, _first(query, order, _stops(query, order, k)), k)
        for query, order in zip(queries, ranks, strict=True)
    )
    return sweep_of("oracle", _WORTHS, outcomes, metric)


def _stops(query: ReplayedQuery, ranks: IntArray, k: int) -> IntArray:
    """Return how many to send at each worth: the least that gives the greatest share found minus cost."""
    wanted = np.isfinite(query.large) & (ranks_by_score(query.large) < k)
    along = np.zeros(ranks.size)
    along[ranks] = wanted
    found = np.concatenate([[0.0], np.cumsum(along)]) / max(1, int(wanted.sum()))
    return np.asarray(np.argmax(found - np.multiply.outer(_WORTHS, np.arange(found.size)), axis=1))


def _first(query: ReplayedQuery, ranks: IntArray, counts: IntArray) -> NDArray[np.bool_]:
    """Return the sets (S, n) of the first of an order that lie within depth."""
    within = np.arange(ranks.size) < query.pairs
    chosen: NDArray[np.bool_] = (ranks < counts[:, None]) & within
    return chosen


def _all(query: ReplayedQuery) -> NDArray[np.bool_]:
    return (np.arange(query.small.size) < query.pairs)[None, :]


def _none(query: ReplayedQuery) -> NDArray[np.bool_]:
    return np.zeros((1, query.small.size), dtype=np.bool_)
