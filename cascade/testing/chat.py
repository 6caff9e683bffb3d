"""A chat endpoint in memory that orders passages: right by default, wrong by script."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import orjson

from cascade.testing.upstream import FakeVllmServer

__all__ = ["FakeChat", "passages_of", "written_order"]

_PASSAGE: Final = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)
_QUERY: Final = re.compile(r"^Search query: (.*)$", re.MULTILINE)
_CHARACTERS: Final = 4
_BLOCK: Final = 64
"""Characters of a block of the prefix cache: sixteen tokens of four."""


def passages_of(body: Any) -> list[tuple[int, str]]:
    """Return the passages of a request, each with its number, as a model sees them."""
    return [(int(number), text) for number, text in _PASSAGE.findall(body["messages"][-1]["content"])]


def written_order(numbers: Sequence[int]) -> str:
    """Write an order as the prompt asks for it."""
    return " > ".join(f"[{number}]" for number in numbers)


@dataclass
class FakeChat(FakeVllmServer):
    """vLLM's chat route of 0.32: orders passages by ``score_of``, and writes the order as it was asked for.

    ``writes`` makes another answer of the right order. A prompt has a token for every four characters; with the answer
    it may have ``max_length``. With ``caches`` the blocks of a prompt are kept, and hits are told in ``metrics`` and usage.
    """

    max_length: int = 8192
    model: str = "fake/chat"
    writes: Callable[[list[int]], str | None] | None = None
    finish_reason: str = "stop"
    refusal: str | None = None
    caches: bool = False
    _blocks: set[str] = field(default_factory=set)
    _asked: int = 0
    _hits: int = 0

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        if path != "/v1/chat/completions":
            return httpx.Response(404, json={"detail": "Not Found"})
        if body["model"] != self.model:
            return self.problem(404, f"The model `{body['model']}` does not exist.", "NotFoundError")
        prompt = "".join(message["content"] for message in body["messages"])
        tokens = len(prompt) // _CHARACTERS
        if tokens + body["max_tokens"] > self.max_length:
            return self.too_long(tokens, body["max_tokens"])
        usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": 9, "total_tokens": tokens + 9}
        if self.caches:
            usage["prompt_tokens_details"] = {"cached_tokens": self._cached(prompt, tokens)}
        return self.answer(self.write(body), usage)

    def write(self, body: Any) -> str | None:
        """Return what the model writes."""
        content = body["messages"][-1]["content"]
        found = _QUERY.search(content)
        query = "" if found is None else found[1]
        numbers = [number for number, _ in sorted(passages_of(body), key=lambda one: -self.score_of(query, one[1]))]
        if self.writes is not None:
            return self.writes(numbers)
        return orjson.dumps(numbers).decode() if "response_format" in body else written_order(numbers)

    def answer(self, text: str | None, usage: dict[str, Any] | None = None) -> httpx.Response:
        """Answer with what was written."""
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": self.refusal, "tool_calls": []}
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason, "logprobs": None}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": self.model}
        return httpx.Response(200, json={**head, "choices": [choice], "usage": usage})

    def too_long(self, tokens: int, asked: int) -> httpx.Response:
        """Refuse a prompt that leaves too little room for the answer, in vLLM's words."""
        return self.problem(
            400,
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is "
            f"{self.max_length} tokens and your request has {tokens} input tokens.",
            "BadRequestError",
        )

    def problem(self, status: int, message: str, kind: str) -> httpx.Response:
        """Answer with vLLM's error body."""
        error = {"message": message, "type": kind, "param": None, "code": status}
        return httpx.Response(status, json={"error": error})

    def _cached(self, prompt: str, tokens: int) -> int:
        """Keep the whole blocks of a prompt, and return the tokens of those that were there, from its beginning on."""
        prefixes = [prompt[:end] for end in range(_BLOCK, len(prompt) + 1, _BLOCK)]
        known = 0
        while known < len(prefixes) and prefixes[known] in self._blocks:
            known += 1
        self._blocks.update(prefixes)
        cached = known * _BLOCK // _CHARACTERS
        self._asked += tokens
        self._hits += cached
        self.metrics = (
            "# TYPE vllm:prefix_cache_queries counter\n"
            f'vllm:prefix_cache_queries_total{{engine="0",model_name="{self.model}"}} {self._asked}.0\n'
            "# TYPE vllm:prefix_cache_hits counter\n"
            f'vllm:prefix_cache_hits_total{{engine="0",model_name="{self.model}"}} {self._hits}.0\n'
        )
        return cached
