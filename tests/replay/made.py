"""Score tables made for tests: documents of known worth, a noisy small reranker and a better large one."""

from __future__ import annotations

from typing import Any

import numpy as np

from cascade.metrics import Gain
from cascade.replay.queries import Judgement, ReplayedQuery, Roles, replayed
from cascade.replay.table import ScoreTable

__all__ = ["ROLES", "made_queries", "made_query", "made_table"]

ROLES = Roles(("bm25", "dense"), "small", "large")


def made_table(
    queries: int = 40, candidates: int = 20, seed: int = 1, *, noise: float = 0.3, **fields: Any
) -> ScoreTable:
    """Return a table in which the large scorer errs by ``noise`` and every other one by more.

    A third of the candidates is relevant. ``fields`` replace those of the table.
    """
    random = np.random.default_rng(seed)
    rows = queries * candidates
    worth = random.normal(size=rows)
    made: dict[str, Any] = {
        "query_ids": tuple(f"q{seed}-{number:03}" for number in range(queries)),
        "offsets": np.arange(0, rows + 1, candidates, dtype=np.int64),
        "doc_ids": tuple(f"d{row % candidates:03}" for row in range(rows)),
        "scores": {
            name: worth + error * random.normal(size=rows)
            for name, error in {"bm25": 1.5, "dense": 1.5, "small": 1.0, "large": noise}.items()
        },
        "rel": (worth > 0.5).astype(np.int64) + (worth > 1.5),
        "attributes": {
            "source": tuple("ab"[row // candidates % 2] for row in range(rows)),
            "tokens": tuple(10 + row % 7 for row in range(rows)),
        },
    }
    return ScoreTable(**made | fields)


def made_queries(queries: int = 40, candidates: int = 20, seed: int = 1, k: int = 5) -> tuple[ReplayedQuery, ...]:
    """Return the queries of a made table as a replay sees them."""
    return replayed([made_table(queries, candidates, seed)], ROLES, k, Gain.LINEAR).queries


def made_query(small: list[float], large: list[float], gains: list[float], ideal: float = 1.0) -> ReplayedQuery:
    """Return one query of given scores, NaN for none, and gains."""
    worth = np.array(gains, dtype=np.float64)
    relevant = worth > 0
    return ReplayedQuery(
        small=np.array(small, dtype=np.float64),
        large=np.array(large, dtype=np.float64),
        channels={},
        tokens=None,
        judgement=Judgement(worth, relevant, np.ones_like(relevant), ideal, int(relevant.sum()), silver=False),
        pairs=len(small),
    )
