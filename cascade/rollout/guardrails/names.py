"""The closed lists of guardrails and of what they can say."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["GuardrailName", "GuardrailVerdict"]


class GuardrailName(StrEnum):
    """What is held against the stable release. The list is closed."""

    LATE = "late"
    ERRORS = "errors"
    FALLBACK = "fallback"
    ESCALATION = "escalation"
    COST = "cost"
    RANKING_LOSS = "ranking_loss"
    GOLD_LOSS = "gold_loss"
    DRIFT_SMALL = "drift_small"
    DRIFT_LARGE = "drift_large"


class GuardrailVerdict(StrEnum):
    """What a guardrail says: shown to be within its limit, shown to be beyond it, or neither."""

    PASS = "pass"  # noqa: S105  # nosec B105 # a verdict
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
