"""An OpenAI-compatible chat endpoint that orders a list: one call a list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, assert_never

import orjson

from cascade.policy.stage_specs import BrokenOrder, ChatStage, OrderForm
from cascade.stages.answers import AnswerFault, InvalidAnswer, parse_json
from cascade.stages.base import Observed
from cascade.stages.chunking import Clip
from cascade.stages.list_answers import read_order
from cascade.stages.list_prompt import ListForm
from cascade.stages.upstream import Reply
from cascade.stages.vllm_server import look_at_models, server_fault
from cascade.stages.wire import ChunkAnswer, Fault, FaultKind, Getter, common_fault, error_text, object_of

__all__ = ["ChatWire", "answer_tokens", "prose_bytes"]

_NO_CHAT: Final = re.compile(r"does not support .{0,40}API|chat template", re.IGNORECASE)
_A_PASSAGE: Final = 8
_BESIDE: Final = 16
_BYTES_A_TOKEN: Final = 32
"""Most of them, as JSON, thinking told twice: the longest runs of white space are no answer."""


def answer_tokens(spec: ChatStage, count: int) -> int:
    """Return the most tokens of an answer that orders ``count`` passages."""
    return spec.answer_tokens or _A_PASSAGE * count + _BESIDE


def prose_bytes(spec: ChatStage) -> int:
    """Return the most bytes of an answer as long as a release allows, 0 where it is no longer than its list asks for."""
    return (spec.answer_tokens or 0) * _BYTES_A_TOKEN


class ChatWire:
    """Speak ``/v1/chat/completions``: temperature 0, a seed, one choice, and an end to the answer.

    A list is one text to whatever counts texts. What the server scores by is its place: (n - rank) / n.
    """

    routes: tuple[str, ...] = ("/v1/chat/completions",)
    texts_by_default = 1
    most_texts: int | None = 1
    most_characters: int | None = None
    clips = False
    takes_instruction = True
    load_route: str | None = "/metrics"

    def __init__(self, spec: ChatStage, prompt: ListForm) -> None:
        self._spec = spec
        self._prompt = prompt
        self._as_json = spec.form is OrderForm.JSON_SCHEMA
        self._head = (
            b'{"model":'
            + orjson.dumps(spec.model)
            + b',"temperature":0,"seed":%d,"n":1,"stream":false' % spec.seed
            + _thinking(spec.thinking)
        )

    def request(
        self,
        route: str,
        query: bytes,
        documents: Sequence[bytes],
        *,
        clip_to: Clip | None = None,
        instruction: str | None = None,
    ) -> bytes:
        count = len(documents)
        messages = self._prompt.messages(query, documents, as_json=self._as_json)
        most = b',"max_tokens":%d' % answer_tokens(self._spec, count)
        return self._head + most + _held_to(self._spec.form, count) + b',"messages":' + messages + b"}"

    def answer(self, reply: Reply, count: int) -> ChunkAnswer:
        body = parse_json(reply.body)
        if not isinstance(body, dict):
            raise InvalidAnswer(AnswerFault.WRONG_SHAPE)
        if "choices" not in body:
            raise InvalidAnswer(AnswerFault.ERROR_BODY if "error" in body else AnswerFault.WRONG_SHAPE)
        text, cut = _written(body["choices"])
        mends = self._spec.broken_order is BrokenOrder.REPAIR
        order = read_order(text, count, as_json=self._as_json, mends=mends, cut=cut)
        scores = [0.0] * count
        for rank, position in enumerate(order.positions):
            scores[position] = (count - rank) / count
        tokens, prefix = _usage(body.get("usage"))
        return ChunkAnswer(scores, tokens=tokens, repaired=order.repaired, prefix_tokens=prefix)

    def fault(self, reply: Reply) -> Fault:
        message = error_text(object_of(reply))
        if (known := server_fault(reply.status, message)) is not None:
            return known
        match reply.status:
            case 400 | 501 if _NO_CHAT.search(message):
                return Fault(FaultKind.UNUSABLE, "no_chat")
            case _:
                return common_fault(reply.status)

    async def discover(self, get: Getter) -> Observed | Fault:
        return await look_at_models(get, self._spec.model, self.fault)


def _thinking(asked: bool | None) -> bytes:
    return b"" if asked is None else b',"chat_template_kwargs":' + orjson.dumps({"enable_thinking": asked})


def _held_to(form: OrderForm, count: int) -> bytes:
    """Return the field that holds an answer to the form of an order; that each number comes once it cannot say."""
    match form:
        case OrderForm.TEXT:
            return b""
        case OrderForm.REGEX:
            one = rf"\[({'|'.join(map(str, range(1, count + 1)))})\]"
            regex = one if count == 1 else f"{one}( > {one}){{{count - 1}}}"
            return b',"structured_outputs":' + orjson.dumps({"regex": regex})
        case OrderForm.JSON_SCHEMA:
            items = {"type": "integer", "enum": list(range(1, count + 1))}
            schema = {"type": "array", "items": items, "minItems": count, "maxItems": count}
            asked = {"type": "json_schema", "json_schema": {"name": "order", "schema": schema}}
            return b',"response_format":' + orjson.dumps(asked)
        case _:
            assert_never(form)


def _written(choices: Any) -> tuple[str, bool]:
    """Return what the model wrote as its answer, and whether it was cut short. Raises InvalidAnswer."""
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise InvalidAnswer(AnswerFault.WRONG_SHAPE)
    why = choice.get("finish_reason")
    if message.get("refusal") or why == "content_filter":
        raise InvalidAnswer(AnswerFault.REFUSAL)
    text = message.get("content")
    if text is None:
        raise InvalidAnswer(AnswerFault.NO_ORDER)
    if not isinstance(text, str):
        raise InvalidAnswer(AnswerFault.WRONG_SHAPE)
    return text, why == "length"


def _usage(usage: Any) -> tuple[int | None, int | None]:
    """Return all tokens, of prompt and answer, and those of the prompt that came from the prefix cache."""
    if not isinstance(usage, dict):
        return None, None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return _count(usage.get("total_tokens")), _count(cached)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 10**9 else None
