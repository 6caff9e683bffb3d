"""Reranker servers that exist in memory: right by default, wrong by script."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx
import orjson

__all__ = ["FakeServer", "FakeTei", "FakeVllm", "FakeVllmServer", "Seen", "overlap"]


def overlap(query: str, text: str) -> float:
    """Score a pair by the words it shares, so that expected orders are easy to see; a logit."""
    words = set(query.lower().split())
    return float(len(words & set(text.lower().split()))) - len(text) / 1e6


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that a server saw."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    size: int


@dataclass
class FakeServer(ABC):
    """Answer requests like one server. ``script`` holds what happens to the next requests instead.

    An entry of ``script`` is a response, an exception to raise, or None for a normal answer; it is
    used for POST only. ``delay_ms`` is waited before every POST; one that ``hangs`` is never answered,
    while GET is. ``tokens_of`` counts a pair. ``metrics`` is what ``/metrics`` says, None where the
    server does not offer it. Without the ``key`` only ``open_paths`` are answered.
    """

    open_paths: ClassVar[frozenset[str]] = frozenset({"/health", "/metrics"})

    score_of: Callable[[str, str], float] = overlap
    tokens_of: Callable[[str, str], int] = lambda query, text: len(query.split()) + len(text.split()) + 3
    max_length: int = 512
    delay_ms: float = 0.0
    hangs: bool = False
    key: str | None = None
    metrics: str | None = None
    script: list[httpx.Response | Exception | None] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    cancelled: int = 0

    @property
    def posts(self) -> list[Seen]:
        """Return the scoring requests seen."""
        return [seen for seen in self.seen if seen.method == "POST"]

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        """Handle a request, as ``httpx.MockTransport`` and respx want it."""
        content = await request.aread()
        body = orjson.loads(content) if content else None
        self.seen.append(Seen(request.method, request.url.path, dict(request.headers), body, len(content)))
        path = request.url.path
        keyless = self.key is None or path in self.open_paths
        if not keyless and request.headers.get("authorization") != f"Bearer {self.key}":
            return self.unauthorized()
        if request.method != "POST":
            told = self.metrics if path == "/metrics" else None
            return self.get(path) if told is None else httpx.Response(200, text=told)
        try:
            await asyncio.sleep(self.delay_ms / 1000)
            if self.hangs:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        scripted = self.script.pop(0) if self.script else None
        if isinstance(scripted, Exception):
            raise scripted
        return scripted if scripted is not None else self.post(path, body, len(content))

    @abstractmethod
    def unauthorized(self) -> httpx.Response:
        """Answer a request without the key."""

    @abstractmethod
    def get(self, path: str) -> httpx.Response:
        """Answer GET."""

    @abstractmethod
    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        """Answer a scoring request."""


@dataclass
class FakeTei(FakeServer):
    """Text Embeddings Inference of a version: "1.7", "1.8" or "1.9" (they differ in statuses and defaults)."""

    version: str = "1.9"
    max_client_batch_size: int = 32
    max_concurrent_requests: int = 512
    payload_limit: int = 2_000_000
    truncates: bool = True
    has_info: bool = True
    model_type: str = "reranker"

    def unauthorized(self) -> httpx.Response:
        return httpx.Response(401)

    def get(self, path: str) -> httpx.Response:
        if path != "/info" or not self.has_info:
            return httpx.Response(404)
        info = {
            "model_id": "fake/reranker",
            "model_sha": None,
            "model_dtype": "float16",
            "model_type": {self.model_type: {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
            "max_concurrent_requests": self.max_concurrent_requests,
            "max_input_length": self.max_length,
            "max_batch_tokens": 16384,
            "max_client_batch_size": self.max_client_batch_size,
            "auto_truncate": self.version >= "1.9",
            "version": f"{self.version}.0",
        }
        if self.version >= "1.9":
            info["served_model_name"] = "fake/reranker"
        return httpx.Response(200, json=info)

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        if path != "/rerank":
            return httpx.Response(404)
        if fault := self.unreadable(body, size):
            return fault
        query, texts = body["query"], body["texts"]
        if not texts:
            return self.problem(400, "`texts` cannot be empty", "Empty")
        if len(texts) > self.max_client_batch_size:
            rule = f"batch size {len(texts)} > maximum allowed batch size {self.max_client_batch_size}"
            return self.problem(self.validation_status, rule, "Validation")
        lengths = [self.tokens_of(query, text) for text in texts]
        clips = self.truncates and body.get("truncate", self.version >= "1.9")
        if not clips and max(lengths) > self.max_length:
            rule = f"`inputs` must have less than {self.max_length} tokens. Given: {max(lengths)}"
            return self.problem(self.validation_status, rule, "Validation")
        scores = [self.score_of(query, text) for text in texts]
        if not body.get("raw_scores", False):
            scores = [1 / (1 + math.exp(-score)) for score in scores]
        ranked = sorted(range(len(texts)), key=lambda index: (scores[index], index), reverse=True)
        tokens = sum(min(length, self.max_length) for length in lengths)
        headers = {
            "x-compute-tokens": str(tokens),
            "x-queue-time": "3",
            "x-tokenization-time": "1",
            "x-inference-time": "7",
            "x-total-time": "12",
        }
        return httpx.Response(200, json=[{"index": i, "score": scores[i]} for i in ranked], headers=headers)

    def unreadable(self, body: Any, size: int) -> httpx.Response | None:
        """Refuse in plain text what the framework refuses: large bodies, and types such as "right" before 1.9.0."""
        if size > self.payload_limit:
            return httpx.Response(413, text="Failed to buffer the request body: length limit exceeded")
        known = {"Left", "Right"} | ({"left", "right"} if self.version >= "1.9" else set())
        if body.get("truncation_direction", "Right") not in known:
            return httpx.Response(422, text="Failed to deserialize the JSON body into the target type")
        return None

    @property
    def validation_status(self) -> int:
        """Return the status of a validation fault: it changed with 1.9.0."""
        return 422 if self.version >= "1.9" else 413

    def problem(self, status: int, message: str, kind: str) -> httpx.Response:
        """Answer with TEI's error body."""
        return httpx.Response(status, json={"error": message, "error_type": kind})


@dataclass
class FakeVllmServer(FakeServer):
    """What a vLLM server answers whichever of its routes is spoken: its version, its model, and a missing key."""

    open_paths: ClassVar[frozenset[str]] = frozenset({"/health", "/metrics", "/version"})

    model: str = "fake/reranker"

    def unauthorized(self) -> httpx.Response:
        return httpx.Response(401, json={"error": "Unauthorized"})

    def get(self, path: str) -> httpx.Response:
        if path == "/version":
            return httpx.Response(200, json={"version": "0.32.0"})
        if path != "/v1/models":
            return httpx.Response(404, json={"detail": "Not Found"})
        card = {"id": self.model, "object": "model", "root": self.model, "max_model_len": self.max_length}
        return httpx.Response(200, json={"object": "list", "data": [card]})


@dataclass
class FakeVllm(FakeVllmServer):
    """vLLM: "now" (0.32), "2025" (flat errors, ``activation``) or "2024" (``score`` as a list, no /v1/rerank)."""

    version: str = "now"
    has_score_route: bool = True

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        if path == "/v1/score" and self.has_score_route:
            query, texts = body["text_1"], body["text_2"]
        elif path == "/v1/rerank" and self.version != "2024":
            query, texts = body["query"], body["documents"]
        else:
            return httpx.Response(404, json={"detail": "Not Found"})
        if body.get("model") not in (None, self.model):
            return self.problem(404, f"The model `{body['model']}` does not exist.", "NotFoundError")
        if not texts:
            return self.problem(400, "At least one text_pair element must be given", "BadRequestError")
        if fault := self.too_long(query, texts, body):
            return fault
        scores = [self.score_of(query, text) for text in texts]
        switch = "use_activation" if self.version == "now" else "activation"
        if self.version == "2024" or body.get(switch) is not False:
            scores = [1 / (1 + math.exp(-score)) for score in scores]
        if not all(map(math.isfinite, scores)):
            return self.problem(400, "Out of range float values are not JSON compliant", "BadRequestError")
        return self.answer(path, query, texts, scores)

    def too_long(self, query: str, texts: list[str], body: Any) -> httpx.Response | None:
        """Refuse a pair over the limit, unless the server is asked to clip documents and can."""
        if self.version == "now" and "max_tokens_per_doc" in body:
            return None
        longest = max(self.tokens_of(query, text) for text in texts)
        if longest <= self.max_length:
            return None
        return self.problem(
            400,
            f"This model's maximum context length is {self.max_length} tokens. However, your prompt contains at least "
            f"{self.max_length + 1} input tokens. (parameter=input_tokens, value={self.max_length + 1})",
            "BadRequestError",
        )

    def answer(self, path: str, query: str, texts: list[str], scores: list[float]) -> httpx.Response:
        """Answer with scores, in input order or ranked, as the route does."""
        tokens = sum(self.tokens_of(query, text) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens} if self.version == "now" else {"total_tokens": tokens}
        head = {"id": "score-1", "model": self.model, "usage": usage}
        if path == "/v1/score":
            shown: list[Any] = [[score] for score in scores] if self.version == "2024" else list(scores)
            data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(shown)]
            return httpx.Response(200, json={**head, "object": "list", "created": 1, "data": data})
        ranked = sorted(range(len(texts)), key=lambda index: -scores[index])
        results = [
            {"index": i, "document": {"text": texts[i], "multi_modal": None}, "relevance_score": scores[i]}
            for i in ranked
        ]
        return httpx.Response(200, json={**head, "results": results})

    def problem(self, status: int, message: str, kind: str) -> httpx.Response:
        """Answer with vLLM's error body: nested now, flat before."""
        error = {"message": message, "type": kind, "param": None, "code": status}
        return httpx.Response(status, json={"error": error} if self.version == "now" else {"object": "error", **error})
