"""A stage behind HTTP: chunk, send, mend what can be mended, join by index."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from cascade.errors import (
    ConfigError,
    StageBreakerOpen,
    StageError,
    StageRefused,
    StageTimeout,
)
from cascade.guard.aside import is_aside
from cascade.guard.breaker import Breaker, Outcome
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.events import Guarded, GuardEvents
from cascade.guard.expected_ms import ExpectedMs
from cascade.guard.inflight import TextLimiter
from cascade.guard.own_calls import is_of_traffic, is_own_call
from cascade.policy.release import HttpStage
from cascade.stages.base import Congestion, Observed
from cascade.stages.calls import Calls, RoundFailed
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.looks import Looks
from cascade.stages.round import Round, begin_round
from cascade.stages.sending import Sending, texts_a_call
from cascade.stages.serializers import Serializer, serializer
from cascade.stages.upstream import Upstream
from cascade.stages.verdicts import EVERY_REFUSED, verdict_of
from cascade.stages.wire import Wire
from cascade.telemetry.work import NO_WORK_EVENTS, WorkEvents
from cascade.text import Text
from cascade.types import Fingerprint, ScoreSpace, StageScores

__all__ = ["HttpReranker"]

_NO_EVENTS: Final = GuardEvents()


class HttpReranker:
    """Score documents at one server.

    A request is split by texts, bytes and tokens; chunks run at the same time, bounded in texts and tokens over
    all requests. `Sending` mends what can be mended, `Calls` keeps calls within the limits and makes them again where
    the time and the budget of retries allow. Where rounds fail again and again, none leaves for a while (`Breaker`).

    ``budget_ms`` is what a round has at most; ``draw`` gives numbers in [0, 1); ``events`` is told of what the guards do, and
    ``work`` of what pairs are read as.
    """

    _sends: ClassVar[type[Sending]] = Sending

    def __init__(
        self,
        name: str,
        spec: HttpStage,
        wire: Wire,
        upstream: Upstream,
        clock: Clock,
        count_fault: Callable[[BaseException], None] = lambda error: None,
        *,
        budget_ms: float = math.inf,
        draw: Callable[[], float] = random.random,
        events: GuardEvents = _NO_EVENTS,
        work: WorkEvents = NO_WORK_EVENTS,
    ) -> None:
        self._name = name
        self._spec = spec
        self._wire = wire
        self._upstream = upstream
        self._clock = clock
        self._work = work
        self._serializer: Serializer = serializer(spec.serializer)
        if (self._serializer.listed is not None) is not self.is_listwise:
            writes = "pairs, and this stage orders lists" if self.is_listwise else "lists, and this stage scores pairs"
            raise ConfigError(f"{name}: serializer: {spec.serializer} writes {writes}")
        self._fingerprint = fingerprint_of(spec, self._serializer)
        if spec.instruction is not None and not self.takes_instruction:
            raise ConfigError(f"{name}: instruction: neither the serializer nor the server of this adapter takes one")
        self._max_length = spec.max_length
        self._slow_ms = math.inf
        self.allow(budget_ms)
        self._breaker = Breaker(spec.breaker, clock, draw, events.breaker)
        self._calls = Calls(
            spec,
            upstream,
            clock,
            texts_a_call=texts_a_call(spec, wire),
            draw=draw,
            events=events,
            costly=self.is_listwise,
        )
        self._looks = Looks(name, wire, upstream, clock, self._bounded_by, count_fault)
        self._sending = self._sends(
            spec, wire, self._calls, self._looks, clock, owns_template=self._serializer.owns_template
        )
        self.expected = ExpectedMs(clock)

    @property
    def fingerprint(self) -> Fingerprint:
        return self._fingerprint

    @property
    def space(self) -> ScoreSpace:
        return self._spec.score_space

    @property
    def observed(self) -> Observed | None:
        return self._looks.observed

    @property
    def unusable(self) -> str | None:
        return self._looks.unusable

    @property
    def congestion(self) -> Congestion | None:
        return self._looks.congestion

    @property
    def takes_instruction(self) -> bool:
        return self._serializer.instruction is not None or (
            self._wire.takes_instruction and not self._serializer.owns_template
        )

    @property
    def is_listwise(self) -> bool:
        return False

    @property
    def is_identified(self) -> bool:
        return self._looks.is_sure

    @property
    def room(self) -> TextLimiter:
        """Return what bounds the texts and tokens in flight."""
        return self._calls.room

    @property
    def breaker(self) -> Breaker:
        """Return what lets no round leave for a while where rounds fail."""
        return self._breaker

    @property
    def guarded(self) -> Guarded:
        room = self._calls.room
        return Guarded(
            breaker=self._breaker.state,
            limit_texts=room.limit,
            limit_tokens=room.token_limit,
            in_flight_texts=room.in_flight,
            in_flight_tokens=room.tokens_in_flight,
            waiting_calls=room.waiting,
        )

    def allow(self, budget_ms: float) -> None:
        """Give a round ``budget_ms`` at most from now on: where the release does not say, that is slow to the breaker."""
        said = self._spec.breaker.slow_ms
        self._slow_ms = budget_ms if said is None else said

    async def start(self) -> None:
        await self._looks.start()

    async def look_again(self) -> bool:
        return await self._looks.again()

    async def returned(self) -> None:
        await self._looks.returned()

    async def aclose(self) -> None:
        await self._looks.aclose()
        await self._upstream.aclose()

    def _bounded_by(self, found: Observed) -> None:
        """Keep to the limits that the server states."""
        self._max_length = min(self._spec.max_length, found.max_length or self._spec.max_length)
        self._sending.bound(found)

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
        if self._looks.unusable is not None:
            raise StageRefused(self._name, self._looks.unusable, elapsed_ms=0.0, budget_ms=budget_ms)
        entered = self._breaker.enter()
        if entered is None:
            raise StageBreakerOpen(self._name, "breaker_open", elapsed_ms=0.0, budget_ms=budget_ms)
        outcome = Outcome.IGNORE
        round_: Round | None = None
        kind: type[StageError]
        try:
            round_ = self._begin(query, documents, instruction, call_id, deadline)
            async with deadline.timeout():
                await self._sending.send(round_)
            if round_.pieces and not round_.scores:
                raise RoundFailed(StageRefused, EVERY_REFUSED)
            outcome = self._outcome_of(round_)
            if round_.pieces and not self.is_listwise and is_of_traffic():
                self._work.read(round_.read_as())
            return round_.result()
        except TimeoutError:
            kind, code = StageTimeout, "deadline" if round_ is not None and round_.left else "waiting_for_room"
            outcome = self._given_up(round_)
        except RoundFailed as failed:
            kind, code = failed.kind, failed.code
            outcome = verdict_of(code).breaker
        except asyncio.CancelledError:
            outcome = self._given_up(round_)
            raise
        finally:
            # A round that nobody waits for may be larger than any other, and says nothing of what those take. Our own
            # questions come one after the other until a server answers: they must not keep its traffic, or the next, away.
            says_nothing = is_aside() or (is_own_call() and outcome is Outcome.FAILURE)
            self._breaker.leave(entered, Outcome.IGNORE if says_nothing else outcome)
        # outside, so that no error is chained whose frames hold text
        elapsed_ms = (self._clock() - started) * 1000
        sent = len(round_.left) if round_ else 0
        queue_ms = round_.queue_ms if round_ and kind is StageTimeout else None
        room_ms = round_.room_ms if round_ else None
        raise kind(
            self._name, code, elapsed_ms=elapsed_ms, budget_ms=budget_ms, sent=sent, queue_ms=queue_ms, room_ms=room_ms
        )

    def pair_tokens(
        self, query: Text, documents: Sequence[Text], *, deadline: Deadline, instruction: Text | None = None
    ) -> list[int]:
        """Return about how many tokens each pair has as it is sent, which is what the room is counted in; 0 where it is not."""
        round_ = self._begin(query, documents, instruction, "", deadline)
        tokens = [0] * len(documents)
        for piece in round_.pieces:
            tokens[piece.position] = round_.tokens_of([piece])
        return tokens

    def _begin(
        self, query: Text, documents: Sequence[Text], instruction: Text | None, call_id: str, deadline: Deadline
    ) -> Round:
        return begin_round(
            query,
            documents,
            serializer=self._serializer,
            instruction=self._spec.instruction if instruction is None else instruction.reveal(),
            max_length=self._max_length,
            server_clips=self._wire.clips,
            most_characters=self._wire.most_characters,
            route=self._sending.route,
            call_id=call_id,
            deadline=deadline,
        )

    def _outcome_of(self, round_: Round) -> Outcome:
        if not round_.calls:
            return Outcome.IGNORE  # nothing to score: the server was not asked
        return Outcome.FAILURE if round_.slowest_call_ms >= self._slow_ms else Outcome.SUCCESS

    def _given_up(self, round_: Round | None) -> Outcome:
        """Return what it says of the server that nobody waited any longer: nothing, if it was given little time.

        Nor where it was behind with what it had been sent before.
        """
        if round_ is None or round_.left_at is None or round_.queued:
            return Outcome.IGNORE
        waited_ms = (self._clock() - round_.left_at) * 1000
        return Outcome.FAILURE if waited_ms * 2 >= self._slow_ms else Outcome.IGNORE
