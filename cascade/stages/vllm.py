"""vLLM's score API, of 2025 and now."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from cascade.stages.answers import AnswerFault, InvalidAnswer, items_with_scores, parse_json, scores_by_index
from cascade.stages.base import Observed
from cascade.stages.chunking import Clip
from cascade.stages.upstream import Lost, Reply
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

__all__ = ["VllmWire", "look_at_models"]

_LIMIT: Final = re.compile(r"maximum (?:context|model|input) length (?:is|of) (\d+)")
_GIVEN: Final = re.compile(r"(?:requested|contains|has|least|resulted in|were given|passed) (?:at least )?(\d+)")
_AT_LEAST: Final = re.compile(r"at least \d+")
_NOT_FINITE: Final = re.compile(r"out of range float", re.IGNORECASE)
_NO_MODEL: Final = re.compile(r"model .{0,300} does not exist", re.DOTALL)
_NO_SCORING: Final = re.compile(r"does not support .{0,40}API")


class VllmWire:
    """Speak ``/v1/score``, which keeps input order and echoes nothing, else ``/v1/rerank``.

    Only paths under ``/v1`` are used: the others are open even where the server has a key, so a
    wrong key would go unnoticed. The switch for raw scores had the names ``softmax`` and
    ``activation`` before ``use_activation``; each version ignores the names that it does not know.
    """

    routes: tuple[str, ...] = ("/v1/score", "/v1/rerank")
    texts_by_default = 128
    most_texts: int | None = None
    most_characters: int | None = None
    clips = False
    takes_instruction = True
    load_route: str | None = "/metrics"

    def __init__(self, model: str, *, raw_scores: bool) -> None:
        activate = b"false" if raw_scores else b"true"
        self._head = (
            b'{"model":' + orjson.dumps(model) + b',"use_activation":' + activate + b',"activation":' + activate
        )
        self._model = model

    def request(
        self,
        route: str,
        query: bytes,
        documents: Sequence[bytes],
        *,
        clip_to: Clip | None = None,
        instruction: str | None = None,
    ) -> bytes:
        head = self._head
        if instruction is not None:
            head += b',"instruction":' + orjson.dumps(instruction)
        if clip_to is not None:
            head += b',"max_tokens_per_query":%d,"max_tokens_per_doc":%d' % (clip_to.query, clip_to.document)
        listed = b"[" + b",".join(documents) + b"]}"
        if route == "/v1/score":
            return head + b',"text_1":' + query + b',"text_2":' + listed
        return head + b',"query":' + query + b',"documents":' + listed

    def answer(self, reply: Reply, count: int) -> ChunkAnswer:
        body = parse_json(reply.body)
        if not isinstance(body, dict):
            raise InvalidAnswer(AnswerFault.WRONG_SHAPE)
        if "error" in body or body.get("object") == "error":
            raise InvalidAnswer(AnswerFault.ERROR_BODY)
        items = (
            items_with_scores(body["data"], "score")
            if "data" in body
            else items_with_scores(body.get("results"), "relevance_score")
        )
        usage = body.get("usage")
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
        scores = scores_by_index(((index, _single(score)) for index, score in items), count)
        return ChunkAnswer(scores, tokens=tokens if type(tokens) is int and tokens >= 0 else None)

    def fault(self, reply: Reply) -> Fault:
        message = error_text(object_of(reply))
        match reply.status:
            case 404 if _NO_MODEL.search(message):
                return Fault(FaultKind.UNUSABLE, "unknown_model")
            case 400 | 500 if (limit := number_after(_LIMIT, message)) is not None:
                at_least = _AT_LEAST.search(message) is not None
                return Fault(FaultKind.TOO_LONG, "too_long", limit, number_after(_GIVEN, message), at_least)
            case 400 if _NOT_FINITE.search(message):
                return Fault(FaultKind.BROKEN, "not_finite")
            case 400 | 501 if _NO_SCORING.search(message):
                return Fault(FaultKind.UNUSABLE, "not_a_reranker")
            case 413:
                return Fault(FaultKind.TOO_MANY_BYTES, "payload_limit")
            case _:
                return common_fault(reply.status)

    async def discover(self, get: Getter) -> Observed | Fault:
        return await look_at_models(get, self._model, self.fault)


async def look_at_models(get: Getter, model: str, fault: Callable[[Reply], Fault]) -> Observed | Fault:
    """Read ``/v1/models`` and ``/version`` of a server in vLLM's manner; ``fault`` classifies an error. Raises Lost."""
    reply = await get("/v1/models")
    if reply.status == 404:
        return Observed()
    if reply.status != 200:
        return fault(reply)
    listed = object_of(reply).get("data")
    cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
    card = next((card for card in cards if card.get("id") == model), None)
    if cards and card is None:
        return Fault(FaultKind.UNUSABLE, "unknown_model")
    card = card or {}
    return Observed(
        model=text_of(card.get("root")) or text_of(card.get("id")),
        version=await _version(get),
        max_length=count_of(card.get("max_model_len")),
    )


async def _version(get: Getter) -> str | None:
    """Return the server's version, None where it does not answer: no limit hangs on it."""
    try:
        return text_of(object_of(await get("/version")).get("version"))
    except Lost:
        return None


def _single(score: object) -> object:
    """Unwrap the one-element list that the first release answered with."""
    return score[0] if isinstance(score, list) and len(score) == 1 else score
