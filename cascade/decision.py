"""What was decided for one request, its parts, and the ranking that comes of it: frozen data, without text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cascade.types import Arm, Dialect, QueryClass, StageCost, StageName

__all__ = [
    "Action",
    "Decision",
    "DegradedReason",
    "Estimates",
    "Level",
    "Movement",
    "RankedCandidate",
    "Ranking",
    "Round",
]


class DegradedReason(StrEnum):
    """Why an answer is not what the release planned. The list is closed."""

    STAGE_TIMEOUT = "stage_timeout"
    STAGE_UNREACHABLE = "stage_unreachable"
    STAGE_OVERLOADED = "stage_overloaded"
    STAGE_REFUSED = "stage_refused"
    STAGE_INVALID_ANSWER = "stage_invalid_answer"
    BREAKER_OPEN = "breaker_open"
    DEADLINE_TOO_SHORT = "deadline_too_short"
    LOAD_LEVEL = "load_level"
    CALIBRATION_MISMATCH = "calibration_mismatch"
    INTERNAL_ERROR = "internal_error"


class Action(StrEnum):
    """What an escalation decided. The list is closed."""

    NONE = "none"
    STATIC = "static"
    ACCEPT = "accept"
    CLUSTER = "cluster"
    QUERY = "query"
    DIRECT = "direct"
    SAFE = "safe"


@dataclass(frozen=True, slots=True)
class Round:
    """One call of a stage as the decision records it. ``outcome`` is ``ok`` or a degraded reason.

    ``sent`` and ``scored`` count what the stage was asked for, with what a cache answered in its place (``cost.cached``):
    so they say what the policy asks for, whatever is cached. ``left`` and ``pairs`` are without that: what reached the
    stage. ``sent`` is 0 where nothing was asked for. ``top`` is the best raw score, None where there is none:
    no part of what was decided, so rounds that differ in it alone are equal. ``queue_ms`` is how long a round that timed out
    had waited to be scored, None where that is not known, and ``room_ms`` how long one that failed had waited for room, None
    where it had not to; of one that went well ``cost`` tells.
    """

    stage: StageName
    model: str
    sent: int
    scored: int
    blank: int
    refused: int
    outcome: str
    code: str
    elapsed_ms: float
    cost: StageCost | None = None
    top: float | None = field(default=None, compare=False)
    queue_ms: float | None = None
    room_ms: float | None = None

    @property
    def left(self) -> int:
        """Return how many documents left for the stage; what was refused when another had it scored counts too."""
        return self.sent - (0 if self.cost is None else self.cost.cached)

    @property
    def pairs(self) -> int:
        """Return how many pairs the stage scored."""
        return self.scored - (0 if self.cost is None else self.cost.cached)


@dataclass(frozen=True, slots=True)
class Estimates:
    """The calibrated summary of a first estimate: what `explain` and the records tell.

    ``p_first`` is the highest p(1), ``margin`` and
    ``entropy`` (nats) those of p(k), and ``expected_loss`` the share of discounted gain at k that the
    small order is expected to lose. ``p_acceptable`` is None where the calibration does not estimate it.
    """

    k: int
    p_first: float
    margin: float
    entropy: float
    expected_loss: float
    p_acceptable: float | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """A load level of a release: its name, and how many levels are above it in quality."""

    name: str = "normal"
    index: int = 0

    @property
    def is_above_normal(self) -> bool:
        """Tell whether it is another level than the release as it stands."""
        return self.index > 0


@dataclass(frozen=True, slots=True)
class Movement:
    """How far the large stage moved the small stage's first ten, or as many as there are.

    ``overlap`` is the share of them that are among the first ten afterwards, ``displacement`` the mean of the places that
    each was moved by, up or down.
    """

    overlap: float
    displacement: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Everything that was decided for one request, without text.

    The log line, the metrics, the headers and ``explain`` derive from it. Indices are positions in
    the request's candidates. ``depth_reason`` is a `DepthReason`, ``signals`` those that the release's
    rules read, and ``misfit`` is why the calibration did not hold, where the safe mode decided. ``arm`` is the one of
    the rollout that decided; with one release it is ``stable``. ``ranks_only`` tells that the outward scores say the rank
    and nothing else. ``movement`` is None where there were not two orders, and ``best_small`` the best small score as the
    calibration's reference counts it, None without one: no parts of what was decided, so decisions that differ in them
    alone are equal. Nor is ``trace_id``, None where the request is of no trace.
    """

    id: str
    dialect: Dialect
    release: str
    level: Level
    tenant: str | None
    query_hash: str
    candidates: int
    top_n: int
    depth: int
    depth_reason: str
    action: Action
    escalated: tuple[int, ...]
    estimates: Estimates | None
    misfit: str | None
    query_class: QueryClass | None
    signals: Mapping[str, float]
    stage: StageName
    degraded: tuple[DegradedReason, ...]
    excluded: int
    rounds: tuple[Round, ...]
    rank_changes_at_5: int
    deadline_ms: float
    total_ms: float
    own_ms: float
    arm: Arm = Arm.STABLE
    ranks_only: bool = False
    movement: Movement | None = field(default=None, compare=False)
    best_small: float | None = field(default=None, compare=False)
    trace_id: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """One place of the answer. ``score`` is the outward score in [0, 1]."""

    index: int
    id: str | None
    score: float
    stage: StageName


@dataclass(frozen=True, slots=True)
class Ranking:
    """The whole order of one request, cut to ``top_n``, and the decision behind it."""

    results: tuple[RankedCandidate, ...]
    decision: Decision
