"""Describe each candidate by scale-free features of its small score and its first-stage channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["SMALL", "Described", "describe", "pair_feature_names", "query_feature_names"]

FloatArray = npt.NDArray[np.float64]

SMALL: Final = "small"
"""What the small stage's features are named for; no channel may be."""
_RRF: Final = 60.0
_MAD_TO_SD: Final = 1.4826
_LEAST_SPREAD: Final = 1e-9
"""Of the median's size: a spread below it is rounding."""
_LARGEST: Final = 1e150
"""Scores beyond it count as it, so that no difference of two overflows."""
_Z_RANGE: Final = (-8.0, 12.0)
_EFFECT_RANGE: Final = (-4.0, 6.0)
_EFFECT_SCALE: Final = 3.0
_PAIR: Final = ("z", "log_rank", "z_minus_10th", "z_minus_1st")
_QUERY: Final = ("gap_1_10", "gap_10_30", "z_10th")


@dataclass(frozen=True, slots=True)
class Described:
    """The features of one query's candidates, in the order given.

    ``pair`` is (n, P) and ``query`` (Q,), named by `pair_feature_names` and `query_feature_names`;
    ``missing`` is (n, S), 1.0 where a scorer has no score for a candidate; ``effects`` is (n, 1 + S),
    one and the clipped z of each scorer, along which a query's scores may stray from what is usual.
    """

    pair: FloatArray
    query: FloatArray
    missing: FloatArray
    effects: FloatArray


def pair_feature_names(channels: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns of ``Described.pair``."""
    scorers = (SMALL, *channels)
    return (*(f"{name}.{feature}" for feature in _PAIR for name in scorers), "rrf", "log_rrf_rank")


def query_feature_names(channels: Sequence[str]) -> tuple[str, ...]:
    """Return the names of ``Described.query``."""
    return tuple(f"{name}.{feature}" for feature in _QUERY for name in (SMALL, *channels))


def describe(small: FloatArray, channels: Mapping[str, FloatArray]) -> Described:
    """Return the features of n >= 1 candidates.

    ``small`` holds logits, cosines or whatever the small stage's scores are on a scale where a
    constant may be added; channels are as the first stage gave them. All are (n,), NaN where missing.
    Each scorer is standardised within the query by median and MAD, so that no scale is carried over,
    and a missing score takes the query's median and the last rank. Ranks of equal scores keep the order
    given. RRF sums 1 / (60 + rank) over the scorers that have the candidate.
    """
    scores = np.stack([small, *channels.values()])
    missing = ~np.isfinite(scores)
    scores = np.clip(scores, -_LARGEST, _LARGEST)
    count = scores.shape[1]
    filled = np.where(missing, -np.inf, scores)
    by_score = np.argsort(-filled, axis=1, kind="stable")
    descending = np.take_along_axis(filled, by_score, axis=1)
    present = count - missing.sum(axis=1)
    z_sorted, centre, spread = _standardised(descending, present)
    with np.errstate(over="ignore"):  # what lies so far out is clipped
        z = np.where(missing, 0.0, (np.where(missing, 0.0, scores) - centre[:, None]) / spread[:, None])
    z = np.clip(z, *_Z_RANGE)
    first, tenth, thirtieth = (_kth(z_sorted, present, k) for k in (1, 10, 30))
    ranks = np.empty_like(scores)
    np.put_along_axis(ranks, by_score, np.arange(1.0, count + 1.0)[None], axis=1)
    ranks[missing] = count
    rrf = np.where(missing, 0.0, 1.0 / (_RRF + ranks)).sum(axis=0)
    rrf_rank = np.empty(count)
    rrf_rank[np.argsort(-rrf, kind="stable")] = np.arange(1.0, count + 1.0)
    pair = np.concatenate(
        [
            z,
            np.log(ranks),
            np.where(missing, 0.0, z - tenth[:, None]),
            np.where(missing, 0.0, z - first[:, None]),
            rrf[None],
            np.log(rrf_rank)[None],
        ]
    ).T
    query = np.concatenate([first - tenth, tenth - thirtieth, tenth])
    effects = np.concatenate([np.ones((1, count)), np.clip(z, *_EFFECT_RANGE) / _EFFECT_SCALE]).T
    return Described(pair, query, missing.T.astype(np.float64), effects)


def _standardised(descending: FloatArray, present: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return each row's z in descending order, its median and its spread; rows end in -inf where missing."""
    centre = -_medians(-descending, present)
    with np.errstate(invalid="ignore", over="ignore"):
        spread = _MAD_TO_SD * _medians(np.sort(np.abs(descending - centre[:, None]), axis=1), present)
        # Where most scores are equal nothing but the order is known; where all are, not even that.
        spread = np.where(spread > _LEAST_SPREAD * np.abs(centre), spread, np.inf)
        z = (descending - centre[:, None]) / spread[:, None]
    return np.clip(np.nan_to_num(z, nan=_Z_RANGE[0]), *_Z_RANGE), centre, spread


def _medians(rising: FloatArray, present: npt.NDArray[np.int64]) -> FloatArray:
    """Return the median of the first ``present`` of each row of sorted values, 0 where there is none."""
    row = np.arange(len(rising))
    low, high = np.maximum(present - 1, 0) // 2, present // 2
    high = np.minimum(high, rising.shape[1] - 1)
    return np.where(present > 0, (rising[row, low] + rising[row, high]) / 2.0, 0.0)


def _kth(z_sorted: FloatArray, present: npt.NDArray[np.int64], k: int) -> FloatArray:
    """Return the k-th highest z of each row, the lowest where there are fewer, 0 where there is none."""
    at = np.clip(np.minimum(present, k) - 1, 0, None)
    return np.where(present > 0, z_sorted[np.arange(len(z_sorted)), at], 0.0)
