"""Requests of the capacity bench: bodies of new texts, sent in an open loop, and what became of each."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Final

import aiohttp
import orjson

from cascade.tuning.lengths import LengthSamples
from cascade.tuning.loads import arrivals
from cascade.tuning.texts import Words
from evals.bench.cpu_rate import Probed

__all__ = ["Bodies", "Target", "mixed_lengths", "probed"]

_GOOD_SHARE: Final = 0.99
_GRACE_S: Final = 5.0
_SHORTEST, _LONGEST = 33, 400
_MOST_TOKENS: Final = 512
"""What the packaged stages read of a pair."""


def mixed_lengths(seed: int) -> LengthSamples:
    """Return pairs of 33 to 400 tokens, each as likely, with queries of 4 to 12."""
    draw = random.Random(seed)  # noqa: S311 - a load, not a secret
    pairs = ((draw.randint(4, 12), draw.randint(_SHORTEST, _LONGEST)) for _ in range(5000))
    return LengthSamples.of("pairs of 33 to 400 tokens", pairs, seed)


class Bodies:
    """Bodies of requests with so many candidates. ``known_share`` of the documents are from a set that comes again and again."""

    def __init__(
        self,
        words: Words,
        lengths: LengthSamples,
        *,
        candidates: int,
        deadline_ms: float,
        known_share: float,
        seed: int,
    ) -> None:
        self._words = words
        self._lengths = lengths
        self._candidates = candidates
        self._deadline_ms = deadline_ms
        self._known_share = known_share
        self._draw = random.Random(seed)  # noqa: S311
        self._known = [self._new_text() for _ in range(500)] if known_share else []

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        number = self._draw.getrandbits(31)
        (lengths,) = self._lengths.requests((1,), number, _MOST_TOKENS)
        texts = [
            self._draw.choice(self._known) if self._draw.random() < self._known_share else self._new_text()
            for _ in range(self._candidates)
        ]
        candidates = [{"id": str(place), "text": text} for place, text in enumerate(texts)]
        query = self._words.text(lengths.query, self._draw)
        return orjson.dumps({"query": query, "candidates": candidates, "deadline_ms": self._deadline_ms})

    def _new_text(self) -> str:
        (lengths,) = self._lengths.requests((1,), self._draw.getrandbits(31), _MOST_TOKENS)
        return self._words.text(lengths.documents[0], self._draw)


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, and by when each must be answered."""

    url: str
    deadline_ms: float


@dataclass(slots=True)
class _Counted:
    """What became of requests; ``took_ms`` counts from when a request was due, whenever it was sent."""

    took_ms: list[float]
    good: int = 0
    late: int = 0
    degraded: int = 0
    failed: int = 0

    @property
    def bad(self) -> int:
        return self.late + self.degraded + self.failed


async def probed(target: Target, bodies: Bodies, rate: float, requests: int, seed: int) -> Probed:
    """Send ``requests`` requests, ``rate`` a second at random times, and tell whether 99% were in time and undegraded.

    Once so many are bad that it cannot hold any more, no further one is sent.
    """
    times = arrivals(rate, 2.0 * requests / rate, seed)[:requests]
    prepared = [next(bodies) for _ in times]
    most_bad = int((1.0 - _GOOD_SHARE) * len(times) + 1e-9)
    counted = _Counted([])
    over = asyncio.Event()
    timeout = aiohttp.ClientTimeout(total=target.deadline_ms / 1000 + _GRACE_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        began = time.monotonic()

        async def one(at: float, body: bytes) -> None:
            await asyncio.sleep(max(0.0, began + at - time.monotonic()))
            if over.is_set():
                return
            await _sent(session, target, body, began + at, counted)
            if counted.bad > most_bad:
                over.set()

        await asyncio.gather(*map(one, times, prepared))
    return _summed(rate, counted, holds=counted.bad <= most_bad)


async def _sent(session: aiohttp.ClientSession, target: Target, body: bytes, due: float, counted: _Counted) -> None:
    headers = {"content-type": "application/json"}
    try:
        async with session.post(target.url, data=body, headers=headers) as answer:
            await answer.read()
            status, degraded = answer.status, "x-cascade-degraded" in answer.headers
    except (aiohttp.ClientError, TimeoutError):
        counted.failed += 1
        return
    took_ms = (time.monotonic() - due) * 1000
    counted.took_ms.append(took_ms)
    if status != 200:
        counted.failed += 1
    elif took_ms > target.deadline_ms:
        counted.late += 1
    elif degraded:
        counted.degraded += 1
    else:
        counted.good += 1


def _summed(rate: float, counted: _Counted, *, holds: bool) -> Probed:
    p50, p95 = _percentiles(counted.took_ms)
    return Probed(
        rate=rate,
        requests=counted.good + counted.bad,
        good=counted.good,
        late=counted.late,
        degraded=counted.degraded,
        failed=counted.failed,
        p50_ms=round(p50, 1),
        p95_ms=round(p95, 1),
        holds=holds,
    )


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return (values[0], values[0]) if values else (0.0, 0.0)
    cuts = quantiles(values, n=20, method="inclusive")
    return cuts[9], cuts[18]
