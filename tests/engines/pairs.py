"""Queries and documents that real servers score, and the scores that they give them when asked directly."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from .servers import Server

__all__ = [
    "BATCHES_DIFFER",
    "OVER_BATCH",
    "OVER_LONG",
    "QUERY",
    "alone_at_infinity",
    "alone_at_llamacpp",
    "alone_at_vllm",
    "documents",
    "status_alone",
]

QUERY: Final = "what do giant panda bears eat in china"
_WORDS: Final = (
    *("panda", "bear", "paris", "capital", "france", "bamboo", "eat", "giant", "native", "china", "the", "of", "and"),
    *("lighthouse", "in", "keeper", "to", "1820", "is", "storm", "that", "for", "lamp", "was", "with", "coast", "by"),
)
OVER_LONG: Final = " ".join(_WORDS[place % 10] for place in range(900))
"""About twice the 512 tokens of both models' limit; every word is one token of micro-ce."""
OVER_BATCH: Final = "of the by in on at " * 500
"""Over the 2048 tokens of llama.cpp's batch, in so few characters that all of them are sent."""

BATCHES_DIFFER: Final = 0.01
"""How far llama.cpp's score of a pair may move with the pairs beside it; 0.0045 was seen, over a range of 1.9."""


def documents(count: int) -> list[str]:
    """Return documents of 1 to 90 words, each unlike the others, with lengths well mixed."""
    return [
        " ".join(_WORDS[(number * 5 + place * place + place) % len(_WORDS)] for place in range(1 + number * 37 % 90))
        + f" {number}"
        for number in range(count)
    ]


def alone_at_vllm(
    server: Server, query: str, texts: Sequence[str], *, use_activation: bool, key: str | None = None
) -> list[float]:
    """Return vLLM's own score of each pair, asked one pair a call and in another spelling than the sidecar's."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=server.base_url, headers=headers, trust_env=False, timeout=60) as client:

        def score(text: str) -> float:
            body = {
                "model": server.model,
                "queries": query,
                "documents": [text],
                "use_activation": use_activation,
            }
            return float(client.post("/v1/score", json=body).raise_for_status().json()["data"][0]["score"])

        return [score(text) for text in texts]


def alone_at_llamacpp(server: Server, query: str, texts: Sequence[str]) -> list[float]:
    """Return llama.cpp's own score of each pair, asked one pair a call and in another shape than the sidecar's."""
    with httpx.Client(base_url=server.base_url, trust_env=False, timeout=60) as client:

        def score(text: str) -> float:
            answer = client.post("/v1/rerank", json={"query": query, "documents": [text]}).raise_for_status()
            return float(answer.json()["results"][0]["relevance_score"])

        return [score(text) for text in texts]


def status_alone(server: Server, path: str, body: Mapping[str, Any]) -> int:
    """Return the status that a server answers a body with when asked directly."""
    return httpx.post(server.base_url + path, json=dict(body), trust_env=False, timeout=60).status_code


def alone_at_infinity(server: Server, query: str, texts: Sequence[str], *, raw_scores: bool = True) -> list[float]:
    """Return Infinity's own score of each pair, asked one pair a call."""
    with httpx.Client(base_url=server.base_url, trust_env=False, timeout=60) as client:

        def score(text: str) -> float:
            body = {"model": server.model, "query": query, "documents": [text], "raw_scores": raw_scores}
            answer = client.post("/rerank", json=body).raise_for_status()
            return float(answer.json()["results"][0]["relevance_score"])

        return [score(text) for text in texts]
