"""The closed lists, and the frozen data of requests and stages, that rooms hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cascade.text import Text

__all__ = [
    "LOWEST_PRIORITY",
    "SCORING",
    "Arm",
    "BreakerState",
    "Candidate",
    "Denied",
    "Dialect",
    "Exclusion",
    "Fingerprint",
    "Lane",
    "LevelReason",
    "QueryClass",
    "Request",
    "RetryOutcome",
    "ScoreSpace",
    "StageCost",
    "StageName",
    "StageScores",
    "Verdict",
]


LOWEST_PRIORITY: Final = 9
"""The last class of requests; 0 is the first."""


class StageName(StrEnum):
    """Where a candidate's place in the answer comes from."""

    LARGE = "large"
    SMALL = "small"
    RETRIEVAL = "retrieval"


SCORING: Final = (StageName.SMALL, StageName.LARGE)
"""The stages that score, in the order in which they are asked."""


class Arm(StrEnum):
    """Which release of a rollout decides, and for whom. The list is closed.

    ``canary`` answers its share of the traffic; ``shadow`` scores beside answers, and nobody waits for it.
    """

    STABLE = "stable"
    CANARY = "canary"
    SHADOW = "shadow"


class LevelReason(StrEnum):
    """What the load level was last changed for. The list is closed."""

    START = "start"
    WAIT = "wait"
    QUEUE_AGE = "queue_age"
    MISSES = "misses"
    LIMIT = "limit"
    BREAKER = "breaker"
    ROOM = "room"
    PINNED = "pinned"
    UNPINNED = "unpinned"


class Dialect(StrEnum):
    """Whose wire format a request speaks."""

    NATIVE = "native"
    TEI = "tei"
    VLLM = "vllm"
    VLLM_SCORE = "vllm-score"
    INFINITY = "infinity"


class ScoreSpace(StrEnum):
    """What a stage's raw scores are. It is declared by the release, never guessed from an answer."""

    LOGIT = "logit"
    PROBABILITY = "probability"
    COSINE = "cosine"
    RANK = "rank"
    """Of a stage that orders lists: a place in its order and nothing else, (n - rank) / n with rank from zero."""


class QueryClass(StrEnum):
    """What kind of query it is, told from its text alone. The list is closed; reports are sliced by it."""

    IDENTIFIER = "identifier"
    SHORT_AMBIGUOUS = "short-ambiguous"
    MULTI_PART = "multi-part"
    OTHER = "other"


class BreakerState(StrEnum):
    """Whether rounds leave for a server. The list is closed."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


class RetryOutcome(StrEnum):
    """What became of a call that failed and might be made again. The list is closed."""

    ANSWERED = "answered"
    FAILED = "failed"
    NO_BUDGET = "no_budget"
    NO_TIME = "no_time"


class Exclusion(StrEnum):
    """Why a document was left out of a stage."""

    BLANK = "blank"
    REFUSED = "refused"


class Lane(StrEnum):
    """Where a request waits."""

    SHORT = "short"
    LONG = "long"


class Verdict(StrEnum):
    """What became of a request that asked for a seat. The list is closed."""

    ADMITTED = "admitted"
    WAITED = "waited"
    EXPIRED = "expired"
    DISPLACED = "displaced"
    CLOSED = "closed"
    ABANDONED = "abandoned"
    OVER_RATE = "over_rate"
    OVER_CONCURRENT = "over_concurrent"


class Denied(StrEnum):
    """Why a request is not let in. The list is closed."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    NOT_ALLOWED = "not_allowed"
    OTHER_TENANT = "other_tenant"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One document of a request, in first-stage order.

    ``scores`` maps a first-stage channel to its raw score; channels are optional.
    """

    text: Text
    id: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One valid request. ``top_n`` None means all; ``deadline_ms`` None means the release's.

    ``fail_closed`` asks for an error in place of a degraded answer. ``instruction`` tells an
    instruction-following reranker what relevance means here. ``max_query_tokens``,
    ``max_document_tokens`` and ``max_pair_tokens`` clip what is scored, by estimate. ``small_only``
    leaves the large stage out where the small one scored. ``priority`` is the class that it waits in, 0 the first.
    """

    query: Text
    candidates: tuple[Candidate, ...]
    dialect: Dialect = Dialect.NATIVE
    top_n: int | None = None
    deadline_ms: float | None = None
    tenant: str | None = None
    fail_closed: bool = False
    instruction: Text | None = None
    max_query_tokens: int | None = None
    max_document_tokens: int | None = None
    max_pair_tokens: int | None = None
    small_only: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a stage's scores depend on. Two stages with equal fingerprints score alike.

    ``mode`` is how the sidecar's own engine runs a model, or how a model is asked for an order, as far as that may move
    scores: None where it is as ever, each pair a call, its beginning alone, the output as it is, and of servers that score. What was written before there was one had none.
    """

    model: str
    revision: str | None
    quantization: str
    dtype: str
    engine: str
    serializer: str
    serializer_sha256: str
    tokenizer_revision: str | None
    max_length: int
    score_space: ScoreSpace
    instruction: str | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one round cost.

    ``tokens`` is the server's own count where ``tokens_estimated`` is false; ``truncated`` counts
    pairs that were not read in full. Milliseconds are those on the round's path, None where the
    server does not tell: of calls that a server answered at the same time the slowest, of calls that
    were computed here their sum over the threads that shared them, and the wait until the first began.
    ``server_ms`` is the total as the server tells it, ``room_ms`` the wait for room among the texts in flight.
    ``windows`` counts what was scored of long documents beyond their first window, and ``padding`` the tokens that
    filled up batches computed here, beside ``tokens``.
    ``repaired`` counts what had to be mended of an order that is no permutation, and ``prefix_tokens`` those of ``tokens``
    that the server says it had in its prefix cache, None where it does not say.
    ``cached`` counts documents that have a score and were not sent, since it was kept or being made; they are in none of
    the other counts.
    """

    calls: int
    tokens: int
    tokens_estimated: bool
    truncated: int
    tokenize_ms: float | None = None
    queue_ms: float | None = None
    compute_ms: float | None = None
    server_ms: float | None = None
    room_ms: float | None = None
    cached: int = 0
    windows: int = 0
    padding: int = 0
    repaired: int = 0
    prefix_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class StageScores:
    """The raw scores of one round, one entry a document sent, in the order sent.

    None stands for an excluded document, whose reason ``excluded`` gives by position. ``shortened`` has the positions
    of documents that the server refused whole, and scored in part.
    """

    scores: tuple[float | None, ...]
    excluded: Mapping[int, Exclusion]
    cost: StageCost
    shortened: frozenset[int] = frozenset()
