"""Training data: each query's scores in first-stage order, and the prefixes that estimates must hold on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.calibration.calibrated import to_additive_space
from cascade.calibration.features import describe
from cascade.calibration.gain import CUTOFFS
from cascade.replay.queries import ReplayedQuery
from cascade.types import ScoreSpace

__all__ = ["PREFIXES", "Examples", "TrainingQuery", "examples", "folds_of", "prefix", "top_c", "training_query"]

FloatArray = npt.NDArray[np.float64]

PREFIXES: Final = (10, 20, 50)
"""Lengths that queries are cut to in turn, so that estimates also hold where the first stage gave fewer."""


@dataclass(frozen=True, slots=True)
class TrainingQuery:
    """One query's candidates in first-stage order, every array (n,), NaN where missing.

    ``small`` and ``large`` are on scales where a constant may be added.
    """

    small: FloatArray
    channels: Mapping[str, FloatArray]
    large: FloatArray


@dataclass(frozen=True, slots=True)
class Examples:
    """The pairs of many queries that both stages scored, stacked: features, the large score, and its top c."""

    pair: FloatArray
    query: FloatArray
    missing: FloatArray
    large: FloatArray
    in_top: npt.NDArray[np.bool_]


def training_query(query: ReplayedQuery, small: ScoreSpace, large: ScoreSpace) -> TrainingQuery:
    """Return what is learnt from of a query: its candidates within depth."""
    within = slice(0, query.pairs)
    return TrainingQuery(
        to_additive_space(query.small[within], small),
        {name: scores[within] for name, scores in query.channels.items()},
        to_additive_space(query.large[within], large),
    )


def prefix(query: TrainingQuery, depth: int) -> TrainingQuery:
    """Return the query as if the first stage had given its first ``depth`` candidates only."""
    channels = {name: scores[:depth] for name, scores in query.channels.items()}
    return TrainingQuery(query.small[:depth], channels, query.large[:depth])


def top_c(large: FloatArray) -> npt.NDArray[np.bool_]:
    """Return (n, 4): whether the large stage puts each candidate in its top c. Ties keep first-stage order."""
    rank = np.empty(len(large), dtype=np.int64)
    rank[np.argsort(-np.where(np.isfinite(large), large, -np.inf), kind="stable")] = np.arange(len(large))
    return np.asarray((rank[:, None] < np.array(CUTOFFS)) & np.isfinite(large)[:, None])


def examples(queries: Sequence[TrainingQuery]) -> Examples:
    """Describe every candidate of every query, whole and cut to one of the shorter lengths in turn."""
    lists = [
        part
        for number, query in enumerate(queries)
        for part in (query, prefix(query, PREFIXES[number % len(PREFIXES)]))
        if np.isfinite(part.large).any()
    ]
    described = [describe(part.small, part.channels) for part in lists]
    counts = [len(part.small) for part in lists]
    large = np.concatenate([part.large for part in lists])
    both = np.isfinite(large) & np.isfinite(np.concatenate([part.small for part in lists]))
    return Examples(
        pair=np.concatenate([one.pair for one in described])[both],
        query=np.repeat(np.stack([one.query for one in described]), counts, axis=0)[both],
        missing=np.concatenate([one.missing for one in described])[both],
        large=large[both],
        in_top=np.concatenate([top_c(part.large) for part in lists])[both],
    )


def folds_of(queries: int, folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the fold (Q,) of each query, all of about one size."""
    return np.asarray(np.random.default_rng(seed).permutation(np.arange(queries) % folds))
