"""Ask a release what it says that it must answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cascade.decision import Decision, DegradedReason
from cascade.errors import NotAnswered
from cascade.guard.own_calls import own_calls
from cascade.policy.rollout_rules import SmokeQuery
from cascade.rollout.ports import Serving
from cascade.text import Text
from cascade.types import Candidate, Request

__all__ = ["Smoked", "smoke"]

_NOT_ITS_FAULT: Final = frozenset({DegradedReason.LOAD_LEVEL, DegradedReason.CALIBRATION_MISMATCH})
"""Load is not the release's fault, and whether a calibration holds is what fingerprints tell: a short list may be
outside its range."""
_MAY_PASS: Final = frozenset(
    {DegradedReason.STAGE_TIMEOUT, DegradedReason.DEADLINE_TOO_SHORT, DegradedReason.STAGE_OVERLOADED}
)
"""A server that has just been connected to may be late with its first answer."""
_AWAY: Final = frozenset(
    {DegradedReason.STAGE_UNREACHABLE, DegradedReason.STAGE_OVERLOADED, DegradedReason.BREAKER_OPEN}
)
_FAILS: Final = "status_5"
"""How codes of a server begin that answers with an error of its own."""
_AGAIN: Final = 2
_APART_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Smoked:
    """What is wrong with the answer to a smoke query; ``is_away`` where all of it is that a server gave none."""

    what: str
    is_away: bool = False


async def smoke(release: Serving, queries: Sequence[SmokeQuery]) -> list[Smoked]:
    """Return what is wrong with a release's answers to its smoke queries, by position and without text.

    An answer that is late or finds no room is asked for again, twice at most.
    """
    told = []
    for place, query in enumerate(queries):
        request = Request(Text(query.query), tuple(Candidate(Text(text)) for text in query.documents))
        decision, first = await _answer(release, request)
        for _ in range(_AGAIN):
            if not _MAY_PASS.intersection(_degraded(decision)):
                break
            await asyncio.sleep(_APART_S)
            decision, first = await _answer(release, request)
        if _degraded(decision):
            told.append(_spoilt(place, decision))
        elif query.first not in (None, first):
            told.append(Smoked(f"smoke query {place}: document {first} came first, not document {query.first}"))
    return told


async def _answer(release: Serving, request: Request) -> tuple[Decision, int | None]:
    """Return what was decided, and which document came first."""
    try:
        with own_calls():
            ranking = await release.deciding().rerank(request)
    except NotAnswered as error:  # the release asks for an error in place of a degraded answer
        return error.decision, None
    return ranking.decision, ranking.results[0].index


def _degraded(decision: Decision) -> list[DegradedReason]:
    return [reason for reason in decision.degraded if reason not in _NOT_ITS_FAULT]


def _spoilt(place: int, decision: Decision) -> Smoked:
    """Say why an answer is degraded, by stage where one failed."""
    failed = [each for each in decision.rounds if each.outcome != "ok"]
    stages = "".join(f"; {each.stage} stage: {each.outcome} ({each.code})" for each in failed)
    away = {each.outcome for each in failed if each.outcome in _AWAY or each.code.startswith(_FAILS)}
    is_away = all(reason in away for reason in _degraded(decision))
    return Smoked(f"smoke query {place}: degraded: {', '.join(_degraded(decision))}{stages}", is_away)
