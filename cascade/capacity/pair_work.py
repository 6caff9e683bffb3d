"""What a pair costs a stage: as many sequences and tokens as its server computes."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass

from cascade.capacity.distribution import Distribution
from cascade.capacity.traffic import OverLength
from cascade.errors import ConfigError
from cascade.tokens import PAIR_OVERHEAD_TOKENS

__all__ = ["PairWork", "Reading", "pair_work"]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a stage reads pairs.

    ``padding`` is computed tokens for each token read; ``buckets`` are the lengths that sequences are padded
    to, in ascending order, none where they are not.
    """

    max_length: int
    over_length: OverLength
    padding: float = 1.0
    buckets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PairWork:
    """Means of a pair: sequences, tokens that are read, tokens that are computed with padding.

    ``over_share`` is the share of pairs that are longer than the stage reads at once.
    """

    sequences: float
    tokens: float
    computed: float
    over_share: float


def pair_work(tokens: Distribution, query_tokens: float | None, reading: Reading, stage: str) -> PairWork:
    """Return the work of a pair whose whole length is distributed as ``tokens``.

    Windows do not overlap; each repeats the query and the special tokens. Raises ConfigError where windows are
    asked for and the query's length is not known, or leaves them no room.
    """
    split = _windows(query_tokens, reading, stage) if reading.over_length is OverLength.WINDOWS else None

    def sequences(length: float) -> list[tuple[int, float]]:
        if length <= reading.max_length:
            return [(1, length)]
        return [(1, float(reading.max_length))] if split is None else split(length)

    def total(cost: Callable[[float], float]) -> float:
        return tokens.mean_of(lambda length: sum(count * cost(each) for count, each in sequences(length)))

    return PairWork(
        sequences=total(lambda length: 1.0),
        tokens=total(lambda length: length),
        computed=total(lambda length: _padded(length, reading.buckets)) * reading.padding,
        over_share=tokens.share_above(reading.max_length),
    )


def _windows(query_tokens: float | None, reading: Reading, stage: str) -> Callable[[float], list[tuple[int, float]]]:
    if query_tokens is None:
        raise ConfigError(f"over_length: {stage} splits long pairs into windows, and query_tokens is not told")
    repeated = query_tokens + PAIR_OVERHEAD_TOKENS
    room = reading.max_length - repeated
    if room < 1:
        raise ConfigError(
            f"over_length: {stage}: a mean query leaves no room in windows of {reading.max_length} tokens"
        )

    def split(length: float) -> list[tuple[int, float]]:
        document = length - repeated
        count = math.ceil(document / room - 1e-9)
        return [(count - 1, float(reading.max_length)), (1, repeated + document - (count - 1) * room)]

    return split


def _padded(length: float, buckets: tuple[int, ...]) -> float:
    """Return the smallest bucket that holds a length; beyond the last a sequence is as long as it is."""
    place = bisect.bisect_left(buckets, length)
    return float(buckets[place]) if place < len(buckets) else length
