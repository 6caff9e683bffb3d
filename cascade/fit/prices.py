"""Choose prices: the highest at which a cross-fitted replay on the training queries recovers enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from cascade.calibration.artefact import PricePoint
from cascade.calibration.calibrated import Calibration
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import CalibratedEscalation
from cascade.policy.release import Limits
from cascade.replay.columns import FloatArray
from cascade.replay.intervals import figure, resampled
from cascade.replay.policy import Policy, play
from cascade.replay.queries import ReplayedQuery
from cascade.replay.sweep import Metric, Sweep

__all__ = ["TARGETS", "chosen_prices", "replayed_sweep"]

TARGETS: Final = (0.80, 0.90, 0.95, 0.98)
_RESAMPLES: Final = 2000
_ANY_DIGEST: Final = "sha256:" + "0" * 64


def replayed_sweep(
    queries: Sequence[ReplayedQuery],
    fold: Sequence[int],
    calibration_of: Callable[[int], Calibration],
    k: int,
) -> Sweep:
    """Replay the calibrated policy at every price, each query by the calibration that has not seen it."""
    parts, places = [], []
    rule = CalibratedEscalation(kind="calibrated", calibration=_ANY_DIGEST, k=k, price_per_pair=1e-3)  # type: ignore[arg-type]
    depth = max(query.small.size for query in queries)
    limits = Limits(max_candidates=depth)
    for number in sorted(set(fold)):
        mine = [place for place, at in enumerate(fold) if at == number]
        policy = Policy(rule, FixedDepth(depth=depth), limits, calibration_of(number))
        parts.append(play([queries[place] for place in mine], policy, k, Metric.NDCG).sweep)
        places += mine
    return Sweep.side_by_side(parts).take(np.argsort(places))


def chosen_prices(sweep: Sweep, ends: FloatArray, pairs: float, seed: int, *, judged: bool) -> tuple[PricePoint, ...]:
    """Return for each target the cheapest price that recovers it, as far as one does, with its interval.

    ``ends`` (Q, 2) are the qualities of always-small and always-large, ``pairs`` the mean pairs of the latter.
    """
    drawn = resampled(len(ends), _RESAMPLES, seed)
    small, large = drawn.means(ends[:, 0]), drawn.means(ends[:, 1])
    if not large[0] > small[0]:
        return ()
    gap = (large - small)[:, None]
    draws = np.full((len(gap), len(sweep.settings)), -np.inf)
    np.divide(drawn.means(sweep.quality) - small[:, None], gap, out=draws, where=gap > 0)
    recovered = draws[0]
    share = sweep.pairs.mean(axis=1) / pairs
    points = []
    for target in TARGETS:
        enough = np.flatnonzero(recovered >= target)
        if not len(enough):
            continue
        at = enough[np.argmin(share[enough])]
        low, high = figure(draws[:, at], len(ends), "not defined").interval or (None, None)
        points.append(
            PricePoint(
                target=target,
                price=sweep.settings[at],
                recovered=float(recovered[at]),
                low=low,
                high=high,
                large_share=float(share[at]),
                judged_by="judgements" if judged else "large-scores",
            )
        )
    return tuple(points)
