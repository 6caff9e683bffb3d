"""The lengths of a user's queries and documents in tokens, and draws of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from cascade.errors import ConfigError
from cascade.policy.tuning import Lengths, Quantiles
from cascade.tokens import PAIR_OVERHEAD_TOKENS

__all__ = ["MOST_SAMPLES", "LengthSamples", "RequestLengths"]

MOST_SAMPLES: Final = 100_000
"""Pairs kept of a source; a quantile of them is sure to well below a percent."""
_AT: Final = {"q0": 0.0, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q90": 0.9, "q99": 0.99, "q100": 1.0}


@dataclass(frozen=True, slots=True)
class RequestLengths:
    """The tokens of one request: its query, and each of its documents, without special tokens."""

    query: int
    documents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LengthSamples:
    """Pairs of a user's traffic by (tokens of the query, tokens of the whole pair), and where they are from.

    A pair is counted as records and tables count it: query, document and special tokens, before a stage cuts it.
    """

    source: str
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, source: str, pairs: Iterable[tuple[int, int]], seed: int) -> Self:
        """Keep at most `MOST_SAMPLES` pairs, each as likely as any other. Raises ConfigError where there is none.

        A reservoir (Vitter 1985, algorithm R): the whole of a source is never held.
        """
        draw = random.Random(seed)  # noqa: S311  # nosec B311 # a sample, not a secret
        kept: list[tuple[int, int]] = []
        for number, pair in enumerate(pairs):
            if number < MOST_SAMPLES:
                kept.append(pair)
            elif (place := draw.randrange(number + 1)) < MOST_SAMPLES:
                kept[place] = pair
        if not kept:
            raise ConfigError(f"{source}: it tells no length of a pair")
        return cls(source, tuple(kept))

    def requests(self, candidates: Iterable[int], seed: int, most: int) -> Iterator[RequestLengths]:
        """Draw a request for each number of candidates, no text of it longer than ``most`` tokens.

        The lengths of a query and of its documents are taken as independent.
        """
        draw = random.Random(seed)  # noqa: S311  # nosec B311 # a sample, not a secret
        for count in candidates:
            query, _ = draw.choice(self.pairs)
            drawn = [draw.choice(self.pairs) for _ in range(count)]
            yield RequestLengths(min(query, most), tuple(min(_document(own, pair), most) for own, pair in drawn))

    def mean_pair(self, most: int) -> float:
        """Return the mean tokens of a pair, cut to ``most``."""
        return float(np.minimum([pair for _, pair in self.pairs], most).mean())

    def told(self) -> Lengths:
        """Return what the file of a tuning says of them."""
        queries, pairs = ([pair[place] for pair in self.pairs] for place in (0, 1))
        return Lengths(
            source=self.source,
            samples=len(self.pairs),
            query_tokens=_quantiles(queries),
            pair_tokens=_quantiles(pairs),
        )


def _document(query: int, pair: int) -> int:
    return max(1, pair - query - PAIR_OVERHEAD_TOKENS)


def _quantiles(values: list[int]) -> Quantiles:
    found = np.quantile(np.array(values, dtype=np.int64), list(_AT.values()), method="inverted_cdf")
    return Quantiles(**dict(zip(_AT, map(int, found), strict=True)))
