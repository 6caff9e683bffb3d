"""A stage as those use it whom nobody waits for: with what room is left over, and never a word to its guards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cascade.errors import StageBreakerOpen, StageError, StageOverloaded
from cascade.guard.aside import aside, has_room_aside
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.events import Guarded
from cascade.guard.expected_ms import ExpectedMs
from cascade.pipeline.rounds import pair_tokens
from cascade.rollout.shadow.parts import joined
from cascade.stages.base import Congestion, Observed, Stage
from cascade.stages.congestion import is_pressed
from cascade.stages.http import HttpReranker
from cascade.text import Text
from cascade.types import BreakerState, Fingerprint, ScoreSpace, StageName, StageScores

__all__ = ["AsideStage", "AsideStages"]

_NAME: Final = "aside"
_TEXTS_INSIDE: Final = 4
"""Of a stage inside the sidecar: what an answer may have to wait for."""


class AsideStage:
    """Score at another's stage, with what room is left over.

    A round leaves only while the breaker is closed, where the server tells of no queue, and where nobody waits and
    half of the room stays free; it goes part by part where it is larger than that. It waits for nothing but
    other rounds of its own kind: otherwise it is given up at once. It is sent once, and neither breaker, limits,
    expected times nor the budget of retries learn from it. ``expected`` is its own.
    """

    def __init__(self, inner: Stage, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._room = inner.room if isinstance(inner, HttpReranker) else None
        self._texts = self._tokens = 0
        self._left = asyncio.Event()
        self.expected = ExpectedMs(clock)

    @property
    def fingerprint(self) -> Fingerprint:
        return self._inner.fingerprint

    @property
    def space(self) -> ScoreSpace:
        return self._inner.space

    @property
    def observed(self) -> Observed | None:
        return self._inner.observed

    @property
    def unusable(self) -> str | None:
        return self._inner.unusable

    @property
    def congestion(self) -> Congestion | None:
        return self._inner.congestion

    @property
    def guarded(self) -> Guarded | None:
        return self._inner.guarded

    @property
    def takes_instruction(self) -> bool:
        return self._inner.takes_instruction

    async def start(self) -> None:
        """Do nothing: whose stage it is starts it."""

    async def look_again(self) -> bool:
        return await self._inner.look_again()

    async def returned(self) -> None:
        await self._inner.returned()

    async def aclose(self) -> None:
        """Do nothing: whose stage it is closes it."""

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        parts = list(self._parts(query, documents))
        scored = []
        for number, (texts, tokens) in enumerate(parts, 1):
            await self._enter(len(texts), tokens, deadline)
            try:
                with aside():
                    part = await self._inner.score(
                        query,
                        texts,
                        deadline=deadline,
                        call_id=call_id if len(parts) == 1 else f"{call_id}-part{number}",
                        instruction=instruction,
                    )
            finally:
                self._leave(len(texts), tokens)
            scored.append(part)
        return joined(scored)

    def _parts(self, query: Text, documents: Sequence[Text]) -> Iterator[tuple[list[Text], int]]:
        """Yield runs of documents that each leave half of the room free, and their tokens; one at least each."""
        room = self._room
        most_texts = _TEXTS_INSIDE if room is None else max(1, room.limit // 2)
        most_tokens = None if room is None else room.token_limit // 2
        part: list[Text] = []
        tokens = 0
        for document in documents:
            more = pair_tokens(query, [document], self.fingerprint.max_length)
            if part and (len(part) >= most_texts or (most_tokens is not None and tokens + more > most_tokens)):
                yield part, tokens
                part, tokens = [], 0
            part.append(document)
            tokens += more
        yield part, tokens

    async def _enter(self, texts: int, tokens: int, deadline: Deadline) -> None:
        """Take room for a part, once other parts of this kind have left it. Raises StageError where others have it."""
        while (refused := self._refused(deadline)) is None and not self._fits(texts, tokens):
            if not self._texts:
                refused = StageOverloaded(_NAME, "waiting_for_room", elapsed_ms=0.0, budget_ms=deadline.remaining_ms())
                break
            self._left.clear()
            await self._left.wait()
        if refused is not None:
            raise refused
        self._texts += texts
        self._tokens += tokens

    def _leave(self, texts: int, tokens: int) -> None:
        self._texts -= texts
        self._tokens -= tokens
        self._left.set()

    def _refused(self, deadline: Deadline) -> StageError | None:
        """Return why nothing leaves for the server now, None where it may."""
        guarded, told, now = self._inner.guarded, self._inner.congestion, self._clock()
        budget_ms = deadline.remaining_ms()
        if guarded is not None and guarded.breaker is not BreakerState.CLOSED:
            return StageBreakerOpen(_NAME, "breaker_open", elapsed_ms=0.0, budget_ms=budget_ms)
        if guarded is None or told is None or told.is_stale(now):
            return None
        if is_pressed(told, now, call_ms=0.0, queue_ms=None, most_texts=guarded.limit_texts):
            return StageOverloaded(_NAME, "waiting_for_room", elapsed_ms=0.0, budget_ms=budget_ms)
        return None

    def _fits(self, texts: int, tokens: int) -> bool:
        if self._room is None:
            return not self._texts
        room = self._room
        if not has_room_aside(room, texts, tokens):
            return False
        if not self._texts:
            return True
        # What entered may not have left yet: it is no less in the way.
        return (self._texts + texts) * 2 <= room.limit and (self._tokens + tokens) * 2 <= room.token_limit


class AsideStages:
    """One `AsideStage` for each stage, however many releases share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[int, tuple[Stage, AsideStage]] = {}

    def of(self, stages: Mapping[StageName, Stage]) -> dict[StageName, Stage]:
        """Return the stages of a release as those use them whom nobody waits for."""
        return {name: self._one(stage) for name, stage in stages.items()}

    def _one(self, stage: Stage) -> AsideStage:
        known = self._known.get(id(stage))  # the stage is kept too, so that no other gets its identity
        if known is None:
            known = self._known[id(stage)] = stage, AsideStage(stage, self._clock)
        return known[1]
