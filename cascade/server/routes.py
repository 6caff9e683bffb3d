"""The public routes as data: which dialect speaks where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cascade.server.dialects.base import DialectFormat
from cascade.server.dialects.native import NativeFormat
from cascade.server.dialects.tei import TeiFormat
from cascade.server.dialects.vllm import VllmFormat, VllmScoreFormat

__all__ = ["RERANK_ROUTES", "RerankRoute"]

_NATIVE: Final = NativeFormat()
_TEI: Final = TeiFormat()
_VLLM: Final = VllmFormat()
_SCORE: Final = VllmScoreFormat()


@dataclass(frozen=True, slots=True)
class RerankRoute:
    """A path and how its dialect is chosen: from the parsed body, or the bytes read of one that is not to be parsed."""

    path: str
    choose: Callable[[Any], DialectFormat]
    summary: str
    formats: tuple[DialectFormat, ...]


def _only(fmt: DialectFormat) -> Callable[[Any], DialectFormat]:
    return lambda body: fmt


def _by_body(body: Any) -> DialectFormat:
    """TEI's clients send ``texts``, all others ``documents``."""
    named = b'"texts"' in body if isinstance(body, bytes) else isinstance(body, dict) and "texts" in body
    return _TEI if named else _VLLM


RERANK_ROUTES: Final = (
    RerankRoute("/v1/cascade/rerank", _only(_NATIVE), "Rerank, native format", (_NATIVE,)),
    RerankRoute("/rerank", _by_body, "Rerank as TEI does (body with texts) or vLLM (with documents)", (_TEI, _VLLM)),
    RerankRoute("/v1/rerank", _only(_VLLM), "Rerank as vLLM does", (_VLLM,)),
    RerankRoute("/v2/rerank", _only(_VLLM), "Rerank as vLLM does", (_VLLM,)),
    RerankRoute("/score", _only(_SCORE), "Score as vLLM does", (_SCORE,)),
    RerankRoute("/v1/score", _only(_SCORE), "Score as vLLM does", (_SCORE,)),
)
