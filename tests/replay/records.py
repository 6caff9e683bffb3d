"""Lines of decision records, written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

__all__ = ["decision_line", "head_line", "scorer", "write_records"]


def scorer(stage: str, model: str = "m", observed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a head says of a stage."""
    fingerprint = {"model": model, "revision": None, "max_length": 512, "score_space": "logit"}
    return {"stage": stage, "fingerprint": fingerprint, "observed": None if observed is None else dict(observed)}


def head_line(**changes: Any) -> dict[str, Any]:
    """Return a head, with fields changed."""
    return {
        "kind": "head",
        "id": "0" * 16,
        "format": "cascade-records/1",
        "release": "r1",
        "release_digest": "sha256:r1",
        "policy_digest": "sha256:p1",
        "mode": "observe",
        "key": "e" * 16,
        "scorers": {"small": scorer("small", "little"), "large": scorer("large", "big")},
    } | changes


def decision_line(**changes: Any) -> dict[str, Any]:
    """Return a complete record of three candidates, with fields changed."""
    return {
        "kind": "decision",
        "head": "0" * 16,
        "time": "2026-11-29T00:00:00.000+00:00",
        "decision_id": "id-1",
        "query_hash": "a" * 16,
        "tenant": None,
        "load_level": "normal",
        "arm": "stable",
        "of": None,
        "top_n": 3,
        "depth": 3,
        "depth_reason": "observe",
        "escalated": [0, 1, 2],
        "degraded": [],
        "rank_changes_at_5": 2,
        "sample": 1.0,
        "propensity": 1.0,
        "signals": {},
        "q_class": "other",
        "q_tokens": 4,
        "q_identifiers": 0,
        "instruction": None,
        "excluded": [],
        "ids": ["1" * 16, "2" * 16, "3" * 16],
        "tokens": [10, 11, 12],
        "small": [1.5, 0.5, -0.5],
        "large": [2.0, 3.0, 1.0],
        "channels": {"bm25": [9.0, 8.0, 7.0]},
        "rounds": [
            {"stage": "large", "outcome": "ok", "sent": 3, "elapsed_ms": 30.0},
            {"stage": "small", "outcome": "ok", "sent": 3, "elapsed_ms": 6.0},
        ],
        "beside": "ok",
        "would": None,
    } | changes


def write_records(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write lines to a file, and return where."""
    path.write_bytes(b"".join(orjson.dumps(dict(line), option=orjson.OPT_APPEND_NEWLINE) for line in lines))
    return path
