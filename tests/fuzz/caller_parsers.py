"""Parsers of what callers and operators send to the listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import orjson
from pydantic import BaseModel

from cascade.errors import RequestError
from cascade.server.dialects.base import DialectFormat
from cascade.server.dialects.infinity import InfinityFormat
from cascade.server.dialects.native import NativeFormat
from cascade.server.dialects.tei import TeiFormat
from cascade.server.dialects.vllm import VllmFormat
from cascade.server.dialects.vllm_score import VllmScoreFormat
from cascade.server.http import as_json, client_request_id, deadline_from, fail_closed_from, validate
from cascade.server.keys import hash_of, presented_key
from cascade.server.rollout_asked import AskedAbort, AskedPromotion, AskedStart
from cascade.telemetry.w3c import baggage_of, parent_of
from tests.fuzz.holding import Parser
from tests.fuzz.mutation import CANARY
from tests.fuzz.on_the_wire import read_off_the_wire

__all__ = ["CALLER_PARSERS"]

_MOST: Final = 100
_BODIES: Final[dict[str, tuple[DialectFormat, list[dict[str, Any]]]]] = {
    "native": (
        NativeFormat(),
        [
            {
                "query": CANARY,
                "candidates": [
                    {"id": "d1", "text": CANARY, "scores": {"bm25": 12.3, "dense": 0.71}},
                    {"id": "d2", "text": "b", "scores": {"bm25": None}},
                ],
                "top_n": 1,
                "deadline_ms": 90,
                "tenant": "acme",
                "priority": 0,
                "explain": True,
            }
        ],
    ),
    "tei": (
        TeiFormat(),
        [
            {
                "query": CANARY,
                "texts": [CANARY, "b"],
                "raw_scores": True,
                "return_text": True,
                "truncate": True,
                "first_stage": {"bm25": [1.0, None]},
            }
        ],
    ),
    "vllm 1": (
        VllmFormat("1"),
        [{"model": "m", "query": CANARY, "documents": [CANARY, {"text": "b"}], "top_n": 1, "return_documents": True}],
    ),
    "vllm 2": (
        VllmFormat("2"),
        [
            {
                "model": "m",
                "query": {"content": [{"type": "text", "text": CANARY}]},
                "documents": {"content": [{"type": "text", "text": CANARY}]},
                "use_activation": False,
                "instruction": CANARY,
                "truncate_prompt_tokens": 10,
            }
        ],
    ),
    "infinity": (
        InfinityFormat(),
        [{"model": "m", "query": CANARY, "documents": [CANARY, "b"], "raw_scores": False, "top_n": 2}],
    ),
    "vllm-score": (
        VllmScoreFormat(),
        [
            {"text_1": CANARY, "text_2": [CANARY, "b"]},
            {"queries": [CANARY, "b"], "items": ["a", CANARY]},
            {"data_1": CANARY, "data_2": "b"},
        ],
    ),
}
_HEADERS: Final = (
    b"x-request-timeout-ms: 90\nx-cascade-fail-closed: true\nx-request-id: abc-1\nauthorization: Bearer csk_abc",
    b"x-envoy-expected-rq-timeout-ms: 600000\nx-api-key: csk_abc\nauthorization: csk_abc",
    b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\ntracestate: a=1,b@c=2\nbaggage: k=v;p=1,l=w",
)
_HEADS: Final = (
    b"POST /rerank?a=b HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\nbody",
    b"POST /%41 HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\ntrailer: 1\r\n\r\n",
    b"GET http://h/ HTTP/1.0\r\nconnection: keep-alive\r\n\r\nGET / HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
)


def _json(values: list[Any]) -> tuple[bytes, ...]:
    return tuple(map(orjson.dumps, values))


def _headers(data: bytes) -> None:
    pairs = (line.partition(":") for line in data.decode("latin-1").splitlines())
    headers: Mapping[str, str] = {name.strip().lower(): value.strip() for name, _, value in pairs}
    shown = presented_key(headers)
    if shown is not None:
        hash_of(shown)
    client_request_id(headers)
    parent_of([headers.get("traceparent", "")], [headers.get("tracestate", "")])
    baggage_of([headers.get("baggage", "")])
    fail_closed_from(headers)
    deadline_from(headers)


def _parsed(fmt: DialectFormat, data: bytes) -> object:
    return fmt.parse(as_json(data), {}, _MOST)


def _validated(model: type[BaseModel], data: bytes) -> object:
    return validate(model, as_json(data))


def _head(data: bytes) -> None:
    """Read a request off the wire, in two pieces; whatever comes, the connection ends or waits for more."""
    asyncio.run(read_off_the_wire(data))


CALLER_PARSERS: Final = (
    *(
        Parser(
            f"request body: {name}",
            _json(bodies),
            partial(_parsed, fmt),
            (RequestError,),
            names_keys=True,
        )
        for name, (fmt, bodies) in _BODIES.items()
    ),
    Parser("head of a request", _HEADS, _head, (), "bytes"),
    Parser("request headers", _HEADERS, _headers, (RequestError,), "bytes"),
    *(
        Parser(
            f"admin body: {model.__name__}",
            _json([example]),
            partial(_validated, model),
            (RequestError,),
            names_keys=True,
        )
        for model, example in (
            (AskedStart, {"release": "r1", "at_once": True, "lenient": False}),
            (AskedPromotion, {"force": True}),
            (AskedAbort, {"reason": CANARY}),
        )
    ),
)
