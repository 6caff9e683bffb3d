"""How far two orders of the same candidates agree, and which channel leads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from cascade.signals.channel import MISSING, Curve, FloatArray

__all__ = ["kendall", "overlap", "rbo", "source_diversity"]

_PERSISTENCE: Final = 0.9
_TOP: Final = 20


def overlap(one: Curve, other: Curve, k: int) -> float:
    """Return |top k of one and of the other| / k; k shrinks to the shorter list, missing where one is empty."""
    depth = min(k, one.count, other.count)
    if not depth:
        return MISSING
    common = set(one.order[:depth].tolist()) & set(other.order[:depth].tolist())
    return len(common) / depth


def rbo(one: Curve, other: Curve) -> float:
    """Return the extrapolated rank-biased overlap at p = 0.9, both lists read to the length of the shorter.

    RBO_ext = X_k / k p^k + (1-p)/p sum_{d<=k} X_d / d p^d, with X_d the number common to the first d of
    both (Webber, Moffat and Zobel 2010, the extrapolated form). A candidate counts from the deeper
    of its two ranks on, so the sum is over candidates, by a table.
    """
    depth = min(one.count, other.count)
    if not depth:
        return MISSING
    deeper = np.maximum(one.places, other.places)
    return min(1.0, float(np.add.reduce(_rbo_weights(depth).take(deeper, mode="clip"))))


@lru_cache(maxsize=512)
def _rbo_weights(depth: int) -> FloatArray:
    """Return what a candidate adds by the deeper of its ranks from zero; the last entry, zero, is for all beyond."""
    ranks = np.arange(1, depth + 1)
    powers = _PERSISTENCE**ranks
    terms = (1.0 - _PERSISTENCE) / _PERSISTENCE * powers / ranks
    weights = np.append(np.cumsum(terms[::-1])[::-1] + powers[-1] / depth, 0.0)
    weights.flags.writeable = False
    return weights


def kendall(one: Curve, other: Curve) -> float:
    """Return Kendall's tau-b over the union of both top 20.

    A candidate that a list lacks ties below all that it has. Missing where either list ties all of them.
    """
    if not one.count or not other.count:
        return MISSING
    among = (np.minimum(one.places, other.places) < min(_TOP, one.total)).nonzero()[0]
    a, b = one.scores[among], other.scores[among]
    a_above, b_above = a[:, None] > a, b[:, None] > b
    untied = math.sqrt(int(np.count_nonzero(a_above)) * int(np.count_nonzero(b_above)))
    if not untied:
        return MISSING
    concordant = int(np.count_nonzero(a_above & b_above))
    discordant = int(np.count_nonzero(a_above & b_above.T))
    return min(1.0, max(-1.0, (concordant - discordant) / untied))


def source_diversity(curves: Sequence[Curve]) -> float:
    """Return the entropy of which channel ranks a candidate best, over the first stage's top 20, by ln(channels).

    1 where all channels lead equally often, 0 where one always does. Channels that rank a candidate
    alike share it; a candidate that none has is left out. Missing below two channels with scores.
    """
    curves = [curve for curve in curves if curve.count]
    if len(curves) < 2:
        return MISSING
    places = np.array([curve.places[:_TOP] for curve in curves])
    best = np.minimum.reduce(places)
    leads = places == best
    weights = (best < curves[0].total) / np.add.reduce(leads, dtype=np.float64)
    shares: list[float] = leads.dot(weights).tolist()
    total = sum(shares)
    if not total:
        return MISSING
    nats = -sum(share / total * math.log(share / total) for share in shares if share > 0.0)
    return min(1.0, max(0.0, nats / math.log(len(curves))))
