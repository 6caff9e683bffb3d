"""Requests by a seed, and what is wrong with their answers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

import orjson

from cascade.decision import DegradedReason

__all__ = ["CANARY", "DEPTHS", "TOP_M", "TOTAL_MS", "Asked", "Judged", "draw_request", "judge", "score_by"]

CANARY: Final = "kingfisher7f3a"
"""Every query and every document holds it."""
TOTAL_MS: Final = 300.0
"""The release's deadline."""
TOP_M: Final = 12
DEPTHS: Final = (50, 20)
"""Depths of the release's levels."""
_MOST_DOCUMENTS: Final = 45
_DEADLINES_MS: Final = (None, None, None, None, 0, 15, 40, 100, 200, 250)
_REASONS: Final = frozenset(DegradedReason)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: what is sent, and what an answer is judged by."""

    dialect: str
    path: str
    query: str
    texts: tuple[str, ...]
    top_n: int | None
    deadline_ms: float
    fail_closed: bool
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Judged:
    """What an answer was, and every way in which it breaks the contract."""

    stage: str
    degraded: tuple[str, ...]
    decision_id: str
    breaches: tuple[str, ...] = field(default=())


def score_by(salt: str) -> Callable[[str, str], float]:
    """Return scores by a query's last word and a document's first: what was clipped keeps its score, and equal ones tie."""

    def score(query: str, text: str) -> float:
        words = f"{salt} {query.rpartition(' ')[2]} {text.partition(' ')[0]}"
        return (crc32(words.encode()) % 800) / 100 - 4

    return score


def draw_request(drawn: random.Random, *, queries: int = 1000) -> Asked:
    """Return a request in one of the dialects, of so many queries, with blanks, repetitions and all kinds of deadlines."""
    texts = [_text(drawn) for _ in range(drawn.randint(1, _MOST_DOCUMENTS))]
    dialect = drawn.choice(("native", "native", "tei", "vllm", "vllm-score"))
    top_n = drawn.choice((None, None, 1, 10)) if dialect in {"native", "vllm"} else None
    deadline_ms = drawn.choice(_DEADLINES_MS)
    fail_closed = drawn.random() < 0.04
    query = f"what is {CANARY} {drawn.randrange(queries)}"
    headers = {"content-type": "application/json"}
    if deadline_ms is not None:
        headers["x-request-timeout-ms"] = str(deadline_ms)
    if fail_closed:
        headers["x-cascade-fail-closed"] = "1"
    body: dict[str, Any]
    match dialect:
        case "native":
            path = "/v1/cascade/rerank"
            body = {"query": query, "candidates": [{"text": text} for text in texts], "explain": drawn.random() < 0.3}
        case "tei":
            path, body = "/rerank", {"query": query, "texts": texts}
        case "vllm":
            path, body = "/v1/rerank", {"query": query, "documents": texts}
        case _:
            path, body = "/v1/score", {"text_1": query, "text_2": texts}
    if top_n is not None:
        body["top_n"] = top_n
    asked_ms = TOTAL_MS if deadline_ms is None else float(deadline_ms)
    return Asked(dialect, path, query, tuple(texts), top_n, asked_ms, fail_closed, orjson.dumps(body), headers)


def _text(drawn: random.Random) -> str:
    if drawn.random() < 0.03:
        return drawn.choice(("", "  "))
    words = drawn.choice((4, 12, 40, 40, 500))
    return " ".join([f"d{drawn.randrange(200)}", CANARY, *("word",) * words])


def judge(
    asked: Asked,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    servers: Sequence[str],
    observe: bool = False,
) -> Judged:
    """Hold an answer against the invariants; ``servers`` are the salts of the small and the large one.

    In mode ``observe`` the large one scores everything, and the small one places nothing.
    """
    stage = headers.get("x-cascade-stage", "")
    degraded = tuple(filter(None, headers.get("x-cascade-degraded", "").split(",")))
    found: list[str] = [f"reason {reason}" for reason in degraded if reason not in _REASONS]
    if status == 503 and asked.fail_closed and degraded:
        stage = "refused"
    elif status != 200:
        found.append(f"status {status}")
    else:
        try:
            found += _wrong_with(asked, stage, degraded, headers, orjson.loads(body), servers, observe=observe)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            found.append(f"not an answer: {type(error).__name__}")
    return Judged(stage, degraded, headers.get("x-cascade-decision-id", ""), tuple(found))


def _wrong_with(
    asked: Asked,
    stage: str,
    degraded: tuple[str, ...],
    headers: Mapping[str, str],
    told: Any,
    servers: Sequence[str],
    *,
    observe: bool,
) -> list[str]:
    items = told if isinstance(told, list) else told["data" if asked.dialect == "vllm-score" else "results"]
    order = [item["index"] for item in items]
    scores = [item["relevance_score"] if asked.dialect == "vllm" else item["score"] for item in items]
    count = len(asked.texts)
    found = []
    if sorted(set(order)) != sorted(order) or not all(0 <= index < count for index in order):
        found.append("not each once")
    if len(order) != min(asked.top_n or count, count):
        found.append(f"{len(order)} of {count} places")
    if not all(map(math.isfinite, scores)):
        found.append("a score that is no number")
    if found:
        return found
    if asked.dialect == "vllm-score":  # in the order sent
        order = sorted(order, key=lambda index: -scores[index])
        scores = sorted(scores, reverse=True)
    if any(later > earlier for earlier, later in pairwise(scores)):
        found.append("scores that rise")
    if int(headers.get("x-cascade-excluded", "0")) > sum(not text.strip() for text in asked.texts):
        return found  # documents that a server refused may be anywhere behind
    expected = _orders(asked, stage, servers, whole=not degraded, observe=observe)
    if order not in [each[: asked.top_n] for each in expected]:
        found.append(f"not an order of stage {stage}{'' if degraded else ', and not degraded'}")
    return found


def _orders(asked: Asked, stage: str, servers: Sequence[str], *, whole: bool, observe: bool) -> list[list[int]]:
    """Return the orders that a stage may have made; ``whole`` where every stage answered."""
    texts, (small, large) = asked.texts, map(score_by, servers)
    first = list(range(len(texts)))
    scored = [i for i in first if texts[i].strip()]

    def ranked(of: Iterable[int], score: Callable[[str, str], float]) -> list[int]:
        return sorted(of, key=lambda index: (-score(asked.query, texts[index]), index))

    def over(block: list[int], rest: Iterable[int]) -> list[int]:
        return block + [index for index in rest if index not in block]

    small_orders = [over(ranked([i for i in scored if i < depth], small), first) for depth in DEPTHS]
    match stage:
        case "retrieval":
            return [first] if not whole or not scored else []
        case "large" if observe:
            return [over(ranked(scored, large), first)]
        case "small" if not observe:
            return [] if whole else small_orders
        case "large":
            tops = small_orders[:1] if whole else [*small_orders, first]
            blocks = [[i for i in order[:TOP_M] if texts[i].strip()] for order in tops]
            return [over(ranked(block, large), order) for block, order in zip(blocks, tops, strict=True)]
    return []
