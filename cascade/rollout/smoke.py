"""Ask a release what it says that it must answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from cascade.errors import NotAnswered
from cascade.guard.own_calls import own_calls
from cascade.policy.rollout_rules import SmokeQuery
from cascade.rollout.ports import Serving
from cascade.text import Text
from cascade.types import Candidate, DegradedReason, Request

__all__ = ["smoke"]

_NOT_ITS_FAULT: Final = frozenset({DegradedReason.LOAD_LEVEL, DegradedReason.CALIBRATION_MISMATCH})
"""Load is not the release's fault, and whether a calibration holds is what fingerprints tell: a short list may be
outside its range."""
_MAY_PASS: Final = frozenset(
    {DegradedReason.STAGE_TIMEOUT, DegradedReason.DEADLINE_TOO_SHORT, DegradedReason.STAGE_OVERLOADED}
)
"""A server that has just been connected to may be late with its first answer."""
_AGAIN: Final = 2
_APART_S: Final = 0.2


async def smoke(release: Serving, queries: Sequence[SmokeQuery]) -> list[str]:
    """Return what is wrong with a release's answers to its smoke queries, by position and without text.

    An answer that is late or finds no room is asked for again, twice at most.
    """
    told = []
    for place, query in enumerate(queries):
        request = Request(Text(query.query), tuple(Candidate(Text(text)) for text in query.documents))
        degraded, first = await _answer(release, request)
        for _ in range(_AGAIN):
            if not _MAY_PASS.intersection(degraded):
                break
            await asyncio.sleep(_APART_S)
            degraded, first = await _answer(release, request)
        if degraded:
            told.append(f"smoke query {place}: degraded: {', '.join(degraded)}")
        elif query.first not in (None, first):
            told.append(f"smoke query {place}: document {first} came first, not document {query.first}")
    return told


async def _answer(release: Serving, request: Request) -> tuple[list[DegradedReason], int | None]:
    """Return why an answer is degraded, and which document came first."""
    first = None
    try:
        with own_calls():
            ranking = await release.deciding().rerank(request)
    except NotAnswered as error:  # the release asks for an error in place of a degraded answer
        decision = error.decision
    else:
        decision, first = ranking.decision, ranking.results[0].index
    return [reason for reason in decision.degraded if reason not in _NOT_ITS_FAULT], first
