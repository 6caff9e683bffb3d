"""A stage behind HTTP: chunk, send, mend what can be mended, join by index."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

import orjson
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from cascade.errors import (
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
from cascade.stages.base import Observed
from cascade.stages.chunking import ChunkLimits, Clip, Piece, plan_chunks
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import Serializer, serializer
from cascade.stages.upstream import Lost, Upstream
from cascade.stages.wire import ChunkAnswer, Fault, FaultKind, Wire
from cascade.text import Text
from cascade.tokens import PAIR_OVERHEAD_TOKENS, clip_to_tokens, estimate_tokens
from cascade.types import Exclusion, Fingerprint, ScoreSpace, StageCost, StageScores

__all__ = ["HttpReranker"]

_FIRST_LOOK_SECONDS: Final = 2.0
_BODY_SLACK_BYTES: Final = 512
_MOST_CHARACTERS_PER_TOKEN: Final = 24
_ENDS: Final = {
    FaultKind.OVERLOADED: StageOverloaded,
    FaultKind.UNREACHABLE: StageUnreachable,
    FaultKind.TIMEOUT: StageTimeout,
    FaultKind.REFUSED: StageRefused,
    FaultKind.BROKEN: StageInvalidAnswer,
}
"""What ends a round; the other kinds can be mended."""
_UNREADABLE: Final = frozenset({"answer_too_large", "bad_encoding", "not_http"})
"""Causes of loss where the server did answer."""


class HttpReranker:
    """Score documents at one server.

    A request is split by texts, bytes and tokens; chunks run at the same time, bounded in texts over
    all requests. A chunk that the server finds too long or too large is taken apart, an over-long
    document is clipped once from the limit that the server stated, and left out if it is refused
    again. Anything else that fails, fails the round.
    """

    def __init__(self, name: str, spec: HttpStage, wire: Wire, upstream: Upstream, clock: Clock) -> None:
        self._name = name
        self._spec = spec
        self._wire = wire
        self._upstream = upstream
        self._clock = clock
        self._serializer: Serializer = serializer(spec.serializer)
        self._fingerprint = fingerprint_of(spec, self._serializer)
        self._limiter = TextLimiter(spec.max_in_flight_texts)
        self._max_texts = spec.chunk_texts or wire.texts_by_default
        self._max_length = spec.max_length
        self._observed: Observed | None = None
        self._unusable: str | None = None
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

    async def start(self) -> None:
        self._asking = asyncio.create_task(self._ask_until_answered(), name=f"limits of {self._name}")
        await self._asked.wait()

    async def aclose(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._upstream.aclose()

    async def _ask_until_answered(self) -> None:
        waits = wait_random_exponential(multiplier=0.2, max=30)
        async for attempt in AsyncRetrying(wait=waits, retry=retry_if_exception_type((Lost, TimeoutError))):
            with attempt:
                try:
                    async with asyncio.timeout(_FIRST_LOOK_SECONDS):
                        self._learn(await self._wire.discover(self._upstream.get))
                finally:
                    self._asked.set()

    def _learn(self, found: Observed | Fault) -> None:
        match found:
            case Fault(kind=kind, code=code):
                self._unusable = code if kind is FaultKind.REFUSED else None
                raise Lost(code)  # and ask again later: a key or a model can be put right over there
            case Observed():
                self._unusable = None
                self._observed = found
                self._max_length = min(self._spec.max_length, found.max_length or self._spec.max_length)
                in_flight = found.max_in_flight_texts or self._spec.max_in_flight_texts
                self._limiter.limit = min(self._spec.max_in_flight_texts, in_flight)
                texts = self._spec.chunk_texts or found.max_texts or self._wire.texts_by_default
                self._max_texts = min(texts, found.max_texts or texts)
            case _:
                assert_never(found)

    async def score(self, query: Text, documents: Sequence[Text], *, deadline: Deadline, call_id: str) -> StageScores:
        started = self._clock()
        budget_ms = deadline.remaining_ms()
        round_ = self._prepare(query, documents, call_id)
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
            kind, code = StageTimeout, "deadline"
        except _RoundFailed as failed:
            kind, code = failed.kind, failed.code
        # outside, so that no error is chained whose frames hold text
        raise kind(self._name, code, elapsed_ms=(self._clock() - started) * 1000, budget_ms=budget_ms)

    def _prepare(self, query: Text, documents: Sequence[Text], call_id: str) -> _Round:
        written = self._serializer.query(query.reveal())
        room = self._max_length // 2
        clipped = clip_to_tokens(written, room) if estimate_tokens(written) > room else written
        pieces = [
            _piece(position, self._serializer.document(document.reveal()), self._max_length)
            for position, document in enumerate(documents)
            if not document.is_blank
        ]
        return _Round(
            count=len(documents),
            query=orjson.dumps(clipped),
            query_tokens=estimate_tokens(clipped) + PAIR_OVERHEAD_TOKENS,
            query_clipped=len(clipped) < len(written),
            pieces=pieces,
            max_length=self._max_length,
            server_clips=self._wire.clips,
            request_ids=(f"{call_id}-{number}" for number in itertools.count()),
        )

    async def _send_all(self, round_: _Round) -> None:
        limits = ChunkLimits(
            texts=min(self._max_texts, self._limiter.limit),
            bytes=max(1, self._spec.chunk_bytes - len(round_.query) - _BODY_SLACK_BYTES),
            tokens=self._spec.chunk_tokens,
        )
        chunks = plan_chunks(round_.pieces, limits, query_tokens=round_.query_tokens)
        await self._together(round_, chunks)

    async def _together(self, round_: _Round, chunks: Sequence[list[Piece]]) -> None:
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

    async def _send(self, round_: _Round, chunk: list[Piece]) -> None:
        path, body = self._wire.request(
            round_.query, [piece.encoded for piece in chunk], clip_to=chunk[0].clip_to if len(chunk) == 1 else None
        )
        try:
            async with self._limiter.hold(len(chunk)):
                round_.calls += 1
                reply = await self._upstream.post(path, body, request_id=next(round_.request_ids), texts=len(chunk))
        except Lost as lost:
            kind = StageInvalidAnswer if lost.code in _UNREADABLE else StageUnreachable
            raise _RoundFailed(kind, lost.code) from None
        if reply.status == 200:
            try:
                round_.keep(chunk, self._wire.answer(reply, len(chunk)))
            except InvalidAnswer as invalid:
                raise _RoundFailed(StageInvalidAnswer, invalid.fault) from None
        else:
            await self._mend(round_, chunk, self._wire.fault(reply), path)

    async def _mend(self, round_: _Round, chunk: list[Piece], fault: Fault, path: str) -> None:
        match fault.kind:
            case FaultKind.NO_ROUTE:
                await self._reroute(round_, chunk, path)
            case FaultKind.TOO_LONG if len(chunk) > 1:
                await self._together(round_, _set_apart(chunk, round_.query_tokens, fault.limit or round_.max_length))
            case FaultKind.TOO_LONG if (shorter := _clip(round_, chunk[0], fault)) is not None:
                await self._send(round_, [shorter])
            case FaultKind.TOO_MANY_TEXTS if len(chunk) > 1:
                most = min(fault.limit or len(chunk) // 2, len(chunk) - 1)
                self._max_texts = max(1, min(self._max_texts, most))
                await self._together(round_, _parts(chunk, max(1, most)))
            case FaultKind.TOO_MANY_BYTES if len(chunk) > 1:
                await self._together(round_, _parts(chunk, (len(chunk) + 1) // 2))
            case FaultKind.TOO_LONG | FaultKind.TOO_MANY_TEXTS | FaultKind.TOO_MANY_BYTES:
                round_.refused.append(chunk[0].position)
            case _:
                raise _RoundFailed(_ENDS[fault.kind], fault.code)

    async def _reroute(self, round_: _Round, chunk: list[Piece], path: str) -> None:
        round_.missing.add(path)
        if self._route() == path:  # else another chunk has moved on already
            self._wire.next_route()
        if self._route() in round_.missing:
            raise _RoundFailed(StageRefused, "no_route")
        await self._send(round_, chunk)

    def _route(self) -> str:
        path, _ = self._wire.request(b'""', [])
        return path


class _RoundFailed(Exception):
    """End a round from inside its chunks, before elapsed time is known."""

    def __init__(self, kind: type[StageError], code: str) -> None:
        super().__init__(code)
        self.kind = kind
        self.code = code


@dataclass(slots=True)
class _Round:
    """What one round gathers while its chunks come back."""

    count: int
    query: bytes = field(repr=False)
    query_tokens: int
    query_clipped: bool
    pieces: list[Piece]
    max_length: int
    server_clips: bool
    request_ids: Iterator[str]
    scores: dict[int, float] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    clipped: int = 0
    calls: int = 0
    tokens: int = 0
    tokens_estimated: bool = False
    slowest: dict[str, float] = field(default_factory=dict)

    def keep(self, chunk: Sequence[Piece], answer: ChunkAnswer) -> None:
        """Keep the scores of a chunk by position, and add up its cost; chunks run together, so the slowest counts."""
        for piece, score in zip(chunk, answer.scores, strict=True):
            self.scores[piece.position] = score
        estimated = sum(piece.tokens + self.query_tokens for piece in chunk)
        self.tokens += estimated if answer.tokens is None else answer.tokens
        self.tokens_estimated |= answer.tokens is None
        self.clipped += sum(self._is_clipped(piece) for piece in chunk)
        for name, milliseconds in (
            ("tokenize", answer.tokenize_ms),
            ("queue", answer.queue_ms),
            ("compute", answer.compute_ms),
        ):
            if milliseconds is not None:
                self.slowest[name] = max(milliseconds, self.slowest.get(name, 0.0))

    def _is_clipped(self, piece: Piece) -> bool:
        by_server = self.server_clips and piece.tokens + self.query_tokens > self.max_length
        return piece.shortened or self.query_clipped or by_server

    def result(self) -> StageScores:
        sent = {piece.position for piece in self.pieces}
        excluded = {position: Exclusion.BLANK for position in range(self.count) if position not in sent}
        excluded |= dict.fromkeys(self.refused, Exclusion.REFUSED)
        cost = StageCost(
            calls=self.calls,
            tokens=self.tokens,
            tokens_estimated=self.tokens_estimated,
            truncated=self.clipped,
            tokenize_ms=self.slowest.get("tokenize"),
            queue_ms=self.slowest.get("queue"),
            compute_ms=self.slowest.get("compute"),
        )
        return StageScores(tuple(self.scores.get(position) for position in range(self.count)), excluded, cost)


def _piece(position: int, text: str, max_length: int) -> Piece:
    """Prepare a document; what lies far beyond the longest pair is not sent."""
    sent = text[: max_length * _MOST_CHARACTERS_PER_TOKEN]
    return Piece(position, sent, orjson.dumps(sent), estimate_tokens(sent), shortened=len(sent) < len(text))


def _clip(round_: _Round, piece: Piece, fault: Fault) -> Piece | None:
    """Clip a refused document from the limit that the server stated; None when that was tried or leaves nothing.

    A stated limit above the stage's own does not count: llama.cpp names its batch size before its context size.
    """
    limit = min(fault.limit or round_.max_length, round_.max_length)
    room = limit - round_.query_tokens
    given = (fault.given or limit + 1) - round_.query_tokens
    if fault.given is None or fault.given_at_least:
        given = max(given, piece.tokens)
    text = clip_to_tokens(piece.text, room, measured_tokens=given)
    if piece.clip_to is not None or not text or text.isspace() or len(text) == len(piece.text):
        return None
    most = max(1, room * 9 // 10)
    clip_to = Clip(query=max(1, limit - PAIR_OVERHEAD_TOKENS - most), document=most)
    return Piece(piece.position, text, orjson.dumps(text), estimate_tokens(text), shortened=True, clip_to=clip_to)


def _parts(chunk: list[Piece], size: int) -> list[list[Piece]]:
    return [chunk[start : start + size] for start in range(0, len(chunk), size)]


def _set_apart(chunk: list[Piece], query_tokens: int, limit: int) -> list[list[Piece]]:
    """Send the documents that may be too long alone and the rest together; all alone where that tells nothing."""
    long = [piece for piece in chunk if piece.tokens + query_tokens > limit // 2]
    if not long or len(long) == len(chunk):
        return [[piece] for piece in chunk]
    return [[piece for piece in chunk if piece not in long], *([piece] for piece in long)]
