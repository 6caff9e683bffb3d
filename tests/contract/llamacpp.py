"""llama.cpp's server as it answers TEI's request: bodies and limits taken from a running one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from cascade.testing.upstream import FakeServer

__all__ = ["FakeLlamaCpp"]

_JSON = "application/json; charset=utf-8"


@dataclass
class FakeLlamaCpp(FakeServer):
    """Answer ``/rerank`` with ``texts`` as llama.cpp does: raw logits always, no truncation ever.

    ``max_length`` is a slot's context. A pair over ``batch`` tokens is another error with another status.
    """

    batch: int = 2048

    def unauthorized(self) -> httpx.Response:
        return _problem(401, "Invalid API Key", "authentication_error")

    def get(self, path: str) -> httpx.Response:
        return _problem(404, "File Not Found", "not_found_error")

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        query, texts = body["query"], body["texts"]
        longest = max(self.tokens_of(query, text) for text in texts)
        if longest > self.batch:
            return _problem(
                500,
                f"input ({longest} tokens) is too large to process. increase the physical batch size "
                f"(current batch size: {self.batch})",
                "server_error",
            )
        if longest > self.max_length:
            return _problem(
                400,
                f"input ({longest} tokens) is larger than the max context size ({self.max_length} tokens). skipping",
                "exceed_context_size_error",
                n_prompt_tokens=longest,
                n_ctx=self.max_length,
            )
        scores = [self.score_of(query, text) for text in texts]
        ranked = sorted(range(len(texts)), key=lambda index: -scores[index])
        items = [{"index": index, "score": scores[index]} for index in ranked]
        return httpx.Response(200, json=items, headers={"server": "llama.cpp", "content-type": _JSON})


def _problem(status: int, message: str, kind: str, **more: int) -> httpx.Response:
    error = {"code": status, "message": message, "type": kind, **more}
    return httpx.Response(status, json={"error": error}, headers={"server": "llama.cpp", "content-type": _JSON})
