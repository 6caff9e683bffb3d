"""Paired permutation test: whether the signs of differences could have fallen like this by chance.

Of the tests for paired figures of queries this one and Student's hold their level best (Urbano, Lima and Hanjalic,
SIGIR 2019). The Wilcoxon and sign tests are left out on purpose: they answer another question than that of the mean,
and with many queries they reject far too often (Ihemelandu and Ekstrand, SIGIR 2023). An effect size belongs beside p.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.statistics.sample import FloatArray, finite

__all__ = ["FLIPS", "Alternative", "SignFlip", "sign_flip_test"]

FLIPS: Final = 10_000
_TOGETHER: Final = 8
"""So many signs are drawn as one byte, which looks their sum up."""
_ROUNDING: Final = 1e-12
"""Sums this near to each other, of the sum of all sizes, count as equal: they differ by rounding alone."""


class Alternative(StrEnum):
    """What the mean difference is, where it is not zero."""

    TWO_SIDED = "two-sided"
    GREATER = "greater"
    LESS = "less"


@dataclass(frozen=True, slots=True)
class SignFlip:
    """The mean difference and its p-value. ``flips`` assignments of signs were tried, all there are where ``exact``."""

    mean: float
    p: float
    flips: int
    exact: bool


def sign_flip_test(
    differences: npt.ArrayLike,
    *,
    alternative: Alternative = Alternative.TWO_SIDED,
    flips: int = FLIPS,
    seed: int = 0,
) -> SignFlip:
    """Test that differences (n,) are as likely to have either sign, by the mean over random assignments of signs.

    All 2^m assignments to the m differences that are not zero are tried where they are no more than
    ``flips``; else p = (1 + as extreme) / (1 + flips), which is valid at any number of flips. Zeros
    stay in the mean; no sign changes them, so that drawing one for them would change nothing. Exact
    for differences symmetric around zero under the null, asymptotic for others of mean zero.
    Memory is of the order of ``flips``. Raises ConfigError for NaN, infinite or no differences.
    """
    found = finite("differences", differences)
    if flips < 1:
        raise ConfigError(f"flips: {flips} is not at least 1")
    largest = float(np.abs(found).max())
    sizes = found[found != 0.0] / largest if largest else found[:0]
    mean = float(found.mean())
    slack = _ROUNDING * float(np.abs(sizes).sum())
    if sizes.size < flips.bit_length():
        sums = _signed_sums(sizes)
        return SignFlip(mean, float(_extreme(sums, float(sums[-1]), slack, alternative).mean()), sums.size, exact=True)
    sums, observed = _drawn_sums(sizes, flips, seed)
    count = int(_extreme(sums, observed, slack, alternative).sum())
    return SignFlip(mean, (1 + count) / (1 + flips), flips, exact=False)


def _extreme(sums: FloatArray, observed: float, slack: float, alternative: Alternative) -> npt.NDArray[np.bool_]:
    match alternative:
        case Alternative.TWO_SIDED:
            return np.asarray(np.abs(sums) >= abs(observed) - slack)
        case Alternative.GREATER:
            return np.asarray(sums >= observed - slack)
        case Alternative.LESS:
            return np.asarray(sums <= observed + slack)
        case _:
            assert_never(alternative)


def _signed_sums(values: FloatArray) -> FloatArray:
    """Return the sum of values (m,) under each assignment of signs (2^m,), last the one that changes none."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums


def _drawn_sums(values: FloatArray, flips: int, seed: int) -> tuple[FloatArray, float]:
    """Return the sum under ``flips`` random assignments, and as it is, added up in the same order."""
    generator = np.random.default_rng(seed)
    sums, observed = np.zeros(flips), 0.0
    for start in range(0, values.size, _TOGETHER):
        table = _signed_sums(values[start : start + _TOGETHER])
        sums += table[generator.integers(0, table.size, size=flips, dtype=np.uint8)]
        observed += float(table[-1])
    return sums, observed
