"""Parsers of what servers answer: those of stages, addresses of releases, collectors, Redis, and sidecars that are asked."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx
import orjson

from cascade.cache.packed import Packer
from cascade.cli.rollout_tables import status_view
from cascade.clients.ordering import SidecarError
from cascade.clients.ordering import read_order as read_sidecar
from cascade.errors import ConfigError
from cascade.policy.release import ChatStage, HostedStage
from cascade.rollout.sources.fetching import fetch
from cascade.stages.answers import InvalidAnswer
from cascade.stages.build import wire_of
from cascade.stages.congestion import read_load
from cascade.stages.decoding import BadEncoding, decoded
from cascade.stages.upstream import Reply
from cascade.stages.wire import Wire
from cascade.telemetry.otlp import _refused_in as refused_in
from tests.fuzz.holding import Parser
from tests.fuzz.mutation import CANARY
from tests.server.rollout_desk import FakeDesk
from tests.stages.arrange import api_spec, tei_spec, vllm_spec

__all__ = ["SERVER_PARSERS"]

_BUNDLE_ANSWERS: Final = (
    b'content-type: application/x-tar\ncontent-length: 3\netag: "e2"\n\nabc',
    b"content-type: application/octet-stream; a=b\ncontent-encoding: identity\n\nabc",
)
_STATUS: Final = orjson.dumps(FakeDesk().status())
_ANSWERS: Final[list[Any]] = [
    [{"index": 1, "score": 0.5, "text": CANARY}, {"index": 0, "score": -3.5}],
    {
        "id": "score-1",
        "model": "m",
        "results": [
            {"index": 0, "document": {"text": CANARY}, "relevance_score": 0.5},
            {"index": 1, "relevance_score": 1},
        ],
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
    },
    {
        "data": [{"index": 0, "object": "score", "score": 0.5}, {"index": 1, "score": 0.25}],
        "usage": {"prompt_tokens": 9},
    },
    {"rankings": [{"index": 0, "logit": 0.5}, {"index": 1, "logit": -2.0}], "usage": {"prompt_tokens": 9}},
    {"data": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": 0.1}]},
    {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "<think>a</think>[2] > [1]"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"total_tokens": 90, "prompt_tokens_details": {"cached_tokens": 64}},
    },
    {"choices": [{"index": 0, "message": {"role": "assistant", "content": "[2, 1]"}, "finish_reason": "length"}]},
]
_FAULTS: Final = [
    {"error": CANARY, "error_type": "Validation"},
    {"error": {"message": f"input has 700 tokens, maximum 512: {CANARY}", "type": "BadRequestError", "code": 400}},
    {"detail": [{"loc": ["body"], "msg": CANARY}]},
]
_DISCOVERED: Final = [
    {
        "model_id": "m",
        "model_sha": "abc",
        "model_dtype": "float16",
        "model_type": {"reranker": {"id2label": {"0": "a"}, "label2id": {"a": 0}}},
        "max_concurrent_requests": 512,
        "max_input_length": 512,
        "max_client_batch_size": 32,
        "version": "1.9.3",
    },
    {
        "object": "list",
        "data": [{"id": "m", "max_model_len": 512, "stats": {"queue_absolute": 2, "queue_fraction": 0.1}}],
    },
    {"version": "0.32.0"},
]
_LOAD: Final = (
    b"# HELP te_queue_size The size\n# TYPE te_queue_size gauge\nte_queue_size 3\n",
    (
        b'# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name="m",engine="0"} 2.0 1700000000\n'
        b"vllm:num_requests_running 1.0\n"
    ),
)


def _json(values: list[Any]) -> tuple[bytes, ...]:
    return tuple(map(orjson.dumps, values))


def _wires() -> dict[str, Wire]:
    apis = {name: wire_of(api_spec(name)) for name in ("infinity", "llamacpp", "sglang", "nim")}
    hosted = {name: wire_of(_hosted(name)) for name in ("cohere", "jina", "voyage", "mixedbread")}
    chats = {f"chat, {form}": _chat(form) for form in ("text", "json-schema")}
    return {"tei": wire_of(tei_spec()), "vllm": wire_of(vllm_spec())} | apis | hosted | chats


def _chat(form: str) -> Wire:
    chat = {"adapter": "chat", "url": "http://c.test", "model": "m", "engine": "vllm/0.32", "form": form}
    return wire_of(ChatStage.model_validate(chat))


def _hosted(name: str) -> HostedStage:
    return HostedStage.model_validate({"adapter": name, "url": "http://h.test", "model": "m", "engine": name})


def _read_answer(wire: Wire) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        for status in (400, 413, 422, 500):
            wire.fault(Reply(status, {}, data))
        return wire.answer(Reply(200, {}, data), 2)

    return read


def _discover(wire: Wire) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        async def get(path: str) -> Reply:
            return Reply(200, {}, data)

        return asyncio.run(wire.discover(get))

    return read


def _decode(encoding: str) -> Callable[[bytes], object]:
    def read(data: bytes) -> int:
        async def stream() -> AsyncIterator[bytes]:
            for start in range(0, len(data), 1000):
                yield data[start : start + 1000]

        async def whole() -> int:
            size = 0
            async for part in decoded(stream(), encoding):
                assert len(part) <= 65_536 + 300
                size += len(part)
                if size > 1_000_000:
                    break
            return size

        return asyncio.run(whole())

    return read


def _bundle_answer(data: bytes) -> None:
    """Read the answer of an address of releases: headers, an empty line, a body."""
    head, _, body = data.partition(b"\n\n")
    pairs = (line.partition(b":") for line in head.splitlines())
    headers = [(name.strip(), value.strip()) for name, colon, value in pairs if colon]

    async def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))

    asyncio.run(fetch(httpx.MockTransport(respond), "http://r.test/a.tar", etag='"e"', token=None))


def _status_view(data: bytes) -> None:
    """Show what an admin listener tells, as `cascade rollout status` does."""
    with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):  # told as another version's
        told = orjson.loads(data)
        list(status_view(told, 100))


def _packed(data: bytes) -> float | None:
    score = _PACKER.unpack(b"key", data)
    assert score is None or _PACKER.pack(b"key", score) == data
    return score


_PACKER: Final = Packer(b"0123456789abcdef")

SERVER_PARSERS: Final = (
    *(
        Parser(
            f"answer of a server: {name}",
            _json([*_ANSWERS, *_FAULTS]),
            _read_answer(wire),
            (InvalidAnswer,),
        )
        for name, wire in _wires().items()
    ),
    *(
        Parser(f"discovery of a server: {name}", _json(_DISCOVERED), _discover(wire), ())
        for name, wire in _wires().items()
    ),
    Parser(
        "load of a server, in Prometheus' text", _LOAD, lambda data: read_load(Reply(200, {}, data), 0.0), (), "bytes"
    ),
    Parser("load of a server, in JSON", _json(_DISCOVERED), lambda data: read_load(Reply(200, {}, data), 0.0), ()),
    Parser("gzip of a server", (gzip.compress(b"[1, 2]" * 500),), _decode("gzip"), (BadEncoding,), "bytes"),
    Parser(
        "deflate of a server",
        (zlib.compress(b"[1, 2]" * 500), zlib.compress(b"[1, 2]" * 500)[2:-4]),
        _decode("deflate"),
        (BadEncoding,),
        "bytes",
    ),
    Parser("answer of an address of releases", _BUNDLE_ANSWERS, _bundle_answer, (ConfigError,), "bytes"),
    Parser("answer of an admin listener", (_STATUS,), _status_view, ()),
    Parser(
        "answer of a collector of traces",
        _json([{"partialSuccess": {"rejectedSpans": "3", "errorMessage": CANARY}}]),
        refused_in,
        (),
    ),
    Parser("value of a Redis", (_PACKER.pack(b"key", 0.5),), _packed, (), "bytes"),
    Parser(
        "answer of a sidecar",
        _json(
            [
                {
                    "results": [{"index": 0, "score": 0.5, "stage": "large"}],
                    "decision_id": "d",
                    "release": "r",
                    "degraded": [],
                }
            ]
        ),
        lambda data: read_sidecar(data, 2, 1),
        (SidecarError,),
    ),
)
