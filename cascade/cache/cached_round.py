"""One round of a cached stage: what is kept, what is being scored already, and what has to be scored now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cascade.cache.flights import Flight, Outcome
from cascade.cache.score_cache import Looked, ScoreCache
from cascade.cache.store import Found
from cascade.errors import StageError, StageRefused, StageTimeout
from cascade.guard.deadline import Deadline
from cascade.stages.added_cost import added
from cascade.stages.verdicts import EVERY_REFUSED
from cascade.telemetry.span_schema import Attribute, SpanName
from cascade.telemetry.spans import child
from cascade.text import Text
from cascade.types import Arm, Exclusion, StageCost, StageName, StageScores

__all__ = ["CachedRound", "Send"]

Send = Callable[[Sequence[Text], str], Awaitable[StageScores]]
"""Have the stage inside score documents, by a call id. Raises StageError."""
_LONGER: Final = 1.25
"""How much more than nine of ten rounds take is left to who stops waiting for another."""
_NOTHING_SENT = StageCost(calls=0, tokens=0, tokens_estimated=False, truncated=0)
_ALL_REFUSED = replace(_NOTHING_SENT, tokens_estimated=True)
"""What calls cost whose documents were all refused is not told."""


@dataclass(slots=True)
class CachedRound:
    """Score the documents of one round, each distinct one once.

    ``send`` has the stage inside score, ``expected_ms`` tells what that takes, None where nobody knows, and ``is_known``
    whether it is known to be what the keys say. Where it is not, at the beginning or at the end, what it scores is not put
    together with what was scored before or for others, and is neither kept nor handed on.
    """

    cache: ScoreCache
    name: StageName
    arm: Arm
    deadline: Deadline
    send: Send
    call_id: str
    expected_ms: Callable[[Sequence[Text]], float | None]
    is_known: Callable[[], bool]
    known: dict[bytes, Outcome] = field(default_factory=dict)
    costs: list[StageCost] = field(default_factory=list)
    shortened: set[bytes] = field(default_factory=set)
    sent: set[bytes] = field(default_factory=set)

    async def score(
        self, keys: Mapping[int, bytes], texts: Mapping[int, Text], *, count: int, whole: bool
    ) -> StageScores:
        """Return the scores of ``count`` documents, of which those without a key are blank.

        ``whole`` tells that they are scored together or not at all. Raises StageError.
        """
        began = self.cache.clock()
        budget_ms = self.deadline.remaining_ms()
        distinct = {key: texts[position] for position, key in keys.items()}
        missing, flights = await self._look(distinct, len(keys), whole=whole)
        mine = {key: text for key, text in missing.items() if key not in flights}
        if mine:
            await self._send(mine, self.call_id)
        if flights:
            lost = await self._follow({key: missing[key] for key in flights}, flights)
            if self.deadline.remaining_ms() <= 0:
                raise StageTimeout(self.name, "deadline", **self._told(began, budget_ms))
            if lost:
                await self._send(lost, f"{self.call_id}-again")
        rest = {key: text for key, text in distinct.items() if key not in self.sent}
        if self.sent and rest and not self.is_known():
            await self._send(rest, f"{self.call_id}-rest")
        if all(isinstance(outcome, Exclusion) for outcome in self.known.values()):
            raise StageRefused(self.name, EVERY_REFUSED, **self._told(began, budget_ms))
        return self._result(keys, count)

    async def _look(
        self, distinct: Mapping[bytes, Text], count: int, *, whole: bool
    ) -> tuple[dict[bytes, Text], dict[bytes, Flight]]:
        """Return what is not kept, and of that what is being scored already."""
        with child(SpanName.CACHE) as span:
            found = await self.cache.store.get(list(distinct), self.deadline, use=self._is_of_traffic)
            missing, flights, looked = self._found(found, distinct, count, whole=whole)
            span.set(Attribute.CACHE_HITS, looked.hits)
            span.set(Attribute.CACHE_SHARED, looked.shared)
            span.set(Attribute.CACHE_MISSES, looked.misses)
            span.set(Attribute.CACHE_FAULTS, looked.faults)
        self.cache.events.looked(self.name, self.arm, looked)
        return missing, flights

    def _found(
        self, found: Found, distinct: Mapping[bytes, Text], count: int, *, whole: bool
    ) -> tuple[dict[bytes, Text], dict[bytes, Flight], Looked]:
        """Take in what is kept; return what is not, what of that is being scored already, and how many are which."""
        kept, is_known = found.scores, self.is_known()
        if len(kept) < len(distinct) and (whole or not is_known):
            kept = {}
        self.known.update(kept)
        missing = {key: text for key, text in distinct.items() if key not in kept}
        follows = self._is_of_traffic and is_known
        flights = self.cache.flights.following(missing, self.deadline.at) if follows else {}
        faults = min(found.faults, len(missing) - len(flights))
        hits, shared = len(kept), len(flights) + count - len(distinct)
        looked = Looked(hits, shared, misses=len(missing) - len(flights) - faults, faults=faults)
        return missing, flights, looked

    async def _send(self, missing: Mapping[bytes, Text], call_id: str) -> None:
        """Have documents scored, keep their scores, and tell those who wait for them."""
        keys, flights = list(missing), self.cache.flights
        counts = self._is_of_traffic and self.is_known()
        flight = flights.begin(keys, self.deadline.at) if counts else None
        before = len(self.sent)
        outcomes: dict[bytes, Outcome] | None = None
        self.sent.update(keys)
        try:
            scored = await self.send(list(missing.values()), call_id)
            self.costs.append(scored.cost)
            self.shortened |= {keys[position] for position in scored.shortened}
            self.known.update(zip(keys, _outcomes(scored), strict=True))
            # an order that was mended is answered as such once: kept or handed on, nothing would tell of it
            if counts and self.is_known() and not scored.cost.repaired:
                outcomes = {key: self.known[key] for key in keys}
        except StageError as error:
            if error.code != EVERY_REFUSED:
                error.sent += before  # what left in earlier calls of this round left too
                raise
            self.costs.append(_ALL_REFUSED)
            self.known.update(dict.fromkeys(keys, Exclusion.REFUSED))  # others find that out for themselves
        finally:
            if flight is not None:
                flights.end(flight, keys, outcomes)
        if outcomes is not None:
            self._keep(outcomes)

    def _keep(self, outcomes: Mapping[bytes, Outcome]) -> None:
        """Keep the scores of documents that were scored whole."""
        scores = {
            key: outcome
            for key, outcome in outcomes.items()
            if isinstance(outcome, float) and key not in self.shortened
        }
        self.cache.store.put(scores)

    async def _follow(self, texts: Mapping[bytes, Text], flights: Mapping[bytes, Flight]) -> dict[bytes, Text]:
        """Wait for rounds of others, while there is time to send their documents too; return those that have no score yet."""
        began, remaining_ms = self.cache.clock(), self.deadline.remaining_ms()
        patience_ms = remaining_ms - _LONGER * (self.expected_ms(list(texts.values())) or 0.0)
        if patience_ms <= 0:  # sending them instead would not end in time either
            patience_ms = remaining_ms
        try:
            with child(SpanName.CACHE_WAIT), suppress(TimeoutError):
                async with asyncio.timeout(patience_ms / 1000):
                    for flight in dict.fromkeys(flights.values()):
                        await flight.ended()
        finally:
            self.cache.events.followed(self.cache.clock() - began)
        lost = {}
        for key, flight in flights.items():
            if flight.outcomes is None:
                lost[key] = texts[key]
            else:
                self.known[key] = flight.outcomes[key]
        return lost

    def _told(self, began: float, budget_ms: float) -> dict[str, Any]:
        """Return what an error tells of the round."""
        elapsed_ms = (self.cache.clock() - began) * 1000
        return {"elapsed_ms": elapsed_ms, "budget_ms": budget_ms, "sent": len(self.sent)}

    @property
    def _is_of_traffic(self) -> bool:
        return self.arm is not Arm.SHADOW

    def _result(self, keys: Mapping[int, bytes], count: int) -> StageScores:
        scores: list[float | None] = [None] * count
        excluded = {position: Exclusion.BLANK for position in range(count) if position not in keys}
        for position, key in keys.items():
            outcome = self.known[key]
            if isinstance(outcome, float):
                scores[position] = outcome
            else:
                excluded[position] = outcome
        shortened = frozenset(position for position, key in keys.items() if key in self.shortened)
        cost = added(self.costs) if self.costs else _NOTHING_SENT
        made = sum(isinstance(self.known[key], float) for key in self.sent)
        cached = count - len(excluded) - made
        return StageScores(tuple(scores), excluded, replace(cost, cached=cached), shortened)


def _outcomes(scored: StageScores) -> Iterable[Outcome]:
    for position, score in enumerate(scored.scores):
        yield scored.excluded[position] if score is None else float(score)
