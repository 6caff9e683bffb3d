"""vLLM's score API, of 2025 and now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import orjson

from cascade.stages.answers import AnswerFault, InvalidAnswer, items_with_scores, parse_json, scores_by_index
from cascade.stages.base import Observed
from cascade.stages.chunking import Clip
from cascade.stages.upstream import Reply
from cascade.stages.vllm_server import look_at_models, server_fault
from cascade.stages.wire import ChunkAnswer, Fault, FaultKind, Getter, common_fault, error_text, object_of

__all__ = ["VllmWire"]

_NOT_FINITE: Final = re.compile(r"out of range float", re.IGNORECASE)
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
        if (known := server_fault(reply.status, message)) is not None:
            return known
        match reply.status:
            case 400 if _NOT_FINITE.search(message):
                return Fault(FaultKind.BROKEN, "not_finite")
            case 400 | 501 if _NO_SCORING.search(message):
                return Fault(FaultKind.UNUSABLE, "not_a_reranker")
            case _:
                return common_fault(reply.status)

    async def discover(self, get: Getter) -> Observed | Fault:
        return await look_at_models(get, self._model, self.fault)


def _single(score: object) -> object:
    """Unwrap the one-element list that the first release answered with."""
    return score[0] if isinstance(score, list) and len(score) == 1 else score
