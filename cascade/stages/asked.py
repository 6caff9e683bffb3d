"""Ask a stage for a round, and have it learn how long that took."""

from __future__ import annotations

from collections.abc import Sequence

from cascade.errors import NO_TIME, StageTimeout
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.expected_ms import Fit
from cascade.stages.base import Stage
from cascade.text import Text
from cascade.types import StageScores

__all__ = ["ask"]


async def ask(
    stage: Stage,
    query: Text,
    documents: Sequence[Text],
    *,
    tokens: int,
    fit: Fit,
    deadline: Deadline,
    call_id: str,
    instruction: Text | None,
    clock: Clock,
) -> StageScores:
    """Return a stage's scores of a round of about so many tokens, of which ``fit`` was said before.

    Raises what the stage raises.
    """
    began = clock()
    try:
        scored = await stage.score(query, documents, deadline=deadline, call_id=call_id, instruction=instruction)
    except StageTimeout as fault:
        # one that is given up beforehand would have taken longer than all of its time
        ms = fault.budget_ms if fault.code == NO_TIME else (clock() - began) * 1000
        stage.expected.gave_up(tokens, ms, fit)
        raise
    in_time = deadline.remaining_ms() > 0  # else the loop was late, and its timer later still
    keep = stage.expected.ended if in_time else stage.expected.gave_up
    keep(tokens, (clock() - began) * 1000, fit)
    return scored
