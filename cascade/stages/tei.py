"""Text Embeddings Inference, 1.7 to 1.9, and servers that take its request shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from cascade.stages.answers import items_with_scores, parse_json, scores_by_index
from cascade.stages.base import Observed
from cascade.stages.chunking import Clip
from cascade.stages.upstream import Reply
from cascade.stages.wire import (
    ChunkAnswer,
    Fault,
    FaultKind,
    Getter,
    common_fault,
    error_text,
    number_after,
    object_of,
)

__all__ = ["TeiWire"]

_TOO_LONG: Final = re.compile(r"must have less than (\d+) tokens")
_GIVEN: Final = re.compile(r"[Gg]iven: (\d+)")
_TOO_MANY: Final = re.compile(r"maximum allowed batch size (\d+)")
_INPUT: Final = re.compile(r"input \((\d+) tokens\)")
_CONTEXT: Final = re.compile(r"max context size \((\d+) tokens\)")
_TOO_LARGE: Final = re.compile(r"input \((\d+) tokens\) is too large")
_PHYSICAL_LIMIT: Final = re.compile(r"batch size[^0-9]{0,40}(\d+)")


class TeiWire:
    """Speak TEI's ``/rerank``.

    Truncation is asked for in every request, since its default changed with 1.9.0. A server-side
    validation fault is 413 up to 1.8 and 422 from 1.9, as JSON; a body over the payload limit is 413 and
    a schema fault 422, as plain text. llama.cpp takes this request too and states its limits in its own words.
    """

    texts_by_default = 32
    clips = True

    def __init__(self, *, raw_scores: bool) -> None:
        raw = b"true" if raw_scores else b"false"
        self._head = b'{"raw_scores":' + raw + b',"truncate":true,"truncation_direction":"Right","query":'

    def request(self, query: bytes, documents: Sequence[bytes], *, clip_to: Clip | None = None) -> tuple[str, bytes]:
        return "/rerank", self._head + query + b',"texts":[' + b",".join(documents) + b"]}"

    def answer(self, reply: Reply, count: int) -> ChunkAnswer:
        scores = scores_by_index(items_with_scores(parse_json(reply.body), "score"), count)
        header = reply.headers.get
        return ChunkAnswer(
            scores,
            tokens=_whole(header("x-compute-tokens")),
            tokenize_ms=_whole(header("x-tokenization-time")),
            queue_ms=_whole(header("x-queue-time")),
            compute_ms=_whole(header("x-inference-time")),
        )

    def fault(self, reply: Reply) -> Fault:
        body = object_of(reply)
        message = error_text(body)
        match reply.status:
            case 413 | 422 if body:
                return _validation(message, reply.status)
            case 413:
                return Fault(FaultKind.TOO_MANY_BYTES, "payload_limit")
            case 424:
                return Fault(FaultKind.BROKEN, "backend")
            case 400 if (limit := number_after(_CONTEXT, message)) is not None:
                return Fault(FaultKind.TOO_LONG, "too_long", limit, number_after(_INPUT, message))
            case 500 if (given := number_after(_TOO_LARGE, message)) is not None:
                return Fault(FaultKind.TOO_LONG, "too_long", number_after(_PHYSICAL_LIMIT, message), given)
            case _:
                return common_fault(reply.status)

    def next_route(self) -> None:
        """Stay: there is one route."""

    async def discover(self, get: Getter) -> Observed | Fault:
        reply = await get("/info")
        if reply.status == 404:
            return Observed()
        if reply.status != 200:
            return self.fault(reply)
        info = object_of(reply)
        kind = info.get("model_type")
        if isinstance(kind, dict) and "reranker" not in kind:
            return Fault(FaultKind.REFUSED, "not_a_reranker")
        return Observed(
            model=_text(info.get("model_id")),
            revision=_text(info.get("model_sha")),
            dtype=_text(info.get("model_dtype")),
            version=_text(info.get("version")),
            max_length=_count(info.get("max_input_length")),
            max_texts=_count(info.get("max_client_batch_size")),
            max_in_flight_texts=_count(info.get("max_concurrent_requests")),
        )


def _validation(message: str, status: int) -> Fault:
    if (limit := number_after(_TOO_LONG, message)) is not None:
        return Fault(FaultKind.TOO_LONG, "too_long", limit, number_after(_GIVEN, message))
    if (limit := number_after(_TOO_MANY, message)) is not None:
        return Fault(FaultKind.TOO_MANY_TEXTS, "batch_too_large", limit)
    if status == 413:  # a gateway's own limit, told in its own JSON
        return Fault(FaultKind.TOO_MANY_BYTES, "payload_limit")
    return Fault(FaultKind.REFUSED, f"status_{status}")


def _whole(value: str | None) -> int | None:
    return int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 16 else None


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
