"""From a body to its requests and to the release that decides them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cascade.decision import Decision
from cascade.errors import RequestError
from cascade.rollout.guardrails import Settled
from cascade.server.active import ActiveRelease
from cascade.server.dialects.base import DialectFormat, Parsed
from cascade.server.traffic import Traffic
from cascade.telemetry.records import Assignment
from cascade.types import Arm

__all__ = ["UNIT_HEADER", "Chosen", "parse_and_choose"]

UNIT_HEADER: Final = "x-cascade-unit"
"""A caller's stable id, of a user or a session: all its requests are decided by one arm."""
_TO_THE_ONE: Final = Assignment(arm=Arm.STABLE)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The requests of a body, the release that decides all of them, and how they came to it: of one moment."""

    parsed: Parsed
    release: ActiveRelease
    assigned: Assignment
    unit: int | None = None

    def settled(self, decision: Decision | None, *, answered: bool, left_after_ms: float | None = None) -> Settled:
        """Return what became of them; no decision where the release does not take them, or their caller left."""
        return Settled(
            self.assigned.arm or Arm.STABLE,
            self.release.digest,
            decision,
            answered,
            queries=len(self.parsed.requests),
            states_deadline=self.parsed.request.deadline_ms is not None,
            unit=self.unit,
            left_after_ms=left_after_ms,
        )


def parse_and_choose(traffic: Traffic, dialect: DialectFormat, body: Any, headers: Mapping[str, str]) -> Chosen:
    """Parse a body within the limits of the release that decides it. Raises RequestError.

    Where traffic is split that is told by the caller's unit, else by the first query: a body is parsed first within
    the wider limits, and once more where those of its release are narrower.
    """
    if not traffic.is_split:
        stable = traffic.stable
        return Chosen(dialect.parse(body, headers, _most_documents(stable)), stable, _TO_THE_ONE)
    most = traffic.max_documents
    parsed = dialect.parse(body, headers, most)
    dealt = traffic.choose(headers.get(UNIT_HEADER) or parsed.request.query.reveal())
    chosen = Chosen(parsed, dealt.release, dealt.assigned, dealt.unit)
    if _most_documents(dealt.release) < most:
        try:
            return replace(chosen, parsed=dialect.parse(body, headers, _most_documents(dealt.release)))
        except RequestError:
            traffic.settled(chosen.settled(None, answered=False))
            raise
    return chosen


def _most_documents(release: ActiveRelease) -> int:
    return release.pipeline.release.limits.max_documents
