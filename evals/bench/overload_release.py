"""What the overload benchmark serves: a release of five levels, what each is worth, and the requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from evals.bench.batching import LARGE, SMALL

__all__ = [
    "CAPACITY",
    "DEADLINE_MS",
    "FIRST_STAGE",
    "LEVELS",
    "Plan",
    "orders",
    "quality",
    "release",
    "request",
]

DEADLINE_MS: Final = 300
DOCUMENTS: Final = 50
FIRST_STAGE: Final = 0.80
_FILLER: Final = (
    "a harbour light was kept by three families who wrote down every ship and storm they saw from the tower"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a level does: documents to the small stage, of them to the large one, and what its answers are worth."""

    small: int
    large: int
    quality: float


LEVELS: Final[Mapping[str, Plan]] = {
    "normal": Plan(50, 20, 1.0),
    "degraded-1": Plan(50, 8, 0.985),
    "degraded-2": Plan(50, 0, 0.93),
    "degraded-3": Plan(20, 0, 0.90),
    "degraded-4": Plan(0, 0, FIRST_STAGE),
}
"""The levels and the qualities of evals/overload_simulation.md. The qualities are stated, not measured: documents are made up."""

CAPACITY: Final = min(LARGE.pairs_a_second / 20, SMALL.pairs_a_second / 50)
"""Requests a second that the servers can score at the first level, if every batch is full."""


def release(small_url: str, large_url: str) -> dict[str, Any]:
    """Return the release: the defaults of a release, and what the servers need."""
    common = {"model": "scripted", "engine": "scripted"}
    return {
        "release": "overload",
        "stages": {
            "small": common | {"adapter": "tei", "url": small_url},
            "large": common | {"adapter": "vllm", "url": large_url, "max_length": 8192},
        },
        "depth": 50,
        "escalation": {"kind": "static", "top_m": 20},
        "budgets": {"total_ms": DEADLINE_MS, "small_ms": 120, "large_ms": 250, "reserve_ms": 10},
        "limits": {"max_candidates": 200, "max_documents": 2048},
        "levels": [
            {"name": "normal"},
            {"name": "degraded-1", "escalation": {"kind": "static", "top_m": 8}},
            {"name": "degraded-2", "escalation": "none"},
            {"name": "degraded-3", "depth": 20, "escalation": "none"},
            {"name": "degraded-4", "stages": "none"},
        ],
        "fallback": "original-order",
    }


def request(seed: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Return a body of short documents, and what the small and the large server score each; no two alike."""
    draw = np.random.default_rng(seed)
    small, large = ((draw.permutation(800) - 400)[:DOCUMENTS].tolist() for _ in range(2))
    texts = [f"{one} {other} {_FILLER}" for one, other in zip(small, large, strict=True)]
    return orjson.dumps({"model": "scripted", "query": f"lights {seed}", "documents": texts}), list(
        zip(small, large, strict=True)
    )


def orders(level: str, stage: str, scores: Sequence[tuple[int, int]], *, degraded: bool) -> list[list[int]]:
    """Return the orders that an answer may have by what it says of itself. ``degraded``: a stage may have failed."""
    plan = LEVELS[level]
    every = list(range(len(scores)))
    if stage == "retrieval":
        return [every]
    by_small = sorted(every[: plan.small], key=lambda index: -scores[index][0]) + every[plan.small :]
    if stage == "small":
        return [by_small]
    blocks = [by_small, every] if degraded else [by_small]
    return [sorted(order[: plan.large], key=lambda index: -scores[index][1]) + order[plan.large :] for order in blocks]


def quality(stage: str, depth: int, escalated: int) -> float:
    """Return what an answer is worth: that of the best level whose work it had whole, by the stage that answered."""
    match stage:
        case "large":
            return max((plan.quality for plan in LEVELS.values() if 0 < plan.large <= escalated), default=FIRST_STAGE)
        case "small":
            return max(
                (plan.quality for plan in LEVELS.values() if not plan.large and 0 < plan.small <= depth),
                default=FIRST_STAGE,
            )
        case _:
            return FIRST_STAGE
