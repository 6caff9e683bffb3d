"""What a decision and its parts tell on spans."""

from __future__ import annotations

from collections.abc import Sequence

from cascade.decision import Decision, Round
from cascade.telemetry.span_schema import OPERATION, Attribute
from cascade.telemetry.spans import NOTHING, Opened
from cascade.types import Fingerprint

__all__ = ["tell_decision", "tell_round"]


def tell_decision(span: Opened, decision: Decision, *, release_digest: str | None = None) -> None:
    """Set what a decision says of a request, or of one of its queries."""
    if span is NOTHING:
        return
    span.set(Attribute.DIALECT, decision.dialect)
    span.set(Attribute.DECISION, decision.id)
    span.set(Attribute.RELEASE, decision.release)
    span.set(Attribute.RELEASE_DIGEST, release_digest)
    span.set(Attribute.ARM, decision.arm)
    span.set(Attribute.LEVEL, decision.level.name)
    span.set(Attribute.STAGE, decision.stage)
    span.set(Attribute.ACTION, decision.action)
    span.set(Attribute.ESCALATED, len(decision.escalated))
    span.set(Attribute.EXCLUDED, decision.excluded)
    span.set(Attribute.CANDIDATES, decision.candidates)
    span.set(Attribute.TOP_N, decision.top_n)
    span.set(Attribute.DEPTH, decision.depth)
    span.set(Attribute.DEPTH_REASON, decision.depth_reason)
    span.set(Attribute.DEGRADED, bool(decision.degraded))
    span.set(Attribute.DEGRADED_REASONS, tuple(decision.degraded) or None)
    span.set(Attribute.BUDGET_MS, float(decision.deadline_ms))
    span.set(Attribute.ELAPSED_MS, decision.total_ms)
    span.set(Attribute.OWN_MS, decision.own_ms)


def tell_round(span: Opened, rounds: Sequence[Round], fingerprint: Fingerprint) -> None:
    """Set what the last round of a request came to."""
    if span is NOTHING:
        return
    done = rounds[-1]
    span.set(Attribute.OPERATION, OPERATION)
    span.set(Attribute.MODEL, done.model)
    span.set(Attribute.ENGINE, fingerprint.engine)
    span.set(Attribute.ROUND, sum(each.stage is done.stage for each in rounds))
    span.set(Attribute.SENT, done.sent)
    span.set(Attribute.SCORED, done.scored)
    if done.outcome != "ok":
        span.fail(done.code)
    span.set(Attribute.QUEUE_MS, done.queue_ms)
    span.set(Attribute.ROOM_MS, done.room_ms)
    cost = done.cost
    if cost is None:
        return
    span.set(Attribute.CACHED, cost.cached)
    span.set(Attribute.TRUNCATED, cost.truncated)
    span.set(Attribute.CALLS, cost.calls)
    span.set(Attribute.TOKENS, cost.tokens)
    span.set(Attribute.ROOM_MS, cost.room_ms)
    span.set(Attribute.QUEUE_MS, cost.queue_ms)
    span.set(Attribute.COMPUTE_MS, cost.compute_ms)
