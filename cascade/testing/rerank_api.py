"""Rerank APIs that exist in memory: Infinity, llama.cpp, SGLang, and the hosted ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import httpx

from cascade.testing.upstream import FakeServer

__all__ = ["FakeHosted", "FakeInfinity", "FakeLlamaCpp", "FakeSglang"]

_MODEL = "fake/reranker"
_UNSCORED = -1_000_000.0


def _sigmoid(score: float) -> float:
    return 1 / (1 + math.exp(-score))


def _usage(count: int) -> dict[str, int]:
    return {"prompt_tokens": count, "total_tokens": count}


@dataclass
class _Ranker(FakeServer):
    """What answers in the order of scores; ``shuffled`` in none that tells anything."""

    shuffled: bool = False

    def ranked(self, scores: Sequence[float]) -> list[int]:
        """Return the positions in the order that they are answered in."""
        if self.shuffled:
            return sorted(range(len(scores)), key=lambda index: (index + 1) * 7919 % 1009)
        return sorted(range(len(scores)), key=lambda index: -scores[index])


@dataclass
class FakeInfinity(_Ranker):
    """Infinity 0.0.78: clips without a word, counts characters, and writes null for what is not finite.

    One loaded model answers to any name. ``hangs`` is its worker's death: ``/health`` stays 200.
    """

    models: tuple[str, ...] = (_MODEL,)
    capabilities: tuple[str, ...] = ("rerank",)
    queued: int = 0

    def unauthorized(self) -> httpx.Response:
        return httpx.Response(401, json={"detail": "Unauthorized"}, headers={"www-authenticate": "Bearer"})

    def get(self, path: str) -> httpx.Response:
        if path == "/health":
            return httpx.Response(200, json={"unix": 1.0})
        if path != "/models":
            return httpx.Response(404, json={"detail": "Not Found"})
        stats = {"queue_fraction": 0.0, "queue_absolute": self.queued, "results_pending": 0, "batch_size": 32}
        cards = [
            {"id": name, "stats": stats, "object": "model", "backend": "torch", "capabilities": self.capabilities}
            for name in self.models
        ]
        return httpx.Response(200, json={"data": cards, "object": "list"})

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        if path != "/rerank":
            return httpx.Response(404, json={"detail": "Not Found"})
        query, texts = body["query"].strip(), [text.strip() for text in body["documents"]]
        if not 1 <= len(texts) <= 2048 or max(map(len, [query, *texts])) > 122_880 or body.get("top_n") == 0:
            fault = {"type": "too_long", "loc": ["body", "documents"], "msg": "too long", "input": body["documents"]}
            return httpx.Response(422, json={"detail": [fault]})
        if len(self.models) > 1 and body["model"] not in self.models:
            rule = f"Invalid model: Engine for model name `{body['model']}` not found. Available are {self.models}."
            return self.problem(400, rule)
        if "rerank" not in self.capabilities:
            return self.problem(400, f"ModelNotDeployedError: model=`{body['model']}` does not support `rerank`.")
        scores = [self.score_of(query, text) for text in texts]
        if not body.get("raw_scores", False):
            scores = [_sigmoid(score) for score in scores]
        echo = body.get("return_documents", False)
        results = [
            {
                "relevance_score": scores[index] if math.isfinite(scores[index]) else None,
                "index": index,
                "document": texts[index] if echo else None,
            }
            for index in self.ranked(scores)
        ]
        usage = _usage(len(query) + sum(map(len, texts)))
        return httpx.Response(
            200,
            json={"object": "rerank", "results": results, "model": body["model"], "usage": usage, "id": "infinity-1"},
        )

    def problem(self, status: int, message: str) -> httpx.Response:
        """Answer with Infinity's own error body."""
        error = {"message": message, "type": None, "param": None, "code": status}
        return httpx.Response(status, json={"error": error})


@dataclass
class FakeLlamaCpp(_Ranker):
    """llama.cpp's server: raw logits, no truncation, and TEI's answer to a body with ``texts``.

    ``max_length`` is a slot's context; a pair over ``batch`` tokens is another error with another
    status. While ``loading`` every path is 503. ``unscored`` tells which texts get the sentinel.
    """

    open_paths: ClassVar[frozenset[str]] = frozenset({"/health", "/v1/health", "/models", "/v1/models", "/"})

    batch: int = 2048
    model: str = _MODEL
    loading: bool = False
    reranking: bool = True
    unscored: Callable[[str], bool] = field(default=lambda text: False)

    def unauthorized(self) -> httpx.Response:
        return self.problem(401, "Invalid API Key", "authentication_error")

    def get(self, path: str) -> httpx.Response:
        if self.loading:
            return self.problem(503, "Loading model", "unavailable_error")
        if path == "/props":
            settings = {"params": {}, "n_ctx": self.max_length}
            told = {"default_generation_settings": settings, "model_alias": self.model, "build_info": "b1-7e4c0a9"}
            return httpx.Response(200, json=told)
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": self.model, "meta": {"n_ctx": self.max_length}}]})
        if path == "/metrics":
            hint = "This server does not support metrics endpoint. Start it with `--metrics`"
            return self.problem(501, hint, "not_supported_error")
        return self.problem(404, "File Not Found", "not_found_error")

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        if self.loading:
            return self.problem(503, "Loading model", "unavailable_error")
        if path not in {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"}:
            return self.problem(404, "File Not Found", "not_found_error")
        if not self.reranking:
            hint = "This server does not support reranking. Start it with `--reranking`"
            return self.problem(501, hint, "not_supported_error")
        query, texts = body["query"], body.get("texts", body.get("documents"))
        if fault := self._too_long(max(self.tokens_of(query, text) for text in texts)):
            return fault
        scores = [_UNSCORED if self.unscored(text) else self.score_of(query, text) for text in texts]
        order = self.ranked(scores)
        if "texts" in body:
            return self._said(200, [{"index": index, "score": scores[index]} for index in order])
        results = [{"index": index, "relevance_score": scores[index]} for index in order]
        usage = _usage(sum(self.tokens_of(query, text) for text in texts))
        return self._said(200, {"model": body.get("model"), "object": "list", "usage": usage, "results": results})

    def _too_long(self, longest: int) -> httpx.Response | None:
        if longest > self.batch:
            rule = (
                f"input ({longest} tokens) is too large to process. increase the physical batch size "
                f"(current batch size: {self.batch})"
            )
            return self.problem(500, rule, "server_error")
        if longest > self.max_length:
            rule = f"input ({longest} tokens) is larger than the max context size ({self.max_length} tokens). skipping"
            return self.problem(400, rule, "exceed_context_size_error", n_prompt_tokens=longest, n_ctx=self.max_length)
        return None

    def problem(self, status: int, message: str, kind: str, **more: int) -> httpx.Response:
        """Answer with llama.cpp's error body."""
        return self._said(status, {"error": {"code": status, "message": message, "type": kind, **more}})

    def _said(self, status: int, body: Any) -> httpx.Response:
        headers = {"server": "llama.cpp", "content-type": "application/json; charset=utf-8"}
        return httpx.Response(status, json=body, headers=headers)


@dataclass
class FakeSglang(_Ranker):
    """SGLang 0.5: a bare array of raw logits, and 400 for all where one document is blank or too long."""

    def unauthorized(self) -> httpx.Response:
        return httpx.Response(401, json={"error": "Unauthorized"})

    def get(self, path: str) -> httpx.Response:
        if path != "/v1/models":
            return httpx.Response(404, json={"detail": "Not Found"})
        card = {"id": _MODEL, "object": "model", "root": _MODEL, "max_model_len": self.max_length}
        return httpx.Response(200, json={"object": "list", "data": [card]})

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        if path != "/v1/rerank":
            return httpx.Response(404, json={"detail": "Not Found"})
        query, texts = body["query"], body["documents"]
        if not query.strip() or not texts or not all(text.strip() for text in texts):
            return self.problem(400, f"Each document must be a non-empty string: {texts}")
        longest = max(self.tokens_of(query, text) for text in texts)
        if longest > self.max_length:
            rule = f"The input ({longest} tokens) is longer than the model's context length ({self.max_length} tokens)."
            return self.problem(400, rule)
        scores = [self.score_of(query, text) for text in texts]
        items: list[dict[str, Any]] = [
            {"score": scores[index], "index": index, "meta_info": None} for index in self.ranked(scores)
        ]
        if body.get("return_documents", True):
            for item in items:
                item["document"] = texts[item["index"]]
        return httpx.Response(200, json=items)

    def problem(self, status: int, message: str) -> httpx.Response:
        """Answer with SGLang's flat error body."""
        error = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}
        return httpx.Response(status, json=error)


@dataclass(frozen=True, slots=True)
class _Names:
    """What one hosted API calls things; ``known`` are the fields that it takes."""

    path: str
    documents: str
    items: str
    score: str
    most: int
    known: frozenset[str]


_HOSTED = {
    "cohere": _Names(
        "/v2/rerank", "documents", "results", "relevance_score", 10_000,
        frozenset({"model", "query", "documents", "top_n", "max_tokens_per_doc", "priority"}),
    ),
    "jina": _Names(
        "/v1/rerank", "documents", "results", "relevance_score", 2048,
        frozenset({"model", "query", "documents", "top_n", "return_documents"}),
    ),
    "voyage": _Names(
        "/v1/rerank", "documents", "data", "relevance_score", 1000,
        frozenset({"model", "query", "documents", "top_k", "return_documents", "truncation"}),
    ),
    "mixedbread": _Names(
        "/v1/reranking", "input", "data", "score", 2048,
        frozenset({"model", "query", "input", "rank_fields", "top_k", "return_input", "rewrite_query"}),
    ),
    "nim": _Names(
        "/v1/ranking", "passages", "rankings", "logit", 512, frozenset({"model", "query", "passages", "truncate"})
    ),
}  # fmt: skip


@dataclass
class FakeHosted(_Ranker):
    """A hosted API by its documentation: probabilities, at NVIDIA's NIM logits; fields it does not know are 400.

    None of them takes a blank document here.
    """

    kind: Literal["cohere", "jina", "voyage", "mixedbread", "nim"] = "cohere"
    model: str = _MODEL

    def unauthorized(self) -> httpx.Response:
        return self.problem(401, "invalid api token")

    def get(self, path: str) -> httpx.Response:
        if path == "/v1/models" and self.kind == "nim":
            return httpx.Response(200, json={"object": "list", "data": [{"id": self.model, "object": "model"}]})
        return self.problem(404, "Not Found")

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        names = _HOSTED[self.kind]
        if path != names.path:
            return self.problem(404, "Not Found")
        if body["model"] != self.model:
            return self.problem(404, f"model '{body['model']}' not found, make sure the model ID is correct")
        query, texts = body["query"], body[names.documents]
        if self.kind == "nim":
            query, texts = query["text"], [passage["text"] for passage in texts]
        if body.keys() - names.known or not all(text.strip() for text in texts) or not 1 <= len(texts) <= names.most:
            return self.problem(400, "invalid request: list of documents must not be empty")
        if (
            body.get("truncate", "END") == "NONE"
            and max(self.tokens_of(query, text) for text in texts) > self.max_length
        ):
            return self.problem(400, f"Input length exceeds maximum allowed token size {self.max_length}")
        scores = [self.score_of(query, text) for text in texts]
        if self.kind != "nim":
            scores = [_sigmoid(score) for score in scores]
        items = [{"index": index, names.score: scores[index]} for index in self.ranked(scores)]
        return httpx.Response(200, json={"model": self.model, names.items: items, **self._counted(query, texts)})

    def _counted(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self.kind == "cohere":
            return {"id": "1", "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}}
        return {"usage": _usage(sum(self.tokens_of(query, text) for text in texts))}

    def problem(self, status: int, message: str) -> httpx.Response:
        """Answer with the error body of this API."""
        return httpx.Response(status, json={"message" if self.kind == "cohere" else "detail": message})
