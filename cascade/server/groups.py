"""From a parsed body to its ranking: one call of the pipeline for each query, and one ranking of them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from cascade.decision import Decision, DegradedReason, Ranking
from cascade.errors import NotAnswered, RequestError, RequestFault
from cascade.pipeline import Pipeline
from cascade.server.dialects.base import Parsed
from cascade.telemetry.records import Assignment
from cascade.telemetry.span_schema import SpanName
from cascade.telemetry.span_tells import tell_decision
from cascade.telemetry.spans import child
from cascade.types import Request, StageName

__all__ = ["rerank_parsed"]

_STRENGTH: Final = (StageName.LARGE, StageName.SMALL, StageName.RETRIEVAL)
_TO_THE_ONE: Final = Assignment()


async def rerank_parsed(
    deciding: Callable[[], Pipeline],
    parsed: Parsed,
    arrived: float | None = None,
    unscored: DegradedReason | None = None,
    assigned: Assignment = _TO_THE_ONE,
) -> Ranking:
    """Return the ranking of a parsed body. Groups run at once and share the deadline.

    ``deciding`` is asked for each of them as it begins: of a load level that only some have room for, only some are
    given to it. ``unscored`` is why no stage is to be asked for any of them, ``assigned`` how they came to what decides them.

    Indices of the joined ranking are positions in the body. Raises NotAnswered where any group does,
    and RequestError for an instruction that the stages do not take.
    """
    if parsed.request.instruction is not None and not deciding().takes_instruction:
        rule = "this release's stages take no instruction"
        raise RequestError(RequestFault.SCHEMA, parsed.options.instruction_field, rule)

    async def rerank(request: Request) -> Ranking:
        return await deciding().rerank(request, arrived=arrived, unscored=unscored, assigned=assigned)

    async def rerank_one_of_many(request: Request) -> Ranking:
        with child(SpanName.QUERY) as span:
            try:
                ranking = await rerank(request)
            except NotAnswered as refused:
                tell_decision(span, refused.decision)
                raise
            tell_decision(span, ranking.decision)
            return ranking

    if len(parsed.requests) == 1:
        return await rerank(parsed.request)
    done = await asyncio.gather(*(rerank_one_of_many(request) for request in parsed.requests), return_exceptions=True)
    rankings: list[Ranking] = []
    refused = False
    for ended in done:
        match ended:
            case Ranking():
                rankings.append(ended)
            case NotAnswered():
                refused = True
                rankings.append(Ranking((), ended.decision))
            case _:
                raise ended
    decision = _join([ranking.decision for ranking in rankings], parsed.positions)
    if refused:
        raise NotAnswered(decision)
    results = tuple(
        replace(item, index=positions[item.index])
        for ranking, positions in zip(rankings, parsed.positions, strict=True)
        for item in ranking.results
    )
    return Ranking(results, decision)


def _join(decisions: Sequence[Decision], positions: Sequence[Sequence[int]]) -> Decision:
    """Return one decision that tells of all: the first one's id, the weakest level and stage, every reason, sums, maxima.

    Signals, estimates and action are the first one's; ``misfit`` is the first that there is.
    """
    first = decisions[0]
    return replace(
        first,
        level=max((each.level for each in decisions), key=lambda level: level.index),
        ranks_only=any(each.ranks_only for each in decisions),
        candidates=sum(each.candidates for each in decisions),
        top_n=sum(each.top_n for each in decisions),
        depth=sum(each.depth for each in decisions),
        escalated=tuple(
            place[index] for each, place in zip(decisions, positions, strict=True) for index in each.escalated
        ),
        misfit=next((each.misfit for each in decisions if each.misfit is not None), None),
        stage=max((each.stage for each in decisions), key=_STRENGTH.index),
        degraded=tuple(dict.fromkeys(reason for each in decisions for reason in each.degraded)),
        excluded=sum(each.excluded for each in decisions),
        rounds=tuple(item for each in decisions for item in each.rounds),
        rank_changes_at_5=sum(each.rank_changes_at_5 for each in decisions),
        total_ms=max(each.total_ms for each in decisions),
        own_ms=max(each.own_ms for each in decisions),
    )
