"""Score lists with a started stage: runs, time, tokens, and what failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    wait_exponential,
)

from cascade.errors import ConfigError, StageError, StageRefused
from cascade.guard.deadline import Clock, Deadline
from cascade.parity.lists import CandidateList, FloatArray, Runs
from cascade.stages.base import Stage
from cascade.text import Text
from cascade.types import StageScores

__all__ = ["Caller", "Scored", "score_lists"]

_ROUND_MS: Final = 600_000.0
_ATTEMPTS: Final = 3
_FAILURES_IN_A_ROW: Final = 5


class Caller:
    """Call a stage until it answers, three times at most, or once where it refuses. ``name`` is REF or CAND."""

    def __init__(self, stage: Stage, name: str, clock: Clock) -> None:
        self.name = name
        self._stage = stage
        self._clock = clock

    async def round(self, query: str, documents: Sequence[str]) -> tuple[StageScores, float]:
        """Return the answer and its milliseconds. Raises StageError."""
        texts = [Text(document) for document in documents]
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(StageError) & retry_if_not_exception_type(StageRefused),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_exponential(multiplier=1, max=30),
            reraise=True,
        ):
            with attempt:
                began = self._clock()
                deadline = Deadline.after_ms(_ROUND_MS, self._clock)
                answer = await self._stage.score(Text(query), texts, deadline=deadline, call_id="parity")
                elapsed_ms = (self._clock() - began) * 1000
        return answer, elapsed_ms

    async def scores(self, query: str, documents: Sequence[str]) -> FloatArray:
        """Return a score a document, NaN for one that the stage left out. Raises ConfigError where it does not answer."""
        try:
            answer, _ = await self.round(query, documents)
        except StageError as error:
            raise ConfigError(f"{self.name}: does not score: {error.reason} ({error.code})") from None
        return _array(answer)


@dataclass(frozen=True, slots=True)
class Scored:
    """What a stage made of the lists.

    ``ms_per_pair`` and ``tokens`` are those of a list's first run, by its id; tokens only where the server
    counted them. ``failed`` maps a list to the reason; all its scores are NaN.
    """

    runs: Runs
    ms_per_pair: Mapping[str, float]
    tokens: Mapping[str, int]
    failed: Mapping[str, str]


async def score_lists(
    caller: Caller, lists: Sequence[CandidateList], runs: int, advance: Callable[[], None] = lambda: None
) -> Scored:
    """Score every list ``runs`` times, one call a list and run, all lists before the next run.

    A list that fails in a run has failed. Raises ConfigError where five in a row do.
    """
    arrays = {item.id: np.full((runs, len(item.doc_ids)), np.nan) for item in lists}
    ms_per_pair: dict[str, float] = {}
    tokens: dict[str, int] = {}
    failed: dict[str, str] = {}
    for run in range(runs):
        in_a_row = 0
        for item in lists:
            if item.query is None or item.documents is None:
                raise ValueError("a stage scores lists that have text")
            if item.id in failed:
                continue
            try:
                answer, elapsed_ms = await caller.round(item.query, item.documents)
            except StageError as error:
                failed[item.id] = f"{error.reason} ({error.code})"
                arrays[item.id][:] = np.nan
                in_a_row += 1
                if in_a_row >= _FAILURES_IN_A_ROW:
                    raise ConfigError(
                        f"{caller.name}: {in_a_row} queries in a row failed: {failed[item.id]}; nothing was compared"
                    ) from None
                continue
            in_a_row = 0
            arrays[item.id][run] = _array(answer)
            if run == 0:
                ms_per_pair[item.id] = elapsed_ms / max(1, len(item.documents) - len(answer.excluded))
                if not answer.cost.tokens_estimated:
                    tokens[item.id] = answer.cost.tokens
            advance()
    return Scored(arrays, ms_per_pair, tokens, failed)


def _array(answer: StageScores) -> FloatArray:
    return np.array([np.nan if score is None else score for score in answer.scores], dtype=np.float64)
