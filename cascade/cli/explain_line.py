"""What ``cascade explain`` reads of a decision: a line of records, of the log, or the ``explain`` of an answer."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.calibration.broken_rules import broken_rules
from cascade.decision import Action
from cascade.errors import ConfigError
from cascade.types import Arm, StageName

__all__ = ["ExplainedEstimates", "ExplainedLine", "ExplainedRound", "ExplainedWould", "explained_of"]

Count = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[float, Field(ge=0)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, allow_inf_nan=False, extra="ignore")


class ExplainedEstimates(_Line):
    """What a calibration estimated of the query."""

    k: Count
    p_first: float | None
    margin: float | None
    entropy: float | None
    expected_loss: float | None
    p_acceptable: float | None = None


class ExplainedRound(_Line):
    """One round of a stage. What it cost is known as far as its server told."""

    stage: StageName
    model: str
    outcome: str
    code: str
    sent: Count
    scored: Count
    blank: Count
    refused: Count
    elapsed_ms: Milliseconds
    tokens: Count | None = None
    tokens_estimated: bool = False
    truncated: Count = 0
    queue_ms: Milliseconds | None = None
    room_ms: Milliseconds | None = None
    cached: Count = 0
    windows: Count = 0
    padding: Count = 0
    repaired: Count = 0
    prefix_tokens: Count | None = None


class ExplainedWould(_Line):
    """What the release would have decided, had it answered."""

    depth: Count
    depth_reason: str
    action: Action
    escalated: tuple[Count, ...]
    rounds: Count
    estimates: ExplainedEstimates | None
    misfit: str | None


class ExplainedLine(_Line):
    """A decision. What only a record tells has a default."""

    decision_id: str
    release: str
    load_level: str
    arm: Arm = Arm.STABLE
    of: str | None = None
    dialect: str
    tenant: str | None
    query_hash: str
    candidates: Count
    top_n: Count
    depth: Count
    depth_reason: str
    action: Action
    estimates: ExplainedEstimates | None
    misfit: str | None
    query_class: str | None
    signals: dict[str, float | None]
    escalated: tuple[Count, ...]
    stage: StageName
    degraded: tuple[str, ...]
    excluded: Count | tuple[Count, ...]
    rank_changes_at_5: Count
    deadline_ms: Milliseconds
    total_ms: Milliseconds
    own_ms: Milliseconds
    rounds: tuple[ExplainedRound, ...]
    time: str | None = None
    head: str | None = None
    q_class: str | None = None
    sample: float | None = None
    propensity: float | None = None
    beside: str | None = None
    would: ExplainedWould | None = None
    outcome: str | None = None


def explained_of(told: Any) -> ExplainedLine:
    """Return the decision that a line of JSON tells. Raises ConfigError naming the field that is not as it should be."""
    if not isinstance(told, dict) or "decision_id" not in told:
        raise ConfigError("the line tells of no decision: it has no decision_id")
    try:
        return ExplainedLine.model_validate(told)
    except ValidationError as error:
        why = broken_rules(error, "line", most=1)
    raise ConfigError(f"the line is no decision of this version: {why}")
