"""Which pairs share a call of a model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, assert_never

from cascade.policy.stage_specs import OnePair, TokenBudget

__all__ = ["ONE_PAIR", "Batching", "batching_of", "bucket_of"]

_SHORTEST: Final = 16
"""Lengths up to this share one bucket."""
_RATIO: Final = 1.25
"""The longest length of a bucket over its shortest: of a batch a fifth is padding at most."""


@dataclass(frozen=True, slots=True)
class Batching:
    """The bounds of a batch: padded tokens (None: no bound), pairs, and how long a pair waits for others to fill it."""

    max_total_tokens: int | None
    max_pairs: int
    max_wait_ms: float = 0.0

    @property
    def is_one_pair(self) -> bool:
        """Tell whether every pair is a call of its own."""
        return self.max_pairs == 1

    def takes(self, pairs: int, longest: int) -> bool:
        """Tell whether a batch may hold so many pairs, the longest of so many tokens. One pair may always be run."""
        fits = self.max_total_tokens is None or pairs * longest <= self.max_total_tokens
        return pairs == 1 or (pairs <= self.max_pairs and fits)


ONE_PAIR: Final = Batching(max_total_tokens=None, max_pairs=1)


def batching_of(declared: OnePair | TokenBudget) -> Batching:
    """Return the bounds that a release declares."""
    match declared:
        case OnePair():
            return ONE_PAIR
        case TokenBudget():
            return Batching(declared.max_total_tokens, declared.max_pairs, declared.max_wait_ms)
        case _:
            assert_never(declared)


def bucket_of(length: int) -> int:
    """Return the number of the bucket that inputs of a length share with those of about the same length."""
    return 0 if length <= _SHORTEST else math.ceil(math.log(length / _SHORTEST, _RATIO))
