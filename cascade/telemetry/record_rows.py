"""Decision records as rows of columns, and back, without a loss. docs/observe.md has the columns.

A decision whose every field has its place becomes a row of typed columns. A head, and any line that the columns
would not give back as it was, is kept whole in the column ``line``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

__all__ = ["COLUMNS", "COSTS", "ESTIMATES", "PARQUET_FORMAT", "ROUNDS", "WOULD", "line_of", "row_of"]

PARQUET_FORMAT: Final = "cascade-records-parquet/1"
"""Told in the metadata of a file, under the key ``cascade``."""

_NUMBERS: Final = "numbers"
_PLACES: Final = "places"
_WORDS: Final = "words"
_NOT_IN_EACH: Final = ("trace_id", "outcome")
"""What a line does not tell: of a request without a trace, and an old one of how it ended."""

COLUMNS: Final[Mapping[str, str]] = {
    "head": "word",
    "time": "time",
    "decision_id": "word",
    "trace_id": "word",
    "dialect": "word",
    "release": "word",
    "load_level": "word",
    "arm": "word",
    "of": "word",
    "outcome": "word",
    "tenant": "word",
    "query_hash": "word",
    "candidates": "count",
    "top_n": "count",
    "depth": "count",
    "depth_reason": "word",
    "action": "word",
    "estimates": "estimates",
    "misfit": "word",
    "query_class": "word",
    "signals": "named number",
    "escalated": _PLACES,
    "stage": "word",
    "degraded": _WORDS,
    "excluded": _PLACES,
    "effective_pairs": "count",
    "cached_pairs": "count",
    "tokens": _PLACES,
    "truncated_pairs": "count",
    "rank_changes_at_5": "count",
    "deadline_ms": "number",
    "total_ms": "number",
    "own_ms": "number",
    "rounds": "rounds",
    "sample": "number",
    "propensity": "number",
    "q_class": "word",
    "q_tokens": "count",
    "q_identifiers": "count",
    "instruction": "word",
    "ids": _WORDS,
    "small": _NUMBERS,
    "large": _NUMBERS,
    "beside": "word",
    "would": "would",
    "channels": "named numbers",
    "channels_left_out": "count",
}
"""The fields of a decision, each with its kind. ``kind`` stands before them, ``line`` behind them."""

ESTIMATES: Final[Mapping[str, str]] = {
    "k": "count",
    "p_first": "number",
    "margin": "number",
    "entropy": "number",
    "expected_loss": "number",
    "p_acceptable": "number",
}
COSTS: Final[Mapping[str, str]] = {
    "calls": "count",
    "tokens": "count",
    "tokens_estimated": "truth",
    "truncated": "count",
    "tokenize_ms": "number",
    "queue_ms": "number",
    "compute_ms": "number",
    "server_ms": "number",
    "room_ms": "number",
    "cached": "count",
    "windows": "count",
    "padding": "count",
    "repaired": "count",
    "prefix_tokens": "count",
}
"""What a round cost. What is not known is not in the line, and null in the column."""
ROUNDS: Final[Mapping[str, str]] = {
    "stage": "word",
    "model": "word",
    "sent": "count",
    "scored": "count",
    "blank": "count",
    "refused": "count",
    "outcome": "word",
    "code": "word",
    "elapsed_ms": "number",
    **COSTS,
}
WOULD: Final[Mapping[str, str]] = {
    "depth": "count",
    "depth_reason": "word",
    "action": "word",
    "escalated": _PLACES,
    "rounds": "count",
    "estimates": "estimates",
    "misfit": "word",
    "query_class": "word",
    "signals": "named number",
}


def row_of(line: bytes, *, whole: bool = False) -> dict[str, Any]:
    """Return a line as a row: columns by name, those that are null left out. ``whole`` keeps it in ``line`` anyway."""
    try:
        told = orjson.loads(line)
    except orjson.JSONDecodeError:
        told = None
    kind = told.get("kind") if isinstance(told, dict) else None
    if kind == "decision" and not whole:
        row = _typed(told)
        if row is not None:
            return row
    named = {"head": told["id"], "release": told["release"]} if kind == "head" and _is_named(told) else {}
    plain = kind if isinstance(kind, str) else None
    return {"kind": plain, **named, "line": line.decode("utf-8", "replace").rstrip("\n")}


def line_of(row: Mapping[str, Any]) -> bytes:
    """Return the line of a row, without a newline."""
    whole = row.get("line")
    return orjson.dumps(_told(row)) if whole is None else str(whole).encode()


def _is_named(told: Mapping[str, Any]) -> bool:
    return isinstance(told.get("id"), str) and isinstance(told.get("release"), str)


def _typed(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a decision as a row; None where that would tell another line, or a value is of another kind than its column."""
    row = {"kind": "decision"} | {name: told[name] for name in COLUMNS if told.get(name) is not None}
    try:
        if "time" in row:
            row["time"] = datetime.fromisoformat(row["time"])
        for name in ("signals", "channels"):
            row[name] = list(row[name].items())
        if "would" in row:
            row["would"] = row["would"] | {"signals": list(row["would"]["signals"].items())}
        return row if _told(row) == told else None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the columns of a decision say, in the order of the line."""
    told: dict[str, Any] = {"kind": "decision"} | {name: row.get(name) for name in COLUMNS}
    at = told["time"]
    told["time"] = None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds")
    for name in _NOT_IN_EACH:
        if told[name] is None:
            del told[name]
    for name in ("signals", "channels"):
        told[name] = None if told[name] is None else dict(told[name])
    told["estimates"] = _record(told["estimates"], ESTIMATES)
    told["rounds"] = None if told["rounds"] is None else [_round(one) for one in told["rounds"]]
    would = _record(told["would"], WOULD)
    if would is not None:
        would |= {
            "signals": dict(would["signals"] or ()),
            "estimates": _record(would["estimates"], ESTIMATES),
        }
    return told | {"would": would}


def _record(value: Mapping[str, Any] | None, names: Mapping[str, str]) -> dict[str, Any] | None:
    return None if value is None else {name: value.get(name) for name in names}


def _round(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one.get(name) for name in ROUNDS if one.get(name) is not None or name not in COSTS}
