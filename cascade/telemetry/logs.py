"""One JSON line a request, and lines for what happens to the process. Nothing else is logged."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, fields
from typing import Any, BinaryIO, Final, Literal

import orjson
import structlog

from cascade.decision import Decision, Round
from cascade.telemetry.spans import trace_id_now
from cascade.types import Dialect, StageCost

__all__ = [
    "UNWRITABLE",
    "configure_logging",
    "decision_record",
    "get_logger",
    "log_abandoned",
    "log_decision",
    "log_rejection",
    "note",
    "rounded",
]

_WAITS: Final = ("queue_ms", "room_ms")
_ROUND_FIELDS: Final = tuple(item.name for item in fields(Round) if item.name not in {"cost", "top", *_WAITS})
_COST_FIELDS: Final = tuple(item.name for item in fields(StageCost))
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
UNWRITABLE: Final = (OSError, ValueError)
"""What writing a line raises where the disk is full or the stream is closed."""
_NOISY: Final = ("httpx", "httpcore", "aiohttp", "asyncio", "uvicorn", "uvicorn.error", "uvicorn.access", "watchfiles")


def configure_logging(level: str, stream: BinaryIO) -> None:
    """Write JSON lines of ``level`` and above to ``stream``.

    Libraries log through the same lines, by logger name and level only: their messages and arguments may
    hold addresses, headers or bodies.
    """
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _without_exceptions,
            _with_trace,
            structlog.processors.JSONRenderer(serializer=lambda event, **_: orjson.dumps(event, default=_kind)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_NameOnly()]
    root.setLevel(_LEVELS[level])
    for name in _NOISY:
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = True
        logging.getLogger(name).setLevel(logging.WARNING)


class _NameOnly(logging.Handler):
    """Pass on that a library logged, and what kind of exception it saw, never what it said."""

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        level = min(max(record.levelno // 10 * 10, 10), 50)  # libraries may have levels of their own in between
        with contextlib.suppress(*UNWRITABLE):  # a library that logs must not fail for our disk
            get_logger().log(level, "library", logger=record.name, exception=kind)


def _without_exceptions(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop tracebacks and exception texts, which may hold input."""
    for key in ("exc_info", "exception_text", "stack_info"):
        event.pop(key, None)
    return event


def _with_trace(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Name the trace of the request that a line is written for."""
    trace_id = trace_id_now()
    if trace_id is not None:
        event.setdefault("trace_id", trace_id)
    return event


def _kind(value: object) -> str:
    """Stand in for what is not plain data, an exception among it: its repr may hold text."""
    return type(value).__name__


def get_logger() -> structlog.stdlib.BoundLogger:
    """Return the logger of this package."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger()
    return logger


def note(level: Literal["info", "warning", "error"], event: str, **fields: Any) -> None:
    """Write a line about the process. One that cannot be written is lost, and nothing else is."""
    with contextlib.suppress(*UNWRITABLE):
        get_logger().log(_LEVELS[level], event, **fields)


def log_decision(
    decision: Decision,
    *,
    outcome: Literal["answered", "refused"] = "answered",
    client_request_id: str | None = None,
) -> None:
    """Write the line of one decided request: answered, or refused because its caller wanted an error then."""
    get_logger().info("rerank", outcome=outcome, client_request_id=client_request_id, **decision_record(decision))


def log_rejection(
    dialect: Dialect, *, fault: str, field: str, status: int, client_request_id: str | None = None
) -> None:
    """Write the line of a request that was refused before anything was decided. ``field`` holds no caller's name."""
    get_logger().info(
        "rerank",
        outcome="rejected",
        client_request_id=client_request_id,
        dialect=dialect,
        fault=fault,
        field=field,
        status=status,
    )


def log_abandoned(dialect: Dialect | None, *, client_request_id: str | None = None) -> None:
    """Write the line of a request whose client went away; of one that left in its body the dialect is not known."""
    get_logger().info("rerank", outcome="abandoned", client_request_id=client_request_id, dialect=dialect)


def decision_record(decision: Decision) -> dict[str, Any]:
    """Return a decision as plain data for a log line or ``explain``. It holds no text."""
    traced = {} if decision.trace_id is None else {"trace_id": decision.trace_id}
    return {
        "decision_id": decision.id,
        **traced,
        "dialect": decision.dialect,
        "release": decision.release,
        "arm": decision.arm,
        "load_level": decision.level.name,
        "tenant": decision.tenant,
        "query_hash": decision.query_hash,
        "candidates": decision.candidates,
        "top_n": decision.top_n,
        "depth": decision.depth,
        "depth_reason": decision.depth_reason,
        "action": decision.action,
        "estimates": None if decision.estimates is None else rounded(asdict(decision.estimates)),
        "misfit": decision.misfit,
        "query_class": decision.query_class,
        "signals": rounded(decision.signals),
        "escalated": list(decision.escalated),
        "stage": decision.stage,
        "degraded": list(decision.degraded),
        "excluded": decision.excluded,
        "effective_pairs": sum(item.pairs for item in decision.rounds),
        "cached_pairs": sum(item.cost.cached for item in decision.rounds if item.cost),
        "tokens": sum(item.cost.tokens for item in decision.rounds if item.cost),
        "truncated_pairs": sum(item.cost.truncated for item in decision.rounds if item.cost),
        "rank_changes_at_5": decision.rank_changes_at_5,
        "deadline_ms": round(decision.deadline_ms, 3),
        "total_ms": round(decision.total_ms, 3),
        "own_ms": round(decision.own_ms, 3),
        "rounds": [_round_record(item) for item in decision.rounds],
    }


def _round_record(item: Round) -> dict[str, Any]:
    record = {name: getattr(item, name) for name in _ROUND_FIELDS}
    cost = {name: getattr(item.cost or item, name) for name in (_COST_FIELDS if item.cost else _WAITS)}
    merged = {**record, **{key: value for key, value in cost.items() if value is not None}}
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in merged.items()}


def rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers to six places, None for one that is missing (NaN)."""
    return {
        name: (None if math.isnan(value) else round(value, 6)) if isinstance(value, float) else value
        for name, value in values.items()
    }
