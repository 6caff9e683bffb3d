"""The last decisions, for whoever looks at a rollout. They hold no text."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

from cascade.decision import Decision
from cascade.guard.deadline import Clock

__all__ = ["MOST_RECENT", "RecentDecisions"]

MOST_RECENT: Final = 50


class RecentDecisions:
    """Keep the last decisions, whichever release decided; a rerank waits for nothing of it but one append."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._kept: deque[tuple[float, Decision, bool]] = deque(maxlen=MOST_RECENT)

    def add(self, decision: Decision, *, answered: bool) -> None:
        """Keep one more; the oldest goes."""
        self._kept.append((self._clock(), decision, answered))

    def told(self) -> list[dict[str, Any]]:
        """Return them as plain data, latest first, with how many seconds ago each was decided."""
        now = self._clock()
        return [_told(decision, answered, now - at) for at, decision, answered in reversed(self._kept)]


def _told(decision: Decision, answered: bool, age_s: float) -> dict[str, Any]:
    return {
        "decision_id": decision.id,
        "age_s": round(age_s, 1),
        "release": decision.release,
        "arm": decision.arm,
        "load_level": decision.level.name,
        "tenant": decision.tenant,
        "outcome": "answered" if answered else "refused",
        "stage": decision.stage,
        "action": decision.action,
        "candidates": decision.candidates,
        "depth": decision.depth,
        "escalated": len(decision.escalated),
        "degraded": list(decision.degraded),
        "total_ms": round(decision.total_ms, 1),
        "deadline_ms": round(decision.deadline_ms, 1),
    }
