"""A stage as those use it whom nobody waits for: with what room is left over, and never a word to its guards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Final

from cascade.cache.stage import CachedStage
from cascade.errors import StageBreakerOpen, StageError, StageOverloaded
from cascade.guard.aside import aside
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.expected_ms import ExpectedMs
from cascade.rollout.shadow.parts import joined
from cascade.stages.around import Around
from cascade.stages.base import Stage
from cascade.stages.congestion import is_pressed
from cascade.stages.http import HttpReranker
from cascade.text import Text
from cascade.types import BreakerState, StageName, StageScores

__all__ = ["AsideStage", "AsideStages"]

_NAME: Final = "aside"
_NO_ROOM: Final = "waiting_for_room"
_TEXTS_INSIDE: Final = 4
"""Of a stage inside the sidecar: what an answer may have to wait for."""
_Sized = tuple[Sequence[Text], int]
"""What is never sent apart, and its tokens: as its call counts them, else a part's own calls would find no room behind each other.

That is a document, or a whole list where the stage orders lists.
"""


class AsideStage(Around):
    """Score at another's stage, with what room is left over.

    A round goes part by part, each as large as the room that is left over when it leaves: nobody waits, and half of the
    room stays free. Until that is so it waits beside the line, not in it, for as long as its deadline allows. Where there
    is load (``paused``), the breaker is not closed or the server tells of a queue it is given up at once. It is sent
    once, and neither breaker, limits, expected times nor the budget of retries learn from it. ``expected`` is its own.
    """

    def __init__(self, inner: Stage, clock: Clock, paused: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._clock = clock
        self._paused = paused
        self._room = inner.room if isinstance(inner, HttpReranker) else None
        self._texts = self._tokens = 0
        self._changed = asyncio.Event()
        self.expected = ExpectedMs(clock)

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        tokens = [0] * len(documents)  # where nothing is counted in them
        if isinstance(self._inner, HttpReranker):
            tokens = self._inner.pair_tokens(query, documents, deadline=deadline, instruction=instruction)
        left: list[_Sized] = [([document], size) for document, size in zip(documents, tokens, strict=True)]
        if self._inner.is_listwise:
            left = [(documents, sum(tokens))]
        whole = len(left)
        scored: list[StageScores] = []
        had_no_room = False
        while left:
            part = await self._enter(left, deadline, after_change=had_no_room)
            part_id = call_id if len(part) == whole else f"{call_id}-part{len(scored) + 1}"
            scores = await self._send(query, part, deadline=deadline, call_id=part_id, instruction=instruction)
            had_no_room = scores is None
            if scores is not None:
                scored.append(scores)
                left = left[len(part) :]
        return joined(scored)

    async def _send(
        self, query: Text, part: Sequence[_Sized], *, deadline: Deadline, call_id: str, instruction: Text | None
    ) -> StageScores | None:
        """Return the scores of a part, None where requests took its room in the turn between: then nothing has left."""
        texts = [document for documents, _ in part for document in documents]
        try:
            with aside():
                return await self._inner.score(
                    query, texts, deadline=deadline, call_id=call_id, instruction=instruction
                )
        except StageOverloaded as overloaded:
            if overloaded.code != _NO_ROOM or overloaded.sent:
                raise
            return None
        finally:
            self._leave(part)

    async def _enter(self, left: Sequence[_Sized], deadline: Deadline, *, after_change: bool) -> Sequence[_Sized]:
        """Take room for the next part, once there is some, and return the part. Raises StageError."""
        budget_ms = deadline.remaining_ms()
        try:
            async with deadline.timeout():
                if after_change:
                    await self._change()
                while not (part := self._part(left, deadline)):
                    await self._change()
        except TimeoutError:
            raise StageOverloaded(_NAME, _NO_ROOM, elapsed_ms=budget_ms, budget_ms=budget_ms) from None
        self._texts += len(part)
        self._tokens += sum(tokens for _, tokens in part)
        return part

    def _leave(self, part: Sequence[_Sized]) -> None:
        self._texts -= len(part)
        self._tokens -= sum(tokens for _, tokens in part)
        self._changed.set()

    async def _change(self) -> None:
        """Wait until there may be more room."""
        self._changed.clear()
        with nullcontext() if self._room is None else self._room.watched(self._changed.set):
            await self._changed.wait()

    def _part(self, left: Sequence[_Sized], deadline: Deadline) -> Sequence[_Sized]:
        """Return as many of the first documents as there is room for now. Raises StageError where none may leave at all."""
        if (refused := self._refused(deadline)) is not None:
            raise refused
        room = self._room
        if room is None:
            return () if self._texts else left[:_TEXTS_INSIDE]
        if room.waiting:
            return ()
        half, half_tokens = room.limit // 2, room.token_limit // 2
        most = _fitting(left, half, half_tokens) or 1
        if not room.in_flight and not self._texts:
            return left[:most]
        # What entered may not have left yet: it is no less in the way.
        texts, tokens = max(room.in_flight, self._texts), max(room.tokens_in_flight, self._tokens)
        count = _fitting(left, half - texts, half_tokens - tokens)
        return (
            left[:count] if count * 2 >= most else ()
        )  # ever smaller calls would cost the server more than they score

    def _refused(self, deadline: Deadline) -> StageError | None:
        """Return why nothing leaves for the server now, None where it may."""
        guarded, told, now = self._inner.guarded, self._inner.congestion, self._clock()
        budget_ms = deadline.remaining_ms()
        if self._paused():
            return StageOverloaded(_NAME, "paused", elapsed_ms=0.0, budget_ms=budget_ms)
        if guarded is not None and guarded.breaker is not BreakerState.CLOSED:
            return StageBreakerOpen(_NAME, "breaker_open", elapsed_ms=0.0, budget_ms=budget_ms)
        if guarded is None or told is None or told.is_stale(now):
            return None
        if is_pressed(told, now, call_ms=0.0, queue_ms=None, most_texts=guarded.limit_texts):
            return StageOverloaded(_NAME, _NO_ROOM, elapsed_ms=0.0, budget_ms=budget_ms)
        return None


def _fitting(left: Sequence[_Sized], texts: int, tokens: int) -> int:
    """Return how many of the first documents are within so many texts and tokens."""
    count = 0
    while count < min(texts, len(left)) and left[count][1] <= tokens:
        tokens -= left[count][1]
        count += 1
    return count


class AsideStages:
    """One `AsideStage` for each stage, however many releases share it. No part leaves while ``paused``."""

    def __init__(self, clock: Clock, paused: Callable[[], bool] = lambda: False) -> None:
        self._clock = clock
        self._paused = paused
        self._known: dict[int, tuple[Stage, AsideStage]] = {}

    def of(self, stages: Mapping[StageName, Stage]) -> dict[StageName, Stage]:
        """Return the stages of a release as those use them whom nobody waits for."""
        return {name: self._one_cached(stage) for name, stage in stages.items()}

    def anew(self, stages: Mapping[StageName, Stage]) -> dict[StageName, Stage]:
        """Return them with nothing that is kept of their scores: what judges an answer must not be what made it."""
        return {
            name: self._one(stage.inner if isinstance(stage, CachedStage) else stage) for name, stage in stages.items()
        }

    def _one_cached(self, stage: Stage) -> Stage:
        """Return the stage as it is used aside. What is kept of its scores is asked before its server is."""
        return stage.aside(self._one(stage.inner)) if isinstance(stage, CachedStage) else self._one(stage)

    def _one(self, stage: Stage) -> AsideStage:
        known = self._known.get(id(stage))  # the stage is kept too, so that no other gets its identity
        if known is None:
            known = self._known[id(stage)] = stage, AsideStage(stage, self._clock, self._paused)
        return known[1]
