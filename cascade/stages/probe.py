"""Judge a stage by scoring known pairs: a server's own health route does not tell whether it scores."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cascade.decision import DegradedReason
from cascade.errors import StageError
from cascade.guard.deadline import Deadline
from cascade.guard.own_calls import own_calls
from cascade.stages.base import Stage
from cascade.text import Text
from cascade.types import ScoreSpace

__all__ = ["Probe", "Verdict", "judge", "probe"]

_QUERY: Final = "What is the capital of France?"
_RELEVANT: Final = "Paris is the capital and most populous city of France."
_IRRELEVANT: Final = (
    "London is the capital of the United Kingdom.",
    "Knead the dough for ten minutes and let it rise.",
    "A.",
)
_SAME: Final = 1e-6
_DOUBLE_SIGMOID: Final = (0.4999, 0.7312)
"""Where a probability lands that was put through a sigmoid: wire formats tell of it, ranking metrics cannot."""


class Verdict(StrEnum):
    """What the scores of the known pairs say."""

    OK = "ok"
    WRONG_ORDER = "wrong_order"
    CONSTANT = "constant"
    OUTSIDE_SPACE = "outside_space"
    TWICE_ACTIVATED = "twice_activated"
    NO_PERMUTATION = "no_permutation"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Probe:
    """The verdict, the failure's code where there was one, the time it took, and what kind of failure it was."""

    verdict: Verdict
    code: str
    elapsed_ms: float
    reason: DegradedReason | None = None


async def probe(stage: Stage, deadline: Deadline) -> Probe:
    """Score four known pairs within ``deadline``, and judge. Never raises a StageError."""
    documents = [Text(text) for text in (_RELEVANT, *_IRRELEVANT)]
    began = deadline.clock()
    verdict, code, reason = Verdict.FAILED, "", None
    try:
        with own_calls():
            answer = await stage.score(Text(_QUERY), documents, deadline=deadline, call_id=f"probe-{uuid.uuid4().hex}")
        scores = [score for score in answer.scores if score is not None]
        if answer.cost.repaired:
            verdict = Verdict.NO_PERMUTATION
        elif len(scores) == len(documents):
            verdict = judge(scores, stage.space)
        else:
            code = "document_refused"
    except StageError as error:
        code, reason = error.code, error.reason
    return Probe(verdict, code, (deadline.clock() - began) * 1000, reason)


def judge(scores: Sequence[float], space: ScoreSpace) -> Verdict:
    """Judge raw scores, the relevant document's first, in their declared space.

    Constant scores are what a model answers whose head was not loaded; a wrong order is what one
    answers whose prompt template is missing or applied twice.
    """
    low, high = min(scores), max(scores)
    if high - low < _SAME:
        return Verdict.CONSTANT
    if space is ScoreSpace.PROBABILITY and not (low >= 0 and high <= 1):
        return Verdict.OUTSIDE_SPACE
    if space is ScoreSpace.COSINE and not (low >= -1.001 and high <= 1.001):
        return Verdict.OUTSIDE_SPACE
    if space is ScoreSpace.PROBABILITY and low >= _DOUBLE_SIGMOID[0] and high <= _DOUBLE_SIGMOID[1]:
        return Verdict.TWICE_ACTIVATED
    return Verdict.OK if scores[0] > max(scores[1:]) else Verdict.WRONG_ORDER
