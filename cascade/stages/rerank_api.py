"""Rerank APIs that differ only in names: Infinity, llama.cpp, SGLang, and the hosted ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from cascade.stages.answers import AnswerFault, InvalidAnswer, items_with_scores, parse_json, scores_by_index
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
    model_cards,
    number_after,
    object_of,
    observed_in,
    text_of,
)

__all__ = ["SHAPES", "ApiShape", "ApiWire"]

_TOO_LONG: Final = (
    re.compile(r"max context size \((\d+) tokens\)"),  # llama.cpp, 400
    re.compile(r"is too large to process.{0,60}batch size: (\d+)", re.DOTALL),  # llama.cpp, 500
    re.compile(r"maximum (?:context|model|input|sequence) length (?:is|of) (\d+)"),
    re.compile(r"max(?:imum)? (?:allowed )?(?:token|sequence) (?:size|length|limit)[^0-9]{0,20}(\d+)"),
    re.compile(r"longer than the model's context length \((\d+) tokens\)"),  # SGLang
)
_GIVEN: Final = re.compile(r"input (?:\(|length )(\d+)", re.IGNORECASE)
_NOT_RERANKER: Final = re.compile(r"does not support .{0,60}rerank", re.IGNORECASE)
_NO_MODEL: Final = re.compile(r"\bmodel\b.{0,300}?\b(?:not found|does not exist)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ApiShape:
    """What one kind of server calls things, and what it takes.

    ``items`` is where the scores are, None where the body itself is the list. ``wrapped`` means that
    query and documents are objects with ``text``. ``raw`` and ``cooked`` are the fields that ask for
    logits and probabilities; ``extra`` goes with every request. ``clip_field`` bounds a document's
    tokens. ``tokens_told`` is false where the server counts something else under that name.
    ``texts`` is how many documents a call holds unless configured, ``most_texts`` and
    ``most_characters`` what is never taken. ``limits_from`` is asked with the key that scoring needs.
    """

    path: str
    score: str
    texts: int
    most_texts: int | None = None
    most_characters: int | None = None
    items: str | None = "results"
    documents: str = "documents"
    wrapped: bool = False
    sends_model: bool = True
    raw: bytes = b""
    cooked: bytes = b""
    extra: bytes = b""
    clip_field: bytes | None = None
    instruction_field: bytes | None = None
    tokens_told: bool = True
    clips: bool = False
    limits_from: str | None = None
    load_from: str | None = None


SHAPES: Final = {
    "infinity": ApiShape(
        "/rerank",
        "relevance_score",
        texts=512,
        most_texts=2048,
        most_characters=122_880,
        raw=b'"raw_scores":true,',
        cooked=b'"raw_scores":false,',
        extra=b'"return_documents":false,',
        clips=True,
        tokens_told=False,  # it counts characters
        limits_from="/models",
        load_from="/models",
    ),
    "llamacpp": ApiShape("/v1/rerank", "relevance_score", texts=64, limits_from="/props", load_from="/metrics"),
    "sglang": ApiShape(
        "/v1/rerank",
        "score",
        texts=64,
        items=None,
        sends_model=False,
        extra=b'"return_documents":false,',
        instruction_field=b'"instruct":%b,',
        limits_from="/v1/models",
        load_from="/metrics",
    ),
    "cohere": ApiShape(
        "/v2/rerank",
        "relevance_score",
        texts=1000,
        most_texts=10_000,
        clip_field=b'"max_tokens_per_doc":%d,',
        clips=True,
    ),
    "jina": ApiShape("/v1/rerank", "relevance_score", texts=512, extra=b'"return_documents":false,', clips=True),
    "voyage": ApiShape(
        "/v1/rerank",
        "relevance_score",
        texts=1000,
        most_texts=1000,
        items="data",
        extra=b'"return_documents":false,"truncation":true,',
        clips=True,
    ),
    "mixedbread": ApiShape(
        "/v1/reranking",
        "score",
        texts=512,
        items="data",
        documents="input",
        extra=b'"return_input":false,',
        clips=True,
    ),
    "nim": ApiShape(
        "/v1/ranking",
        "logit",
        texts=512,
        most_texts=512,
        items="rankings",
        documents="passages",
        wrapped=True,
        extra=b'"truncate":"END",',
        clips=True,
        limits_from="/v1/models",
    ),
}
"""Read at their sources or documentation; hosted ones on the client side only."""


class ApiWire:
    """Speak one of the shapes."""

    def __init__(self, shape: ApiShape, model: str, *, raw_scores: bool) -> None:
        self._shape = shape
        self._model = model
        named = b'"model":' + orjson.dumps(model) + b"," if shape.sends_model else b""
        self._head = b"{" + named + (shape.raw if raw_scores else shape.cooked) + shape.extra
        self.routes: tuple[str, ...] = (shape.path,)
        self.most_texts = shape.most_texts
        self.most_characters = shape.most_characters
        self.texts_by_default = shape.texts
        self.clips = shape.clips
        self.load_route = shape.load_from
        self.takes_instruction = shape.instruction_field is not None

    def request(
        self,
        route: str,
        query: bytes,
        documents: Sequence[bytes],
        *,
        clip_to: Clip | None = None,
        instruction: str | None = None,
    ) -> bytes:
        shape = self._shape
        head = self._head
        if clip_to is not None and shape.clip_field is not None:
            head += shape.clip_field % clip_to.document
        if instruction is not None and shape.instruction_field is not None:
            head += shape.instruction_field % orjson.dumps(instruction)
        if shape.wrapped:
            query = b'{"text":' + query + b"}"
            documents = [b'{"text":' + document + b"}" for document in documents]
        key = shape.documents.encode()
        return head + b'"query":' + query + b',"' + key + b'":[' + b",".join(documents) + b"]}"

    def answer(self, reply: Reply, count: int) -> ChunkAnswer:
        body = parse_json(reply.body)
        if self._shape.items is None:
            return ChunkAnswer(scores_by_index(items_with_scores(body, self._shape.score), count))
        if not isinstance(body, dict):
            raise InvalidAnswer(AnswerFault.WRONG_SHAPE)
        if self._shape.items not in body:
            raise InvalidAnswer(AnswerFault.ERROR_BODY if _tells_error(body) else AnswerFault.WRONG_SHAPE)
        scores = scores_by_index(items_with_scores(body[self._shape.items], self._shape.score), count)
        return ChunkAnswer(scores, tokens=_tokens(body) if self._shape.tokens_told else None)

    def fault(self, reply: Reply) -> Fault:
        message = _message(reply)
        match reply.status:
            case 400 | 413 | 422 | 500 if (limit := _limit_in(message)) is not None:
                return Fault(FaultKind.TOO_LONG, "too_long", limit, number_after(_GIVEN, message))
            case 400 | 501 if _NOT_RERANKER.search(message):
                return Fault(FaultKind.UNUSABLE, "not_a_reranker")
            case 400 | 404 if _NO_MODEL.search(message):
                return Fault(FaultKind.UNUSABLE, "unknown_model")
            case 402:
                return Fault(FaultKind.REFUSED, "payment_required")
            case 413:
                return Fault(FaultKind.TOO_MANY_BYTES, "payload_limit")
            case _:
                return common_fault(reply.status)

    async def discover(self, get: Getter) -> Observed | Fault:
        if self._shape.limits_from is None:
            return Observed()
        reply = await get(self._shape.limits_from)
        if reply.status == 404:
            return Observed()
        if reply.status != 200:
            return self.fault(reply)
        body = object_of(reply)
        if "default_generation_settings" in body:
            return _from_props(body)
        return self._from_cards(model_cards(body))

    def _from_cards(self, cards: Sequence[dict[str, Any]]) -> Observed | Fault:
        """Read a list of models. A server with one model scores with it under any name."""
        card = next((card for card in cards if card.get("id") == self._model), None)
        if card is None and len(cards) > 1 and self._shape.sends_model:
            return Fault(FaultKind.UNUSABLE, "unknown_model")
        card = card or next(iter(cards), {})
        able = card.get("capabilities")
        if isinstance(able, list) and "rerank" not in able:
            return Fault(FaultKind.UNUSABLE, "not_a_reranker")
        return observed_in(card)


def _from_props(body: dict[str, Any]) -> Observed:
    """Read llama.cpp's ``/props``, which asks for the key; its list of models does not."""
    settings = body["default_generation_settings"]
    return Observed(
        model=text_of(body.get("model_alias")),
        version=text_of(body.get("build_info")),
        max_length=count_of(settings.get("n_ctx")) if isinstance(settings, dict) else None,
    )


def _tells_error(body: dict[str, Any]) -> bool:
    return bool(body.keys() & {"error", "message", "detail"}) or body.get("object") == "error"


def _message(reply: Reply) -> str:
    """Return an error's message for matching only, whatever key it is under."""
    body = object_of(reply)
    detail = body.get("detail")
    return error_text(body) or (detail if isinstance(detail, str) else "")


def _limit_in(message: str) -> int | None:
    return next((limit for pattern in _TOO_LONG if (limit := number_after(pattern, message)) is not None), None)


def _tokens(body: dict[str, Any]) -> int | None:
    usage = body.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if type(total) is int and total >= 0 else None
