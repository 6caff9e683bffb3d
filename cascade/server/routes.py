"""The public routes as data: which dialect speaks where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cascade.server.dialects.base import DialectFormat
from cascade.server.dialects.infinity import InfinityFormat
from cascade.server.dialects.native import NativeFormat
from cascade.server.dialects.tei import TeiFormat
from cascade.server.dialects.vllm import VllmFormat
from cascade.server.dialects.vllm_score import VllmScoreFormat
from cascade.server.service import RerankDialect

__all__ = ["HEALTH_PATHS", "LIVE_PATH", "READY_PATH", "RerankRoute", "rerank_routes"]

LIVE_PATH: Final = "/livez"
READY_PATH: Final = "/readyz"
HEALTH_PATHS: Final = (READY_PATH, "/health", "/ping", "/")
"""Where readiness is told; the last three to clients of TEI and vLLM."""


@dataclass(frozen=True, slots=True)
class RerankRoute:
    """A path and how its dialect is chosen: from the parsed body, or the bytes read of one that is not to be parsed."""

    path: str
    choose: Callable[[Any], DialectFormat]
    summary: str
    formats: tuple[DialectFormat, ...]


def rerank_routes(rerank_dialect: RerankDialect) -> tuple[RerankRoute, ...]:
    """Return every rerank route; ``rerank_dialect`` decides who answers ``/rerank`` with ``documents``."""
    native, tei, score = NativeFormat(), TeiFormat(), VllmScoreFormat()
    first, second = VllmFormat("1"), VllmFormat("2")
    shared: DialectFormat = InfinityFormat() if rerank_dialect == "infinity" else first
    by_texts = f"Rerank as TEI does (body with texts) or {rerank_dialect} (with documents)"
    return (
        _only("/v1/cascade/rerank", native, "Rerank, native format"),
        _only("/", tei, "Rerank as TEI does"),
        RerankRoute("/rerank", _by_texts(tei, shared), by_texts, (tei, shared)),
        _only("/v1/rerank", first, "Rerank as vLLM, Jina, Voyage and Cohere's v1 do"),
        _only("/v1/reranking", first, "Rerank as Mixedbread does"),
        _only("/v2/rerank", second, "Rerank as vLLM and Cohere's v2 do"),
        _only("/score", score, "Score as vLLM does"),
        _only("/v1/score", score, "Score as vLLM does"),
    )


def _only(path: str, fmt: DialectFormat, summary: str) -> RerankRoute:
    return RerankRoute(path, lambda body: fmt, summary, (fmt,))


def _by_texts(tei: DialectFormat, other: DialectFormat) -> Callable[[Any], DialectFormat]:
    """Choose by the body: TEI's clients send ``texts``, all others ``documents``."""

    def choose(body: Any) -> DialectFormat:
        named = b'"texts"' in body if isinstance(body, bytes) else isinstance(body, dict) and "texts" in body
        return tei if named else other

    return choose
