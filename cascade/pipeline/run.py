"""What is known of one request on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cascade.calibration.calibrated import Estimate
from cascade.decision import Action, DegradedReason, Estimates, Round
from cascade.policy.escalation import Known
from cascade.policy.inputs import known_within
from cascade.signals.compute import Signals
from cascade.types import Request, StageName

__all__ = ["Run"]


@dataclass(slots=True)
class Run:
    """What is known of one request so far."""

    request: Request
    id: str
    depth: int = 0
    depth_reason: str = ""
    action: Action = Action.NONE
    estimates: Estimates | None = None
    misfit: str | None = None
    first: Estimate | None = None
    signals: Signals = field(default_factory=Signals)
    small: dict[int, float] = field(default_factory=dict)
    large: dict[int, float] = field(default_factory=dict)
    escalated: Sequence[int] = ()
    excluded: set[int] = field(default_factory=set)
    rounds: list[Round] = field(default_factory=list)
    degraded: list[DegradedReason] = field(default_factory=list)
    awaited_s: float = 0.0

    def call_id(self, name: StageName) -> str:
        """Return the id of the next call of a stage, another one for each round."""
        before = sum(round_.stage is name for round_ in self.rounds)
        return f"{self.id}-{name}" if not before else f"{self.id}-{name}-{before + 1}"

    def degrade(self, reason: DegradedReason) -> None:
        """Remember a reason once."""
        if reason not in self.degraded:
            self.degraded.append(reason)

    def known(self) -> Known:
        """Return what is known within depth, as arrays in first-stage order."""
        return known_within(self.depth, self.request.candidates, self.small, self.large)
