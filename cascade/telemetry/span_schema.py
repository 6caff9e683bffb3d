"""What spans are called and what may stand on them: the one list. What is not in it leaves in no span.

Names without ``cascade.`` are OpenTelemetry's: those of HTTP are stable there, ``gen_ai.`` ones are not (the ``rerank``
operation and its counts are a proposal, open-telemetry/semantic-conventions-genai#253). A change of a name, a type or a
place is a new ``SCHEMA``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cascade.types import StageName

__all__ = [
    "ATTRIBUTES",
    "OPERATION",
    "SCHEMA",
    "SCHEMA_KEY",
    "SPANS",
    "STAGE_SPANS",
    "Attribute",
    "Kind",
    "SpanName",
    "Value",
    "admitted",
]

SCHEMA: Final = "1"
SCHEMA_KEY: Final = "cascade.spans.schema"
"""The attribute of the instrumentation scope that holds the schema's version."""
OPERATION: Final = "rerank"
_MOST_CHARACTERS: Final = 200

Value = str | int | float | bool | tuple[str, ...]


class SpanName(StrEnum):
    """Every span's name. The list is closed."""

    RERANK = "rerank"
    ADMISSION = "admission"
    QUERY = "query"
    DEPTH = "depth"
    SMALL = "stage small"
    LARGE = "stage large"
    CACHE = "cache"
    CACHE_WAIT = "cache wait"
    CALL = "call"
    ESCALATION = "escalation"
    FALLBACK = "fallback"


class Attribute(StrEnum):
    """Every attribute's name. The list is closed."""

    METHOD = "http.request.method"
    ROUTE = "http.route"
    STATUS = "http.response.status_code"
    RESENT = "http.request.resend_count"
    ADDRESS = "server.address"
    PORT = "server.port"
    ERROR = "error.type"
    OPERATION = "gen_ai.operation.name"
    MODEL = "gen_ai.request.model"
    CANDIDATES = "gen_ai.rerank.candidate.count"
    TOP_N = "gen_ai.rerank.top_n"
    DIALECT = "cascade.dialect"
    DECISION = "cascade.decision.id"
    RELEASE = "cascade.release.name"
    RELEASE_DIGEST = "cascade.release.digest"
    ARM = "cascade.arm"
    LEVEL = "cascade.level"
    STAGE = "cascade.stage"
    ACTION = "cascade.action"
    MISFIT = "cascade.misfit"
    ESCALATED = "cascade.escalated.count"
    EXCLUDED = "cascade.excluded.count"
    DEPTH = "cascade.depth"
    DEPTH_REASON = "cascade.depth.reason"
    QUERY_CLASS = "cascade.query.class"
    DEGRADED = "cascade.degraded"
    DEGRADED_REASONS = "cascade.degraded.reasons"
    BUDGET_MS = "cascade.budget_ms"
    ELAPSED_MS = "cascade.elapsed_ms"
    OWN_MS = "cascade.own_ms"
    SAMPLED_BY = "cascade.sampled_by"
    VERDICT = "cascade.admission.verdict"
    LANE = "cascade.admission.lane"
    ENGINE = "cascade.engine"
    ROUND = "cascade.round"
    SENT = "cascade.sent.count"
    SCORED = "cascade.scored.count"
    CACHED = "cascade.cached.count"
    TRUNCATED = "cascade.truncated.count"
    CALLS = "cascade.calls.count"
    TOKENS = "cascade.tokens"
    ROOM_MS = "cascade.room_ms"
    QUEUE_MS = "cascade.queue_ms"
    COMPUTE_MS = "cascade.compute_ms"
    UPSTREAM_ROUTE = "cascade.upstream.route"
    CACHE_HITS = "cascade.cache.hits"
    CACHE_SHARED = "cascade.cache.shared"
    CACHE_MISSES = "cascade.cache.misses"
    CACHE_FAULTS = "cascade.cache.faults"


class Kind(StrEnum):
    """What a value is. A word is one of a closed list, or a name that a release gives; it has no line breaks."""

    WORD = "word"
    WORDS = "words"
    COUNT = "count"
    MS = "milliseconds"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Told:
    """An attribute: what it is, the spans that it may stand on, and what it says."""

    kind: Kind
    spans: frozenset[SpanName]
    what: str


_S = SpanName
_ROOT: Final = frozenset({_S.RERANK})
_WHOLE: Final = frozenset({_S.RERANK, _S.QUERY})
_STAGES: Final = frozenset({_S.SMALL, _S.LARGE})
_CALL: Final = frozenset({_S.CALL})
_CACHE: Final = frozenset({_S.CACHE})
STAGE_SPANS: Final[Mapping[StageName, SpanName]] = {StageName.SMALL: _S.SMALL, StageName.LARGE: _S.LARGE}

SPANS: Final[Mapping[SpanName, str]] = {
    _S.RERANK: "a request, from its head to its answer (SERVER)",
    _S.ADMISSION: "asking for a seat, and waiting for it",
    _S.QUERY: "one query of a body that holds many; with one there is none",
    _S.DEPTH: "reading signals, and choosing how many candidates are scored",
    _S.SMALL: "a round of the small stage, at a server or in the process; without a length where there was no time for it",
    _S.LARGE: "a round of the large stage, the same",
    _S.CACHE: "looking up scores that are kept",
    _S.CACHE_WAIT: "waiting for another request that scores the same pairs",
    _S.CALL: "one call of a server; one that is made again has a span of its own (CLIENT)",
    _S.ESCALATION: "deciding what the large stage is sent, once a round",
    _S.FALLBACK: "making an answer that is degraded, of the best complete order so far; not there for one as planned",
}

ATTRIBUTES: Final[Mapping[Attribute, Told]] = {
    Attribute.METHOD: Told(Kind.WORD, _ROOT | _CALL, "`POST`"),
    Attribute.ROUTE: Told(Kind.WORD, _ROOT, "the route, as the sidecar declares it"),
    Attribute.STATUS: Told(Kind.COUNT, _ROOT | _CALL, "the status answered"),
    Attribute.RESENT: Told(Kind.COUNT, _CALL, "which repetition of a failed call it is; not there for the first"),
    Attribute.ADDRESS: Told(Kind.WORD, _CALL, "the host of the stage's `url`"),
    Attribute.PORT: Told(Kind.COUNT, _CALL, "its port"),
    Attribute.ERROR: Told(
        Kind.WORD,
        frozenset(SpanName),
        "a code: the request's fault, that of the round or call, `client_gone`, `cancelled`, else a class of exception",
    ),
    Attribute.OPERATION: Told(Kind.WORD, _ROOT | _STAGES, f"`{OPERATION}`"),
    Attribute.MODEL: Told(Kind.WORD, _STAGES, "the model that the release declares"),
    Attribute.CANDIDATES: Told(Kind.COUNT, _WHOLE, "candidates of the request"),
    Attribute.TOP_N: Told(Kind.COUNT, _WHOLE, "places answered"),
    Attribute.DIALECT: Told(Kind.WORD, _WHOLE, "whose wire format it speaks"),
    Attribute.DECISION: Told(Kind.WORD, _WHOLE, "id of the decision, as in header, log and record"),
    Attribute.RELEASE: Told(Kind.WORD, _WHOLE, "name of the release that decided"),
    Attribute.RELEASE_DIGEST: Told(Kind.WORD, _ROOT, "its digest"),
    Attribute.ARM: Told(Kind.WORD, _WHOLE, "`stable` or `canary`"),
    Attribute.LEVEL: Told(Kind.WORD, _WHOLE, "load level that decided"),
    Attribute.STAGE: Told(Kind.WORD, _WHOLE | {_S.FALLBACK}, "what the answer is from: `large`, `small`, `retrieval`"),
    Attribute.ACTION: Told(Kind.WORD, _WHOLE | {_S.ESCALATION}, "what escalation decided"),
    Attribute.MISFIT: Told(Kind.WORD, frozenset({_S.ESCALATION}), "why the calibration did not hold"),
    Attribute.ESCALATED: Told(Kind.COUNT, _WHOLE | {_S.ESCALATION}, "candidates for the large stage"),
    Attribute.EXCLUDED: Told(Kind.COUNT, _WHOLE, "candidates that a stage left out"),
    Attribute.DEPTH: Told(Kind.COUNT, _WHOLE | {_S.DEPTH}, "candidates to be scored"),
    Attribute.DEPTH_REASON: Told(Kind.WORD, _WHOLE | {_S.DEPTH}, "why so many"),
    Attribute.QUERY_CLASS: Told(Kind.WORD, frozenset({_S.DEPTH}), "class of the query, one of four"),
    Attribute.DEGRADED: Told(Kind.FLAG, _WHOLE, "whether the answer is less than planned"),
    Attribute.DEGRADED_REASONS: Told(Kind.WORDS, _WHOLE | {_S.FALLBACK}, "why it is"),
    Attribute.BUDGET_MS: Told(Kind.MS, _WHOLE | _STAGES, "time that the request, or the round, had"),
    Attribute.ELAPSED_MS: Told(Kind.MS, _WHOLE, "time until the order was made, as in the log"),
    Attribute.OWN_MS: Told(Kind.MS, _WHOLE, "of it, time that no stage was awaited"),
    Attribute.SAMPLED_BY: Told(
        Kind.WORD, _ROOT, "why the trace is exported: `ratio`, `parent`, or what `trace_keep` kept it for"
    ),
    Attribute.VERDICT: Told(Kind.WORD, frozenset({_S.ADMISSION}), "what became of it"),
    Attribute.LANE: Told(Kind.WORD, frozenset({_S.ADMISSION}), "`short` or `long`"),
    Attribute.ENGINE: Told(Kind.WORD, _STAGES, "engine that the release declares"),
    Attribute.ROUND: Told(Kind.COUNT, _STAGES, "which round of the stage in this request, from 1"),
    Attribute.SENT: Told(Kind.COUNT, _STAGES | _CALL, "documents asked for; of a call, sent"),
    Attribute.SCORED: Told(Kind.COUNT, _STAGES, "documents that got a score"),
    Attribute.CACHED: Told(Kind.COUNT, _STAGES, "of them, not sent, since the score was kept or being made"),
    Attribute.TRUNCATED: Told(Kind.COUNT, _STAGES, "pairs not read in full"),
    Attribute.CALLS: Told(Kind.COUNT, _STAGES, "calls made"),
    Attribute.TOKENS: Told(Kind.COUNT, _STAGES | _CALL, "tokens, estimated where the server does not tell"),
    Attribute.ROOM_MS: Told(Kind.MS, _STAGES | _CALL, "wait for room at the server, before the call's span"),
    Attribute.QUEUE_MS: Told(Kind.MS, _STAGES, "time in the server's or the engine's queue, where it is told"),
    Attribute.COMPUTE_MS: Told(Kind.MS, _STAGES, "time of computing, where it is told"),
    Attribute.UPSTREAM_ROUTE: Told(Kind.WORD, _CALL, "path behind the stage's `url`, one of the adapter's"),
    Attribute.CACHE_HITS: Told(Kind.COUNT, _CACHE, "documents whose score was kept"),
    Attribute.CACHE_SHARED: Told(Kind.COUNT, _CACHE, "documents that another request was scoring already"),
    Attribute.CACHE_MISSES: Told(Kind.COUNT, _CACHE, "documents to be scored"),
    Attribute.CACHE_FAULTS: Told(Kind.COUNT, _CACHE, "documents of which the store could not tell"),
}


def admitted(name: SpanName, attributes: Mapping[Attribute, Value]) -> dict[str, Value]:
    """Return the attributes that may stand on a span of a name: listed for it, and of the kind that is listed."""
    return {
        str(key): _plain(value)
        for key, value in attributes.items()
        if (told := ATTRIBUTES.get(key)) is not None and name in told.spans and _is_of(told.kind, value)
    }


def _plain(value: Value) -> Value:
    """Return words as plain strings: members of enumerations are none to every encoder."""
    if isinstance(value, tuple):
        return tuple(map(str, value))
    return str(value) if isinstance(value, str) else value


def _is_of(kind: Kind, value: object) -> bool:
    match kind:
        case Kind.WORD:
            return _is_word(value)
        case Kind.WORDS:
            return isinstance(value, tuple) and all(_is_word(each) for each in value)
        case Kind.COUNT:
            return type(value) is int
        case Kind.MS:
            return type(value) is float
        case Kind.FLAG:
            return type(value) is bool


def _is_word(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_CHARACTERS and value.isprintable()
