"""A stage behind HTTP: chunk, send, mend what can be mended, join by index."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, assert_never

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from cascade.errors import (
    ConfigError,
    StageError,
    StageInvalidAnswer,
    StageOverloaded,
    StageRefused,
    StageTimeout,
    StageUnreachable,
)
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.inflight import TextLimiter
from cascade.policy.release import HttpStage
from cascade.stages.answers import InvalidAnswer
from cascade.stages.base import Congestion, Observed
from cascade.stages.chunking import ChunkLimits, Piece, plan_chunks
from cascade.stages.congestion import is_failing, joined, read_load
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.round import Round, begin_round, parts, set_apart
from cascade.stages.serializers import Serializer, serializer
from cascade.stages.upstream import Lost, Reply, Upstream
from cascade.stages.wire import ChunkAnswer, Fault, FaultKind, Wire
from cascade.text import Text
from cascade.types import Fingerprint, ScoreSpace, StageScores

__all__ = ["HttpReranker"]

_FIRST_LOOK_SECONDS: Final = 2.0
_LOAD_SECONDS: Final = 5.0
_BODY_SLACK_BYTES: Final = 512
_ENDS: Final = {
    FaultKind.OVERLOADED: StageOverloaded,
    FaultKind.UNREACHABLE: StageUnreachable,
    FaultKind.TIMEOUT: StageTimeout,
    FaultKind.REFUSED: StageRefused,
    FaultKind.UNUSABLE: StageRefused,
    FaultKind.BROKEN: StageInvalidAnswer,
}
"""What ends a round; the other kinds can be mended."""
_UNREADABLE: Final = frozenset({"answer_too_large", "bad_encoding", "not_http"})
"""Causes of loss where the server did answer."""
_NEVER_LEFT: Final = frozenset({"refused", "dns", "connect_timeout"})
"""Causes of loss where there was no connection to send anything on."""


class HttpReranker:
    """Score documents at one server.

    A request is split by texts, bytes and tokens; chunks run at the same time, bounded in texts over
    all requests. A chunk that the server finds too long or too large is taken apart, an over-long
    document is clipped once from the limit that the server stated, and left out if it is refused
    again. Anything else that fails, fails the round.
    """

    def __init__(
        self,
        name: str,
        spec: HttpStage,
        wire: Wire,
        upstream: Upstream,
        clock: Clock,
        count_fault: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self._name = name
        self._spec = spec
        self._wire = wire
        self._upstream = upstream
        self._clock = clock
        self._count_fault = count_fault
        self._serializer: Serializer = serializer(spec.serializer)
        self._fingerprint = fingerprint_of(spec, self._serializer)
        if spec.instruction is not None and not self.takes_instruction:
            raise ConfigError(f"{name}: instruction: neither the serializer nor the server of this adapter takes one")
        self._limiter = TextLimiter(spec.max_in_flight_texts)
        self._max_texts = self._texts_a_call(None)
        self._route = wire.routes[0]
        self._max_length = spec.max_length
        self._observed: Observed | None = None
        self._unusable: str | None = None
        self._polled: Congestion | None = None
        self._answered: Congestion | None = None
        self._asking: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()

    @property
    def fingerprint(self) -> Fingerprint:
        return self._fingerprint

    @property
    def space(self) -> ScoreSpace:
        return self._spec.score_space

    @property
    def observed(self) -> Observed | None:
        return self._observed

    @property
    def unusable(self) -> str | None:
        return self._unusable

    @property
    def congestion(self) -> Congestion | None:
        return joined(self._polled, self._answered, self._clock())

    @property
    def takes_instruction(self) -> bool:
        return self._serializer.instruction is not None or (
            self._wire.takes_instruction and not self._serializer.owns_template
        )

    async def start(self) -> None:
        self._asking = asyncio.create_task(self._watch(), name=f"limits and load of {self._name}")
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_SECONDS):
                await self._asked.wait()

    async def look_again(self) -> bool:
        if self._observed is None:
            return False  # the first look goes on by itself
        try:
            found = await self._wire.discover(self._get)
        except Lost:
            return False
        if not isinstance(found, Observed) or (found == Observed() != self._observed):
            return False  # a gateway's answer while the server is away; rounds tell by themselves whether it scores
        if found != self._observed:
            self._learn(found)
        return True

    async def aclose(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._upstream.aclose()

    async def _watch(self) -> None:
        await self._ask_until_answered()
        route = self._wire.load_route
        offered = route is not None
        while route is not None and offered:
            try:
                offered = await self._look_at_load(route)
            except Lost:
                pass  # what is known grows stale, and says so
            except Exception as error:  # noqa: BLE001 - the boundary of a background task: it goes on asking
                self._count_fault(error)
            await asyncio.sleep(_LOAD_SECONDS)

    async def _look_at_load(self, route: str) -> bool:
        """Read the server's load; tell whether to look again. A route that told of load once is not given up."""
        reply = await self._get(route)
        told = read_load(reply, self._clock())
        self._polled = told or self._polled
        return self._polled is not None or is_failing(reply)

    async def _ask_until_answered(self) -> None:
        waits = wait_random_exponential(multiplier=0.2, max=30)
        async for attempt in AsyncRetrying(wait=waits, retry=retry_if_exception_type(Exception)):
            with attempt:
                try:
                    self._learn(await self._wire.discover(self._get))
                except Lost:
                    raise
                except Exception as error:
                    self._count_fault(error)
                    raise
                finally:
                    self._asked.set()

    async def _get(self, path: str) -> Reply:
        """Get a document within the time of a look. Raises Lost."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_SECONDS):
                return await self._upstream.get(path, request_id=f"{self._name}-look-{uuid.uuid4().hex}")
        raise Lost("timeout")

    def _learn(self, found: Observed | Fault) -> None:
        match found:
            case Fault(kind=kind, code=code):
                self._unusable = code if kind is FaultKind.UNUSABLE else None
                raise Lost(code)  # and ask again later: a key or a model can be put right over there
            case Observed():
                self._unusable = None
                self._observed = found
                self._max_length = min(self._spec.max_length, found.max_length or self._spec.max_length)
                in_flight = found.max_in_flight_texts or self._spec.max_in_flight_texts
                self._limiter.limit = min(self._spec.max_in_flight_texts, in_flight)
                self._max_texts = self._texts_a_call(found.max_texts)
            case _:
                assert_never(found)

    def _texts_a_call(self, told: int | None) -> int:
        """Return the most texts a call: as configured, told or usual, and never above what is told or known."""
        texts = self._spec.chunk_texts or told or self._wire.texts_by_default
        return min(texts, told or texts, self._wire.most_texts or texts)

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        started = self._clock()
        budget_ms = deadline.remaining_ms()
        round_ = begin_round(
            query,
            documents,
            serializer=self._serializer,
            instruction=self._spec.instruction if instruction is None else instruction.reveal(),
            max_length=self._max_length,
            server_clips=self._wire.clips,
            most_characters=self._wire.most_characters,
            route=self._route,
            call_id=call_id,
        )
        kind: type[StageError]
        try:
            if self._unusable is not None:
                raise _RoundFailed(StageRefused, self._unusable)
            async with deadline.timeout():
                await self._send_all(round_)
            if round_.pieces and not round_.scores:
                raise _RoundFailed(StageRefused, "every_document_refused")
            return round_.result()
        except TimeoutError:
            kind, code = StageTimeout, "deadline" if round_.left else "waiting_for_room"
        except _RoundFailed as failed:
            kind, code = failed.kind, failed.code
        # outside, so that no error is chained whose frames hold text
        elapsed_ms = (self._clock() - started) * 1000
        raise kind(self._name, code, elapsed_ms=elapsed_ms, budget_ms=budget_ms, sent=len(round_.left))

    async def _send_all(self, round_: Round) -> None:
        limits = ChunkLimits(
            texts=min(self._max_texts, self._limiter.limit),
            bytes=max(1, self._spec.chunk_bytes - len(round_.query) - _BODY_SLACK_BYTES),
            tokens=self._spec.chunk_tokens,
            pair_tokens=round_.max_length,
        )
        chunks = plan_chunks(round_.pieces, limits, query_tokens=round_.query_tokens)
        await self._together(round_, chunks)

    async def _together(self, round_: Round, chunks: Sequence[list[Piece]]) -> None:
        if len(chunks) == 1:
            await self._send(round_, chunks[0])
            return
        try:
            async with asyncio.TaskGroup() as group:
                for chunk in chunks:
                    group.create_task(self._send(round_, chunk))
        except* _RoundFailed as failures:
            first: BaseException = failures
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None

    async def _send(self, round_: Round, chunk: list[Piece]) -> None:
        route = round_.route
        body = self._wire.request(
            route,
            round_.query,
            [piece.encoded for piece in chunk],
            clip_to=chunk[0].clip_to if len(chunk) == 1 else None,
            instruction=None if self._serializer.owns_template else round_.instruction,
        )
        leaving = {piece.position for piece in chunk} - round_.left
        try:
            async with self._limiter.hold(len(chunk)):
                round_.calls += 1
                round_.left |= leaving
                reply = await self._upstream.post(route, body, request_id=next(round_.request_ids), texts=len(chunk))
        except Lost as lost:
            if lost.code in _NEVER_LEFT:
                round_.left -= leaving
            kind = StageInvalidAnswer if lost.code in _UNREADABLE else StageUnreachable
            raise _RoundFailed(kind, lost.code) from None
        if reply.status == 200:
            try:
                answer = self._wire.answer(reply, len(chunk))
            except InvalidAnswer as invalid:
                raise _RoundFailed(StageInvalidAnswer, invalid.fault) from None
            round_.keep(chunk, answer)
            self._route = route
            self._hear(answer)
        else:
            await self._mend(round_, chunk, self._wire.fault(reply), route)

    def _hear(self, answer: ChunkAnswer) -> None:
        """Keep what an answer told of the server's queue."""
        if answer.queue_ms is not None:
            self._answered = Congestion(self._clock(), queue_ms=answer.queue_ms)

    async def _mend(self, round_: Round, chunk: list[Piece], fault: Fault, route: str) -> None:
        match fault.kind:
            case FaultKind.NO_ROUTE:
                await self._reroute(round_, chunk, route)
            case FaultKind.TOO_LONG if len(chunk) > 1:
                await self._together(round_, set_apart(chunk, round_.query_tokens, fault.limit or round_.max_length))
            case FaultKind.TOO_LONG if (shorter := round_.clip(chunk[0], fault)) is not None:
                await self._send(round_, [shorter])
            case FaultKind.TOO_MANY_TEXTS if len(chunk) > 1:
                most = min(fault.limit or len(chunk) // 2, len(chunk) - 1)
                self._max_texts = max(1, min(self._max_texts, most))
                await self._together(round_, parts(chunk, max(1, most)))
            case FaultKind.TOO_MANY_BYTES if len(chunk) > 1:
                await self._together(round_, parts(chunk, (len(chunk) + 1) // 2))
            case FaultKind.TOO_LONG | FaultKind.TOO_MANY_TEXTS | FaultKind.TOO_MANY_BYTES:
                round_.refused.append(chunk[0].position)
            case _:
                raise _RoundFailed(_ENDS[fault.kind], fault.code)

    async def _reroute(self, round_: Round, chunk: list[Piece], missing: str) -> None:
        """Send a chunk on the next route that this round has not missed; another chunk may have moved on already."""
        round_.missing.add(missing)
        others = [route for route in self._wire.routes if route not in round_.missing]
        if not others:
            raise _RoundFailed(StageRefused, "no_route")
        if round_.route in round_.missing:
            round_.route = others[0]
        await self._send(round_, chunk)


class _RoundFailed(Exception):
    """End a round from inside its chunks, before elapsed time is known."""

    def __init__(self, kind: type[StageError], code: str) -> None:
        super().__init__(code)
        self.kind = kind
        self.code = code
