"""Send a round in chunks: mend what can be mended, and join what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cascade.errors import (
    StageError,
    StageInvalidAnswer,
    StageOverloaded,
    StageRefused,
    StageTimeout,
    StageUnreachable,
)
from cascade.guard.deadline import Clock
from cascade.policy.release import HttpStage
from cascade.stages.answers import InvalidAnswer
from cascade.stages.base import Observed
from cascade.stages.calls import Call, Calls, RoundFailed, Sent, retry_after_s
from cascade.stages.chunking import ChunkLimits, Piece, plan_chunks
from cascade.stages.congestion import is_pressed
from cascade.stages.looks import Looks
from cascade.stages.round import Round, parts, set_apart
from cascade.stages.together import together
from cascade.stages.wire import ChunkAnswer, Fault, FaultKind, Wire
from cascade.telemetry.span_schema import Attribute

__all__ = ["Sending", "texts_a_call"]

_BODY_SLACK_BYTES: Final = 512
_ENDS: Final[dict[FaultKind, type[StageError]]] = {
    FaultKind.OVERLOADED: StageOverloaded,
    FaultKind.UNREACHABLE: StageUnreachable,
    FaultKind.TIMEOUT: StageTimeout,
    FaultKind.REFUSED: StageRefused,
    FaultKind.UNUSABLE: StageRefused,
    FaultKind.BROKEN: StageInvalidAnswer,
}
"""What ends a round; the other kinds can be mended."""


def texts_a_call(spec: HttpStage, wire: Wire, told: int | None = None) -> int:
    """Return the most texts a call: as configured, told or usual, and never above what is told or known."""
    texts = spec.chunk_texts or told or wire.texts_by_default
    return min(texts, told or texts, wire.most_texts or texts)


class Sending:
    """Send the documents of a round to one server.

    Chunks run at the same time. One that the server finds too long or too large is taken apart, an over-long
    document is clipped once from the limit that the server stated, and left out if it is refused again. A call that
    fails in a way that may pass is made again. Anything else that fails, fails the round.
    """

    def __init__(
        self, spec: HttpStage, wire: Wire, calls: Calls, looks: Looks, clock: Clock, *, owns_template: bool
    ) -> None:
        self._spec = spec
        self._wire = wire
        self._calls = calls
        self._looks = looks
        self._clock = clock
        self._owns_template = owns_template
        self._max_texts = texts_a_call(spec, wire)
        self.route = wire.routes[0]

    def bound(self, found: Observed) -> None:
        """Keep to the limits that the server states."""
        in_flight = found.max_in_flight_texts or self._spec.max_in_flight_texts
        self._calls.bound(min(self._spec.max_in_flight_texts, in_flight))
        self._max_texts = texts_a_call(self._spec, self._wire, found.max_texts)

    async def send(self, round_: Round) -> None:
        """Send all pieces of a round. Raises RoundFailed."""
        limits = ChunkLimits(
            texts=min(self._max_texts, self._calls.most_texts),
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
        await together(self._send(round_, chunk) for chunk in chunks)

    async def _send(self, round_: Round, chunk: list[Piece]) -> None:
        route = round_.route
        body = self._wire.request(
            route,
            round_.query,
            [piece.encoded for piece in chunk],
            clip_to=chunk[0].clip_to if len(chunk) == 1 else None,
            instruction=None if self._owns_template else round_.instruction,
        )
        leaving = {piece.position for piece in chunk} - round_.left
        call = Call(route, self._texts_of(chunk), round_.tokens_of(chunk), leaving)
        failed: RoundFailed | None = None
        fault: Fault | None = None
        try:
            fault = await self._attempt(round_, chunk, call, body)
        except RoundFailed as first:
            failed = first
        if failed is not None:  # outside, so that what follows is not chained to it
            fault = await self._calls.again(
                round_.deadline,
                call.tokens,
                failed,
                lambda resent: self._attempt(round_, chunk, replace(call, resent=resent), body),
            )
        if fault is not None:
            await self._mend(round_, chunk, fault, route)

    def _texts_of(self, chunk: Sequence[Piece]) -> int:
        """Return what a call counts for among the texts in flight."""
        return len(chunk)

    async def _attempt(self, round_: Round, chunk: list[Piece], call: Call, body: bytes) -> Fault | None:
        """Make a call and keep its scores, or return what about the chunk is to be mended. Raises RoundFailed."""
        try:
            sent = await self._calls.send(round_, call, body)
        except RoundFailed as failed:
            if failed.kind is StageUnreachable:
                self._looks.lost()
            raise
        reply = sent.reply
        if reply.status == 200:
            try:
                answer = self._wire.answer(reply, len(chunk))
            except InvalidAnswer as invalid:
                raise RoundFailed(StageInvalidAnswer, invalid.fault) from None
            round_.keep(chunk, answer)
            sent.span.set(Attribute.TOKENS, answer.tokens)
            self.route = call.route
            self._learn(round_, call, sent, answer)
            return None
        fault = self._wire.fault(reply)
        kind = _ENDS.get(fault.kind)
        if kind is None:
            return fault
        if fault.kind is FaultKind.OVERLOADED:
            self._calls.had_no_room(sent)
        elif fault.kind is FaultKind.UNREACHABLE:
            self._looks.lost()
        raise RoundFailed(kind, fault.code, retry_after_s=retry_after_s(reply.headers))

    def _learn(self, round_: Round, call: Call, sent: Sent, answer: ChunkAnswer) -> None:
        """Take in what an answer told of the server by its time and its headers."""
        queue_ms, now = answer.queue_ms, self._clock()
        pressed = is_pressed(
            self._looks.congestion, now, call_ms=sent.ms, queue_ms=queue_ms, most_texts=self._calls.room.limit
        )
        self._calls.answered(round_, call, sent, pressed=pressed)
        self._looks.answered(queue_ms)

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
                raise RoundFailed(_ENDS[fault.kind], fault.code)

    async def _reroute(self, round_: Round, chunk: list[Piece], missing: str) -> None:
        """Send a chunk on the next route that this round has not missed; another chunk may have moved on already."""
        round_.missing.add(missing)
        others = [route for route in self._wire.routes if route not in round_.missing]
        if not others:
            raise RoundFailed(StageRefused, "no_route")
        if round_.route in round_.missing:
            round_.route = others[0]
        await self._send(round_, chunk)
