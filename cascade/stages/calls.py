"""The calls of a stage at its server: within the limits, only where there is time, and again where that may help."""

from __future__ import annotations

import math
from asyncio import CancelledError
from asyncio import sleep as asyncio_sleep
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from tenacity import AsyncRetrying, retry_if_exception

from cascade.errors import NO_TIME, StageError, StageInvalidAnswer, StageOverloaded, StageTooLate, StageUnreachable
from cascade.guard.adaptive_limit import AdaptiveLimit
from cascade.guard.answering import Answering, Leaving
from cascade.guard.aside import has_room_aside, is_aside
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.events import GuardEvents
from cascade.guard.expected_ms import ExpectedMs, Fit
from cascade.guard.inflight import TextLimiter
from cascade.guard.own_calls import is_own_call
from cascade.guard.retry_budget import RetryBudget
from cascade.policy.stage_specs import HttpStage
from cascade.stages.round import Round
from cascade.stages.traced_call import post_traced
from cascade.stages.upstream import Lost, Reply, Upstream
from cascade.stages.verdicts import TURNED_AWAY, Retry, verdict_of
from cascade.telemetry.spans import Opened
from cascade.types import RetryOutcome

__all__ = ["Call", "Calls", "RoundFailed", "Sent", "retry_after_s"]

Result = TypeVar("Result")

_UNREADABLE: Final = frozenset({"answer_too_large", "bad_encoding", "not_http"})
"""Causes of loss where the server did answer."""
_NEVER_LEFT: Final = frozenset({"refused", "dns", "connect_timeout"})
"""Causes of loss where there was no connection to send anything on."""
_PAUSE_MS: Final = 10.0
_LONGEST_PAUSE_MS: Final = 200.0
_AT_THE_END_MS: Final = 2.0
"""How early the timer of a deadline may fire."""
_TOKENS_A_TEXT: Final = 256
"""What a text is taken to have before any was sent."""


class RoundFailed(Exception):
    """End a round from inside its chunks, before elapsed time is known. ``retry_after_s`` is the server's own word."""

    def __init__(self, kind: type[StageError], code: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(code)
        self.kind = kind
        self.code = code
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Call:
    """One call: where it goes, its size, and the positions of the documents that leave with it for the first time.

    ``resent`` says which repetition of a call that failed it is, 0 for the call itself.
    """

    route: str
    texts: int
    tokens: int
    leaving: set[int]
    resent: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """A call that was answered, whatever the answer, what was under way with it, and its span, which has ended."""

    reply: Reply
    ms: float
    in_flight: int
    fit: Fit
    leaving: Leaving
    span: Opened


class Calls:
    """Make calls. ``draw`` gives numbers in [0, 1) for pauses; ``events`` is told of retries.

    Where calls are ``costly``, one that the server may have worked on is never made again.
    """

    def __init__(
        self,
        spec: HttpStage,
        upstream: Upstream,
        clock: Clock,
        *,
        texts_a_call: int,
        draw: Callable[[], float],
        events: GuardEvents,
        costly: bool = False,
    ) -> None:
        self._upstream = upstream
        self._clock = clock
        self._draw = draw
        self._retried = events.retried
        self._retries = spec.retries
        self._costly = costly
        self._budget = RetryBudget(spec.retry_share)
        self._expected = ExpectedMs(clock)
        self._answering = Answering()
        self._most_tokens = spec.max_in_flight_tokens
        self.room = TextLimiter(spec.max_in_flight_texts, spec.max_in_flight_tokens)
        self.most_texts = spec.max_in_flight_texts
        self._adaptive: AdaptiveLimit | None = None
        if spec.adaptive_limit:
            self._adaptive = AdaptiveLimit(
                most_texts=spec.max_in_flight_texts,
                most_tokens=spec.max_in_flight_tokens,
                call_texts=texts_a_call,
                call_tokens=texts_a_call * (spec.max_length if costly else min(spec.max_length, _TOKENS_A_TEXT)),
            )
        self._fit_room()

    def bound(self, most_texts: int) -> None:
        """Keep below what a server says it takes, too."""
        self.most_texts = most_texts
        if self._adaptive is not None:
            self._adaptive.most_texts = most_texts
        self._fit_room()

    async def send(self, round_: Round, call: Call, body: bytes) -> Sent:
        """Wait for room, make one call within the time that is left, and return its answer. Raises RoundFailed.

        A call that nobody waits for (`aside`) does not wait either: without room it fails at once.
        """
        if is_aside() and not has_room_aside(self.room, call.texts, call.tokens):
            raise RoundFailed(StageOverloaded, "waiting_for_room")
        async with self._in_room(round_, call) as waited_ms:
            began = self._clock()
            fit = Fit.FITS if is_aside() else self._expected.judge(call.tokens, round_.deadline.remaining_ms())
            if fit is Fit.TOO_LONG:
                raise RoundFailed(StageTooLate, NO_TIME)
            round_.leaves(call.leaving, began)
            leaving, own_texts = self._answering.leaves(began), round_.answered_texts
            try:
                reply, span = await post_traced(
                    self._upstream,
                    call.route,
                    body,
                    request_id=next(round_.request_ids),
                    texts=call.texts,
                    tokens=call.tokens,
                    resent=call.resent,
                    room_ms=waited_ms,
                )
            except Lost as lost:
                if lost.code in _NEVER_LEFT:
                    round_.left -= call.leaving
                kind = StageInvalidAnswer if lost.code in _UNREADABLE else StageUnreachable
                failed = RoundFailed(kind, lost.code)
            except CancelledError:
                self._gave_up(round_, call, leaving, fit, waited_ms, round_.answered_texts - own_texts)
                raise
            else:
                ms = (self._clock() - began) * 1000
                round_.slowest_call_ms = max(round_.slowest_call_ms, ms)
                return Sent(reply, ms, self.room.in_flight, fit, leaving, span)
        raise failed

    @asynccontextmanager
    async def _in_room(self, round_: Round, call: Call) -> AsyncIterator[float]:
        """Hold room for a call inside the block, which is told for how many ms it waited; its round is, in vain too."""
        waits, asked, waited_ms = not self.room.has_room(call.texts, call.tokens), self._clock(), 0.0
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(self.room.hold(call.texts, call.tokens))
            finally:
                if waits:
                    waited_ms = (self._clock() - asked) * 1000
                    round_.room_ms = max(round_.room_ms or 0.0, waited_ms)
            yield waited_ms

    def answered(self, round_: Round, call: Call, sent: Sent, *, pressed: bool) -> None:
        """Learn from a call whose scores count; ``pressed`` tells that the server has a queue, by its own account."""
        if is_aside():
            return
        self._budget.answered()
        round_.answered_texts += call.texts
        self._answering.answered(sent.leaving, call.texts, self._clock())
        self._expected.ended(call.tokens, sent.ms, sent.fit)
        if self._adaptive is not None and not is_own_call():
            self._adaptive.answered(
                texts=call.texts,
                tokens=call.tokens,
                ms=sent.ms,
                in_flight=sent.in_flight,
                pressed=pressed,
                had_ms=(round_.room_ms or 0.0) + sent.ms + round_.deadline.remaining_ms(),
            )
            self._fit_room()

    def had_no_room(self, sent: Sent) -> None:
        """Learn from a call that the server had no room for."""
        self._drop(self._clock() - sent.ms / 1000)

    async def again(
        self, deadline: Deadline, tokens: int, failed: RoundFailed, attempt: Callable[[int], Awaitable[Result]]
    ) -> Result:
        """Make a call again that failed, while that may help and the time that is left carries it. Raises RoundFailed.

        ``attempt`` is told which repetition it is, from 1. A pause that the server asks for is kept, or the call given up at once.
        """
        tries, pause_ms = 1, 0.0

        def may_help(error: BaseException) -> bool:
            nonlocal pause_ms
            if not isinstance(error, RoundFailed):
                return False
            if error is not failed:
                self._retried(RetryOutcome.FAILED)
            pause_ms = self._pause_ms(error, tries)
            return tries <= self._retries and self._may_repeat(error, tokens, pause_ms, deadline)

        async for trying in AsyncRetrying(
            retry=retry_if_exception(may_help), wait=lambda state: pause_ms / 1000, sleep=asyncio_sleep, reraise=True
        ):
            with trying:
                tries = trying.retry_state.attempt_number
                if tries == 1:
                    raise failed
                result = await attempt(tries - 1)
                self._retried(RetryOutcome.ANSWERED)
                return result
        raise failed  # not reached: the loop above returns or raises

    def _may_repeat(self, failed: RoundFailed, tokens: int, pause_ms: float, deadline: Deadline) -> bool:
        never = is_aside() or (self._costly and failed.code not in TURNED_AWAY)
        rule = Retry.NEVER if never else verdict_of(failed.code).retry
        if rule is Retry.NEVER:
            return False
        expected_ms = self._expected.p90_ms(tokens)
        guess = expected_ms is None and rule is Retry.IF_KNOWN
        if guess or pause_ms + (expected_ms or 0.0) >= deadline.remaining_ms():
            self._retried(RetryOutcome.NO_TIME)
            return False
        if not self._budget.take():
            self._retried(RetryOutcome.NO_BUDGET)
            return False
        return True

    def _pause_ms(self, failed: RoundFailed, tries: int) -> float:
        """Return what the server asks for, else a random share of a pause that doubles with each try."""
        if failed.retry_after_s is not None:
            return failed.retry_after_s * 1000
        return self._draw() * min(_LONGEST_PAUSE_MS, _PAUSE_MS * 2.0**tries)

    def _gave_up(self, round_: Round, call: Call, leaving: Leaving, fit: Fit, waited_ms: float, own_texts: int) -> None:
        """Learn from a call that nobody waits for any longer; what its caller left behind before its time says less.

        Where the limit can follow, a queue at the server is ours to shorten, and no fault of the server's.
        """
        if is_aside():
            return
        adaptive, now = self._adaptive, self._clock()
        queued = adaptive is not None and self._answering.is_queued(leaving, now, own_texts)
        ms = (now - leaving.at) * 1000
        round_.gives_up(ms, queued=queued)
        if round_.deadline.remaining_ms() >= _AT_THE_END_MS:
            return
        self._expected.gave_up(call.tokens, ms, fit, waited_ms=waited_ms)
        if adaptive is None:
            return
        carried: int | None = None
        if queued and adaptive.is_slow(tokens=call.tokens, ms=ms):
            carried = self._answering.texts_since(leaving)
            self._answering.fell_behind(now)
        adaptive.dropped(leaving.at, now, carried)
        self._fit_room()

    def _drop(self, began: float) -> None:
        if self._adaptive is not None and not is_aside():
            self._adaptive.dropped(began, self._clock())
            self._fit_room()

    def _fit_room(self) -> None:
        adaptive = self._adaptive
        texts, tokens = (self.most_texts, self._most_tokens) if adaptive is None else (adaptive.texts, adaptive.tokens)
        self.room.set_limits(texts, tokens)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the pause that an answer asks for; one that cannot be read is longer than any deadline."""
    value = headers.get("retry-after")
    if value is None:
        return None
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else math.inf
