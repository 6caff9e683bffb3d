"""A stage that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cascade.errors import StageError, StageTimeout
from cascade.guard.deadline import Deadline
from cascade.guard.events import Guarded
from cascade.guard.expected_ms import ExpectedMs
from cascade.stages.base import Congestion, Observed
from cascade.text import Text
from cascade.types import Exclusion, Fingerprint, ScoreSpace, StageCost, StageScores

__all__ = ["ScriptedStage", "fingerprint"]


def fingerprint(model: str = "scripted") -> Fingerprint:
    """Return a fingerprint for a model that does not exist."""
    return Fingerprint(
        model, None, "none", "float32", "scripted", "passthrough@1", "0" * 64, None, 512, ScoreSpace.LOGIT
    )


def _now() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class ScriptedStage:
    """Score by a function, late or not at all where a test says so.

    ``fails`` is raised in place of an answer: a stage error's class, or any exception. ``refuses``
    tells which texts count as refused, ``shortens`` which as scored in part, ``repaired`` what it says that it mended. ``calls`` lists the texts of each call; ``cancelled`` counts
    calls that were cancelled under way, ``looks`` how often it was asked what it is. ``back`` is set where a test says
    that it has returned after it was lost.
    """

    score_of: Callable[[str, str], float]
    delay_ms: float = 0.0
    fails: type[StageError] | Exception | None = None
    refuses: Callable[[str], bool] = lambda text: False
    space: ScoreSpace = ScoreSpace.LOGIT
    fingerprint: Fingerprint = field(default_factory=fingerprint)
    observed: Observed | None = None
    unusable: str | None = None
    takes_instruction: bool = False
    is_listwise: bool = False
    is_identified: bool = True
    shortens: Callable[[str], bool] = lambda text: False
    repaired: int = 0
    congestion: Congestion | None = None
    guarded: Guarded | None = None
    expected: ExpectedMs = field(default_factory=lambda: ExpectedMs(_now))
    back: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[list[str]] = field(default_factory=list)
    cancelled: int = 0
    looks: int = 0

    async def start(self) -> None:
        """Do nothing."""

    async def look_again(self) -> bool:
        """Tell whether there is anything observed: a test sets that."""
        self.looks += 1
        return self.observed is not None

    async def returned(self) -> None:
        """Wait until a test says that it has returned."""
        await self.back.wait()
        self.back.clear()

    async def aclose(self) -> None:
        """Do nothing."""

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        """Return the function's scores after the delay, within the deadline."""
        budget_ms = deadline.remaining_ms()
        texts = [document.reveal() for document in documents]
        self.calls.append(texts)
        try:
            async with deadline.timeout():
                await asyncio.sleep(self.delay_ms / 1000)
        except TimeoutError:
            raise StageTimeout(
                "scripted", "deadline", elapsed_ms=budget_ms, budget_ms=budget_ms, sent=len(texts)
            ) from None
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.fails, Exception):
            raise self.fails
        if self.fails is not None:
            raise self.fails("scripted", "scripted", elapsed_ms=self.delay_ms, budget_ms=budget_ms, sent=len(texts))
        excluded = {position: Exclusion.BLANK for position, text in enumerate(documents) if text.is_blank}
        excluded |= {p: Exclusion.REFUSED for p, text in enumerate(texts) if p not in excluded and self.refuses(text)}
        scores = tuple(
            None if position in excluded else self.score_of(query.reveal(), text) for position, text in enumerate(texts)
        )
        cost = StageCost(1, sum(map(len, texts)), tokens_estimated=True, truncated=0, repaired=self.repaired)
        shortened = frozenset(p for p, text in enumerate(texts) if p not in excluded and self.shortens(text))
        return StageScores(scores, excluded, cost, shortened)
