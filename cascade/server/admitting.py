"""From a parsed body to its ranking: a seat first, and without one first-stage order."""

from __future__ import annotations

import math

from cascade.decision import DegradedReason, Ranking
from cascade.errors import RequestError, RequestFault
from cascade.guard.seat import Asked
from cascade.policy.level_bounds import most_pairs
from cascade.policy.release import Release
from cascade.server.choosing import Chosen
from cascade.server.dialects.base import Parsed
from cascade.server.groups import rerank_parsed
from cascade.server.service import Service
from cascade.telemetry.span_schema import Attribute, SpanName
from cascade.telemetry.spans import child
from cascade.tokens import estimate_tokens
from cascade.types import Verdict

__all__ = ["rank_admitted", "refuse_too_long"]


async def rank_admitted(service: Service, chosen: Chosen, parsed: Parsed, arrived: float, size: int) -> Ranking:
    """Return the ranking of a body of ``size`` bytes, once it is its turn. What decides is its release, as it is by then.

    Raises what ``rerank_parsed`` does, and RequestError for a tenant beyond its quota.
    """
    admission, request, release = service.admission, parsed.request, chosen.release
    budgets = release.pipeline.release.budgets
    asked_ms = budgets.total_ms if request.deadline_ms is None else request.deadline_ms
    until = arrived + (asked_ms - budgets.reserve_ms) / 1000
    queries = len(parsed.requests)
    asked = Asked(request.tenant, request.priority, size, until, queries, _seats(release.pipeline.release, parsed))
    with child(SpanName.ADMISSION) as span:
        seat = admission.ask(asked)
        span.set(Attribute.LANE, seat.lane)
        try:
            held = seat.is_held or await seat.settled()
        except BaseException:
            admission.leave(seat)
            raise
        span.set(Attribute.VERDICT, seat.verdict)
    try:
        if not held:  # it asks no stage, so room for the level above is nothing to it, nor a miss of that level
            why = _why(seat.verdict)
            return await rerank_parsed(lambda: release.pipeline, parsed, arrived, why, assigned=chosen.assigned)
        return await rerank_parsed(release.deciding, parsed, arrived, assigned=chosen.assigned)
    finally:
        admission.leave(seat)


def refuse_too_long(release: Release, parsed: Parsed, size: int) -> None:
    """Refuse more tokens than the release takes, by estimate. A body of fewer bytes holds no more tokens than it."""
    most = release.limits.max_request_tokens
    if most is None or size <= most:
        return
    tokens = 0
    for request in parsed.requests:
        tokens += estimate_tokens(request.query.reveal())
        for candidate in request.candidates[: release.limits.max_candidates]:
            tokens += estimate_tokens(candidate.text.reveal())
        if tokens > most:
            raise RequestError(RequestFault.TOO_LONG, "body", f"at most about {most} tokens are accepted")


def _seats(release: Release, parsed: Parsed) -> int:
    """Return how many seats a body takes: one query has one; many have as many as what may be scored of them fills."""
    if len(parsed.requests) == 1:
        return 1
    most = max(1, *most_pairs(release))
    return math.ceil(sum(min(len(request.candidates), most) for request in parsed.requests) / most)


def _why(verdict: Verdict | None) -> DegradedReason:
    """Return why a request without a seat is not scored: for the load, or for the end of the process."""
    return DegradedReason.DEADLINE_TOO_SHORT if verdict is Verdict.CLOSED else DegradedReason.LOAD_LEVEL
