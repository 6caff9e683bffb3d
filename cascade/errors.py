"""The one tree of errors.

CascadeError
├── ConfigError              settings or a release that cannot be used; raised before serving
├── RequestError             the caller's fault: a field and a rule, never its content
│   └── NotAnswered          the caller asked for an error in place of a degraded answer
└── StageError               a stage did not score a round; ``reason`` is from the closed list
    ├── StageTimeout
    ├── StageUnreachable
    ├── StageOverloaded
    ├── StageRefused
    ├── StageInvalidAnswer
    ├── StageBreakerOpen     nothing left: its server failed too often of late
    └── StageTooLate         nothing more left: what remained of the time is less than such a call takes

No message holds query or document text, nor what an upstream wrote: an upstream may echo its input.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final

from cascade.decision import Decision, DegradedReason

__all__ = [
    "NO_TIME",
    "CascadeError",
    "ConfigError",
    "NotAnswered",
    "RequestError",
    "RequestFault",
    "StageBreakerOpen",
    "StageError",
    "StageInvalidAnswer",
    "StageOverloaded",
    "StageRefused",
    "StageTimeout",
    "StageTooLate",
    "StageUnreachable",
    "lacks_extra",
]


class CascadeError(Exception):
    """Be the root of every error that this package raises on purpose."""


class ConfigError(CascadeError):
    """Say what is wrong with settings or a release, and where."""


def lacks_extra(what: str, extra: str) -> ConfigError:
    """Return the error of what needs an extra that is not installed, with how to install it; ``what`` ends with a verb."""
    return ConfigError(f'{what} cascade-rerank[{extra}]; in a clone: pip install ".[{extra}]"')


class RequestFault(StrEnum):
    """What kind of fault a request has; each dialect maps it to its own status and shape."""

    NOT_JSON = "not_json"
    SCHEMA = "schema"
    EMPTY = "empty"
    TOO_MANY = "too_many"
    BODY_TOO_LARGE = "body_too_large"
    UNSUPPORTED = "unsupported"
    TOO_SLOW = "too_slow"
    TOO_LONG = "too_long"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    OVER_QUOTA = "over_quota"
    BUSY = "busy"
    NOT_READY = "not_ready"
    NOT_ANSWERED = "not_answered"


class RequestError(CascadeError):
    """Name the field of a request and the rule that it breaks."""

    def __init__(self, fault: RequestFault, field: str, rule: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(f"{field}: {rule}")
        self.fault = fault
        self.field = field
        self.rule = rule
        self.retry_after_s = retry_after_s


class NotAnswered(RequestError):
    """Say why an answer would have been degraded, to a caller that asked for an error then."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(RequestFault.NOT_ANSWERED, "answer", decision.degraded[0], retry_after_s=1)
        self.decision = decision


NO_TIME: Final = "no_time"
"""The code of a round, or a call, that was given up beforehand: it would have taken longer than its time."""


class StageError(CascadeError):
    """Say which stage failed to score a round, how, after how long and with what budget.

    ``sent`` counts the documents that had left for the stage, or whose computing had begun, by then. ``queue_ms`` is how
    long a round that timed out had waited for that, or in its server's queue; None where it is not known. ``room_ms`` is the
    longest wait of its calls for room at the server, None where none had to.
    """

    reason: ClassVar[DegradedReason]

    def __init__(
        self,
        stage: str,
        code: str,
        *,
        elapsed_ms: float,
        budget_ms: float,
        sent: int = 0,
        queue_ms: float | None = None,
        room_ms: float | None = None,
    ) -> None:
        super().__init__(f"{stage}: {code} after {elapsed_ms:.0f} ms of {budget_ms:.0f} ms")
        self.stage = stage
        self.code = code
        self.elapsed_ms = elapsed_ms
        self.budget_ms = budget_ms
        self.sent = sent
        self.queue_ms = queue_ms
        self.room_ms = room_ms


class StageTimeout(StageError):
    """The stage had not answered when its budget ran out."""

    reason = DegradedReason.STAGE_TIMEOUT


class StageUnreachable(StageError):
    """No complete answer came: refused, reset, DNS, TLS, or cut."""

    reason = DegradedReason.STAGE_UNREACHABLE


class StageOverloaded(StageError):
    """The stage said that it has no room (429, 503)."""

    reason = DegradedReason.STAGE_OVERLOADED


class StageRefused(StageError):
    """The stage refused the request: credentials, model, route or size."""

    reason = DegradedReason.STAGE_REFUSED


class StageInvalidAnswer(StageError):
    """The stage answered with something that cannot be trusted as scores."""

    reason = DegradedReason.STAGE_INVALID_ANSWER


class StageBreakerOpen(StageError):
    """The stage failed too often of late to be asked."""

    reason = DegradedReason.BREAKER_OPEN


class StageTooLate(StageError):
    """What was left of the time is less than the stage is expected to take."""

    reason = DegradedReason.DEADLINE_TOO_SHORT
