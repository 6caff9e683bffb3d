"""Releases, workloads and throughputs whose plans can be worked out by hand."""

from __future__ import annotations

from typing import Any, Final

from cascade.capacity.distribution import Distribution
from cascade.capacity.throughput import Throughputs, throughputs_of
from cascade.capacity.traffic import Arrivals, OverLength, Traffic, Window
from cascade.policy.release import Release, parse_release
from cascade.types import StageName
from tests.replay.records import decision_line
from tests.scenario import release_data

__all__ = [
    "CALIBRATED",
    "CHAT",
    "HOSTED",
    "ONNX",
    "made_release",
    "made_throughputs",
    "made_traffic",
    "record",
    "records_head",
]

CALIBRATED: Final[dict[str, Any]] = {
    "kind": "calibrated",
    "calibration": "sha256:" + "a" * 64,
    "price_per_pair": 0.01,
    "max_share": 0.5,
    "safe_top_m": 30,
}
CHAT: Final[dict[str, Any]] = {"adapter": "chat", "url": "http://stage.example", "model": "m", "engine": "vllm/0.32"}
HOSTED: Final[dict[str, Any]] = {"adapter": "cohere", "url": "http://stage.example", "model": "m", "engine": "cohere"}
ONNX: Final[dict[str, Any]] = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": "w"}}


def made_release(**changes: Any) -> Release:
    """Return a release of depth 50 that sends the top 20, with top-level keys changed."""
    budgets = {"total_ms": 1000, "small_ms": 300, "large_ms": 600, "reserve_ms": 10}
    return parse_release(release_data(**{"budgets": budgets, **changes}))


def made_traffic(
    qps: float = 10.0,
    *,
    candidates: Distribution | None = None,
    tokens: Distribution | None = None,
    query_tokens: float | None = None,
    windows: tuple[Window, ...] = (),
    over_length: OverLength = OverLength.TRUNCATE,
    beside_share: float = 1.0,
) -> Traffic:
    """Return 100 candidates a query of 100 tokens each, at a rate that is mean and peak, unless told otherwise."""
    return Traffic(
        Arrivals.of_windows(windows, 1.0) if windows else Arrivals(qps, qps),
        candidates or Distribution.constant(100),
        tokens or Distribution.constant(100),
        query_tokens,
        {StageName.SMALL: over_length, StageName.LARGE: over_length},
        beside_share,
    )


def made_throughputs(**stages: dict[str, Any]) -> Throughputs:
    """Return throughputs of a small and a large stage: 1,000 and 100 pairs a second, unless others are named."""
    return throughputs_of(stages or {"small": {"pairs_per_s": 1000.0}, "large": {"pairs_per_s": 100.0}})


def records_head(**changes: Any) -> dict[str, Any]:
    """Return the head of records of mode cascade, with fields changed."""
    return {
        "kind": "head",
        "id": "0" * 16,
        "format": "cascade-records/1",
        "release": "r1",
        "release_digest": "sha256:r1",
        "policy_digest": "sha256:p1",
        "mode": "cascade",
        "key": "e" * 16,
        "scorers": {},
    } | changes


def record(second: float, **changes: Any) -> dict[str, Any]:
    """Return what capacity reads of a record: four candidates, two of them sent, so many seconds after midnight."""
    minutes, seconds = divmod(second, 60)
    tokens = changes.get("tokens", [20, 30, 40, 50])
    count = len(tokens)
    rounds = [
        {"stage": stage, "outcome": "ok", "sent": sent, "elapsed_ms": 1.0}
        for stage, sent in (("small", 3), ("large", 2))
    ]
    return (
        decision_line(
            time=f"2026-11-29T00:{minutes:02.0f}:{seconds:06.3f}+00:00",
            decision_id=f"id-{second}",
            query_hash=f"{int(second * 1000):016x}",
            depth_reason="fixed",
            escalated=[2, 0],
            q_tokens=8,
            tokens=tokens,
            ids=[f"{place:016x}" for place in range(count)],
            small=[None] * count,
            large=[None] * count,
            channels={},
            rounds=rounds,
            beside=None,
        )
        | changes
    )
