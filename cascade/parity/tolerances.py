"""What a candidate may differ by, and which of the limits it keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

from cascade.errors import ConfigError
from cascade.parity.agreement import Agreement
from cascade.parity.compare import Slice
from cascade.parity.comparison import Comparison
from cascade.types import ScoreSpace

__all__ = ["Check", "Tolerances", "checks"]

_ERROR_BY_SPACE: Final = {ScoreSpace.LOGIT: 0.1, ScoreSpace.PROBABILITY: 0.02, ScoreSpace.COSINE: 0.01}
_ERROR_IN_SD: Final = 0.02
"""Largest error where no space is declared, in standard deviations of REF's scores."""
_MEAN_OF_LARGEST: Final = 0.25
_LEAST_PAIRS_OF_A_SLICE: Final = 10
_LEAST_QUERIES_OF_A_SLICE: Final = 5


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Limits. None for an error means: by the score space, and a quarter of the largest for the mean one.

    Raises ConfigError for one that is no finite number: a report holds no other.
    """

    max_error: float | None = None
    max_mean_error: float | None = None
    min_pearson: float = 0.99
    min_kendall: float = 0.95
    min_overlap: float = 0.98
    max_large_flips: float = 0.0
    max_ndcg_loss: float = 0.01
    max_jitter: float | None = None
    max_missing: float = 0.0
    max_contrast_lost: int = 0
    max_token_mismatch: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            limit = getattr(self, each.name)
            if limit is not None and not math.isfinite(limit):
                raise ConfigError(f"{each.name}: a limit is a finite number; to bear anything write a large one")


@dataclass(frozen=True, slots=True)
class Check:
    """One limit. ``passed`` is None where the value could not be measured, and ``reason`` says why."""

    name: str
    value: float | None
    limit: float | None
    passed: bool | None
    reason: str | None = None


def checks(comparison: Comparison, tolerances: Tolerances) -> list[Check]:
    """Hold a comparison against the limits: as a whole, then slice by slice."""
    found, coverage = comparison.compared, comparison.coverage
    largest, mean = _error_limits(comparison, tolerances)
    unknown = comparison.spaces.incomparable or "too few scores, or all alike"
    lost, jitter = comparison.contrast_lost, comparison.cand.jitter
    return [
        _at_most("missing_at_cand", coverage.missing_at_cand, tolerances.max_missing),
        _at_most("missing_at_ref", coverage.missing_at_ref, tolerances.max_missing),
        _at_most("max_error", found.whole.max_excess, largest, unknown),
        _at_most("mean_error", found.whole.mean_excess, mean, unknown),
        _at_least("pearson", found.whole.pearson, tolerances.min_pearson, unknown),
        _kendall("kendall", found.whole, tolerances),
        _overlap("overlap", found.whole, tolerances),
        _at_most("large_flips", found.large_flips, tolerances.max_large_flips, "no two candidates lie so far apart"),
        _at_most("misaligned", found.misaligned, 0.0),
        _space(comparison),
        _ndcg(comparison, tolerances.max_ndcg_loss),
        _at_most(
            "jitter",
            None if jitter is None else jitter.greatest,
            _jitter_limit(comparison, tolerances, largest),
            "CAND was not scored anew",
        ),
        _at_most(
            "contrast_lost",
            None if lost is None else float(lost),
            float(tolerances.max_contrast_lost),
            "not scored anew by both sides",
        ),
        _at_most("token_mismatch", comparison.token_mismatch, tolerances.max_token_mismatch, comparison.tokens_reason),
        *(check for part in found.slices for check in _slice(part, mean, tolerances)),
    ]


def _error_limits(comparison: Comparison, tolerances: Tolerances) -> tuple[float, float]:
    common = comparison.spaces.common
    by_space = _ERROR_IN_SD * comparison.compared.ref_sd if common is None else _ERROR_BY_SPACE[common]
    largest = by_space if tolerances.max_error is None else tolerances.max_error
    mean = _MEAN_OF_LARGEST * largest if tolerances.max_mean_error is None else tolerances.max_mean_error
    return largest, mean


def _jitter_limit(comparison: Comparison, tolerances: Tolerances, largest: float) -> float:
    """Return the limit in CAND's own space, which need not be the one that errors are told in."""
    if tolerances.max_jitter is not None:
        return tolerances.max_jitter
    own = comparison.spaces.cand
    return largest if own is None or own is comparison.spaces.common else _ERROR_BY_SPACE[own]


def _slice(part: Slice, mean: float, tolerances: Tolerances) -> Iterator[Check]:
    """Give the checks of a slice that is large enough for them."""
    found = part.agreement
    if found.pairs >= _LEAST_PAIRS_OF_A_SLICE and found.mean_excess is not None:
        yield _at_most(f"mean_error [{part.name}]", found.mean_excess, mean)
    if found.kendall is not None and found.kendall.queries >= _LEAST_QUERIES_OF_A_SLICE:
        yield _kendall(f"kendall [{part.name}]", found, tolerances)
    if found.overlap is not None and found.overlap.queries >= _LEAST_QUERIES_OF_A_SLICE:
        yield _overlap(f"overlap [{part.name}]", found, tolerances)


def _kendall(name: str, found: Agreement, tolerances: Tolerances) -> Check:
    value = None if found.kendall is None else found.kendall.mean
    return _at_least(name, value, tolerances.min_kendall, "no query has two candidates of different score")


def _overlap(name: str, found: Agreement, tolerances: Tolerances) -> Check:
    value = None if found.overlap is None else found.overlap.mean
    return _at_least(name, value, tolerances.min_overlap, "no query has more than k candidates")


def _space(comparison: Comparison) -> Check:
    space = comparison.space
    return Check("score_space", None, None, space.right, space.statements[0] if space.statements else None)


def _ndcg(comparison: Comparison, limit: float) -> Check:
    """Check the greatest loss that the interval leaves open."""
    quality = comparison.compared.quality
    if quality is None:
        return Check("ndcg_loss", None, limit, None, "no query is judged")
    interval = quality.ndcg_delta.interval
    if interval is None or interval[0] is None:
        return Check("ndcg_loss", None, limit, None, quality.ndcg_delta.reason)
    return _at_most("ndcg_loss", 0.0 - interval[0], limit)


def _at_most(name: str, value: float | None, limit: float, unknown: str = "") -> Check:
    return Check(name, value, limit, None if value is None else value <= limit, unknown if value is None else None)


def _at_least(name: str, value: float | None, limit: float, unknown: str) -> Check:
    return Check(name, value, limit, None if value is None else value >= limit, unknown if value is None else None)
