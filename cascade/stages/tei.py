"""Text Embeddings Inference, 1.7 to 1.9, and servers that take its request shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

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
    count_of,
    error_text,
    number_after,
    object_of,
    text_of,
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

    Truncation is switched on or off in every request, since its default changed with 1.9.0. It is off
    where the text carries a template, whose end the server would cut. A server-side validation fault
    is 413 up to 1.8 and 422 from 1.9, as JSON; a body over the payload limit is 413 and a schema fault
    422, as plain text. llama.cpp takes this request too and states its limits in its own words.
    """

    routes: tuple[str, ...] = ("/rerank",)
    texts_by_default = 32
    most_texts: int | None = None
    most_characters: int | None = None
    takes_instruction = False
    load_route: str | None = "/metrics"

    def __init__(self, *, raw_scores: bool, truncate: bool = True) -> None:
        raw, cut = (b"true" if asked else b"false" for asked in (raw_scores, truncate))
        self._head = b'{"raw_scores":' + raw + b',"truncate":' + cut + b',"truncation_direction":"Right","query":'
        self.clips = truncate

    def request(
        self,
        route: str,
        query: bytes,
        documents: Sequence[bytes],
        *,
        clip_to: Clip | None = None,
        instruction: str | None = None,
    ) -> bytes:
        return self._head + query + b',"texts":[' + b",".join(documents) + b"]}"

    def answer(self, reply: Reply, count: int) -> ChunkAnswer:
        scores = scores_by_index(items_with_scores(parse_json(reply.body), "score"), count)
        header = reply.headers.get
        return ChunkAnswer(
            scores,
            tokens=_whole(header("x-compute-tokens")),
            tokenize_ms=_whole(header("x-tokenization-time")),
            queue_ms=_whole(header("x-queue-time")),
            compute_ms=_whole(header("x-inference-time")),
            server_ms=_whole(header("x-total-time")),
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

    async def discover(self, get: Getter) -> Observed | Fault:
        reply = await get("/info")
        if reply.status == 404:
            return Observed()
        if reply.status != 200:
            return self.fault(reply)
        info = object_of(reply)
        kind = info.get("model_type")
        if isinstance(kind, dict) and "reranker" not in kind:
            return Fault(FaultKind.UNUSABLE, "not_a_reranker")
        return Observed(
            model=text_of(info.get("model_id")),
            revision=text_of(info.get("model_sha")),
            dtype=text_of(info.get("model_dtype")),
            version=text_of(info.get("version")),
            max_length=count_of(info.get("max_input_length")),
            max_texts=count_of(info.get("max_client_batch_size")),
            max_in_flight_texts=count_of(info.get("max_concurrent_requests")),
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
