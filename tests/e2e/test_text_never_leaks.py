"""Text of a request appears nowhere but in documents that the caller asked to have repeated."""

from __future__ import annotations

import asyncio
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import aiohttp
import httpx
import orjson
import pydantic
import pytest

from cascade.errors import (
    StageError,
    StageInvalidAnswer,
    StageOverloaded,
    StageRefused,
    StageTimeout,
    StageUnreachable,
)
from cascade.policy.release import TeiStage, VllmStage
from cascade.stages.base import Stage
from cascade.stages.http import HttpReranker
from cascade.stages.tei import TeiWire
from cascade.stages.upstream import Upstream
from cascade.stages.vllm import VllmWire
from cascade.stages.wire import Wire
from cascade.telemetry.logs import configure_logging
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm
from cascade.types import StageName
from tests.logs import logging_given_back
from tests.server.sidecar import BODIES, ROUTES, Sidecar, sidecar

_CANARY: Final = "kingfisher über 7f3a"
_TRACES: Final = (b"kingfisher", b"7f3a", b"KINGFISHER")
_ALL: Final = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths]
_TEXTS: Final = [f"{_CANARY} {number}" for number in range(4)]
_HEADERS: Final = {
    "authorization": "Bearer kingfisher",
    "cookie": "kingfisher=7f3a",
    "user-agent": "kingfisher/1",
    "x-request-id": "kingfisher 7f3a",
    "traceparent": "00-kingfisher-7f3a-01",
    "content-type": "application/kingfisher",
    "x-cascade-fail-closed": "0",
    "referer": "http://kingfisher.test/",
}


@dataclass(slots=True)
class Sinks:
    """Everything that leaves the process while a test runs."""

    log: io.BytesIO
    capture: pytest.CaptureFixture[str]
    told: list[warnings.WarningMessage]
    answers: list[bytes] = field(default_factory=list)

    def keep(self, response: httpx.Response) -> None:
        """Remember an answer, its headers too."""
        self.answers.append(repr(response.headers.raw).encode() + response.content)

    async def ask(self, served: Sidecar, path: str, body: Any, **headers: str) -> httpx.Response:
        """Post, and keep the answer with what the admin listener tells after it."""
        response = await served.post(path, body, {**_HEADERS, **headers})
        self.keep(response)
        for admin_path in ("/metrics", "/status"):
            self.keep(await served.admin.get(admin_path))
        return response

    def everything(self) -> bytes:
        """Return all of it in one piece."""
        printed = self.capture.readouterr()
        warned = [str(warning) for warning in self.told]
        parts = [self.log.getvalue(), printed.out.encode(), printed.err.encode(), *self.answers]
        return b"\n".join([*parts, *(text.encode() for text in warned)])


@pytest.fixture
def sinks(capfd: pytest.CaptureFixture[str]) -> Iterator[Sinks]:
    """Log at DEBUG to a buffer, catch what is printed or warned, and hold all of it against the canary at the end."""
    stream = io.BytesIO()
    with logging_given_back(), warnings.catch_warnings(record=True) as told:
        configure_logging("debug", stream)
        warnings.simplefilter("always")
        found = Sinks(stream, capfd, told)
        yield found
    everything = found.everything()
    assert len(everything) > 1000  # something was said at all
    for trace in _TRACES:
        assert trace not in everything


def _http_stage(server: FakeServer) -> HttpReranker:
    common = {"url": "http://upstream.test", "engine": "e", "model": "fake/reranker"}
    wire: Wire
    spec: TeiStage | VllmStage
    if isinstance(server, FakeTei):
        spec, wire = TeiStage.model_validate({**common, "adapter": "tei"}), TeiWire(raw_scores=True)
    else:
        spec = VllmStage.model_validate({**common, "adapter": "vllm"})
        wire = VllmWire(spec.model, raw_scores=True)
    upstream = Upstream(spec.url, httpx.MockTransport(server), "kingfisher-token", connect_ms=spec.connect_ms)
    return HttpReranker("stage", spec, wire, upstream, asyncio.get_running_loop().time)


def _cascade(small: Stage, large: Stage) -> Sidecar:
    return sidecar(stages={StageName.SMALL: small, StageName.LARGE: large})


def _pydantic_error() -> Exception:
    """Return an error whose text holds the input, as pydantic writes it."""
    try:
        pydantic.TypeAdapter(int).validate_python(_CANARY)
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


_FAILURES: Final[list[type[StageError] | Exception]] = [
    StageTimeout,
    StageUnreachable,
    StageOverloaded,
    StageRefused,
    StageInvalidAnswer,
    RuntimeError(_CANARY),
    KeyError(_CANARY),
    TimeoutError(_CANARY),
    OSError(_CANARY),
    ExceptionGroup(_CANARY, [ValueError(_CANARY)]),
    httpx.ReadTimeout(_CANARY),
    UnicodeEncodeError("utf-8", _CANARY, 0, 1, _CANARY),
    _pydantic_error(),
]

Reply = Callable[[], httpx.Response | Exception]


def _replies() -> dict[str, Reply]:
    """Return every way in which an upstream answers wrongly, each repeating the documents."""
    echo = " ".join(_TEXTS)
    bodies: dict[str, Any] = {
        "tei": {"error": echo, "error_type": "Validation"},
        "too-long": {"error": f"`inputs` must have less than 8 tokens. Given: 999 {echo}", "error_type": "Validation"},
        "vllm": {"error": {"message": echo, "type": "BadRequestError", "param": echo, "code": 400}},
        "flat": {"object": "error", "message": f"maximum context length is 8 tokens, has 999: {echo}"},
        "detail": {"detail": [{"input": echo, "msg": echo}]},
    }
    headers = {"location": "http://kingfisher.test/7f3a", "x-kingfisher": "7f3a"}
    replies: dict[str, Reply] = {}
    for status in (301, 302, 400, 401, 403, 404, 405, 413, 422, 424, 429, 500, 502, 503, 504):
        for kind, body in bodies.items():
            replies[f"{status} {kind}"] = partial(httpx.Response, status, json=body, headers=headers)
        replies[f"{status} text"] = partial(httpx.Response, status, text=echo)
    wrong: dict[str, Any] = {
        **bodies,
        "string": echo,
        "list of texts": _TEXTS,
        "scores that are texts": [{"index": 0, "score": echo}],
        "index that is a text": [{"index": echo, "score": 1.0}],
        "results that are texts": {"results": [{"index": 0, "relevance_score": echo, "document": {"text": echo}}]},
        "data that is text": {"data": [{"index": 0, "score": [echo]}]},
        "too few": [{"index": 0, "score": 1.0, "text": echo}],
    }
    for kind, body in wrong.items():
        replies[f"200 {kind}"] = partial(httpx.Response, 200, json=body)
    replies["200 not JSON"] = partial(httpx.Response, 200, text=f"{{{echo}")
    replies["200 huge"] = partial(httpx.Response, 200, content=echo.encode() * 10_000)
    kinds: list[Callable[[str], Exception]] = [
        httpx.ConnectError,
        httpx.ReadError,
        httpx.RemoteProtocolError,
        httpx.PoolTimeout,
        aiohttp.ClientPayloadError,
        ConnectionResetError,
        RuntimeError,
    ]
    for error in kinds:
        replies[repr(error)] = partial(error, echo)
    return replies


_REPLIES: Final = _replies()


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_g1_good_requests_leak_nothing(sinks: Sinks, dialect: str, path: str) -> None:
    """A request that is answered in full by real adapters leaves no text behind."""
    served = _cascade(_http_stage(FakeTei()), _http_stage(FakeVllm()))
    response = await sinks.ask(served, path, BODIES[dialect](_CANARY, _TEXTS))
    assert response.status_code == 200
    assert response.headers["x-cascade-stage"] == "large"


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_g1_a9_failing_stages_leak_nothing(sinks: Sinks, dialect: str, path: str) -> None:
    """No stage error and no unexpected exception carries text into the answer, the log or the metrics."""
    assert all("kingfisher" in str(fault) for fault in _FAILURES if isinstance(fault, Exception))
    asyncio.get_running_loop().set_debug(True)
    for fault in _FAILURES:
        failing = ScriptedStage(lambda query, text: 0.0, fails=fault)
        served = _cascade(failing, failing)
        response = await sinks.ask(served, path, BODIES[dialect](_CANARY, _TEXTS))
        assert response.status_code == 200
        assert response.headers["x-cascade-degraded"]
        closed = await sinks.ask(served, path, BODIES[dialect](_CANARY, _TEXTS), **{"x-cascade-fail-closed": "1"})
        assert closed.status_code == 503


@pytest.mark.parametrize("kind", [FakeTei, FakeVllm])
@pytest.mark.parametrize("name", _REPLIES)
async def test_g1_g2_upstreams_that_repeat_their_input_leak_nothing(
    sinks: Sinks, kind: type[FakeTei | FakeVllm], name: str
) -> None:
    """An upstream's error text, headers and garbage stay with the adapter, as does the caller's request id."""
    server = kind()
    server.script = [_REPLIES[name]() for _ in range(40)]
    served = _cascade(_http_stage(kind()), _http_stage(server))
    body = {**BODIES["native"](_CANARY, _TEXTS), "explain": True}
    response = await sinks.ask(served, "/v1/cascade/rerank", body)
    assert response.status_code == 200
    assert response.json()["degraded"]
    sent = b"".join(repr(seen.headers).encode() for seen in server.posts)
    assert sent
    assert b"kingfisher-7f3a" not in sent


@pytest.mark.parametrize("kind", [FakeTei, FakeVllm])
@pytest.mark.parametrize("status", [401, 404, 500])
async def test_g1_discovery_that_fails_leaks_nothing(sinks: Sinks, kind: type[FakeTei | FakeVllm], status: int) -> None:
    """A server that answers the first look with an error and its key leaves neither in the log."""

    class Odd(kind):  # type: ignore[misc, valid-type]
        def get(self, path: str) -> httpx.Response:
            return httpx.Response(status, json={"error": _CANARY, "model_id": _CANARY})

    stage = _http_stage(Odd())
    asking = asyncio.create_task(stage.start())
    await asyncio.sleep(0)
    await sinks.ask(_cascade(stage, stage), "/rerank", BODIES["tei"](_CANARY, _TEXTS))
    asking.cancel()
    await stage.aclose()


def _refused(dialect: str) -> list[bytes]:
    """Return bodies that a dialect refuses, with text in every place that an error could quote."""
    good = BODIES[dialect](_CANARY, _TEXTS)
    whole = orjson.dumps(good)
    query_field, list_field = list(good)
    wrong: list[Any] = [
        _CANARY,
        [_CANARY],
        {**good, query_field: [_CANARY, {_CANARY: _CANARY}]},
        {**good, query_field: {_CANARY: _CANARY}},
        {**good, list_field: {_CANARY: [_CANARY]}},
        {**good, list_field: [_CANARY, [_CANARY]]},
        {**good, list_field: [{_CANARY: _CANARY}]},
        {**good, list_field: _TEXTS * 1000},
        {_CANARY: _CANARY},
    ]
    if dialect == "native":
        wrong += [
            {**good, _CANARY: _CANARY},
            {**good, "top_n": _CANARY},
            {**good, "tenant": _CANARY},
            {**good, "deadline_ms": _CANARY},
            {**good, "candidates": [{"text": "a", "scores": {_CANARY: _CANARY}}]},
            {**good, "candidates": [{"text": "a", "scores": {_CANARY * 9: 1.0}}]},
            {**good, "candidates": [{"text": "a", "id": _CANARY}, {"text": "b", "id": _CANARY}]},
            {**good, "candidates": [{"text": "a", _CANARY: _CANARY}]},
        ]
    elif dialect == "tei":
        wrong += [{**good, name: _CANARY} for name in ("truncate", "truncation_direction", "raw_scores", "return_text")]
    else:
        wrong += [{**good, name: [_CANARY]} for name in ("use_activation", "model")]
    if dialect != "native":
        wrong += [
            {**good, "first_stage": _CANARY},
            {**good, "first_stage": {_CANARY: _CANARY}},
            {**good, "first_stage": {_CANARY: [1.0] * len(_TEXTS)}},
            {**good, "first_stage": {_CANARY: [1.0] * 100_000}},
            {**good, "first_stage": {"bm25": [_CANARY] * len(_TEXTS)}},
        ]
    return [whole[:-1], whole.replace(b"7f3a", b"\xff"), whole.replace(b"7f3a", b"\\ud800"), *map(orjson.dumps, wrong)]


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_g1_g2_refusals_leak_nothing(sinks: Sinks, dialect: str, path: str) -> None:
    """No error body quotes what was sent, wherever in the body it stood."""
    served = _cascade(ScriptedStage(lambda q, t: 0.0), ScriptedStage(lambda q, t: 0.0))
    for body in _refused(dialect):
        assert (await sinks.ask(served, path, body)).status_code in (400, 413, 422)
    good = BODIES[dialect](_CANARY, _TEXTS)
    for name in ("x-request-timeout-ms", "x-envoy-expected-rq-timeout-ms", "content-encoding"):
        assert (await sinks.ask(served, path, good, **{name: "kingfisher"})).status_code in (400, 415, 422)


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_g1_a_fault_of_ours_leaks_nothing(sinks: Sinks, dialect: str, path: str) -> None:
    """The 500 for an exception nobody caught says nothing of the request or of the exception."""

    def broken() -> float:
        raise RuntimeError(_CANARY)

    served = sidecar()
    served.service.clock = broken
    assert (await sinks.ask(served, path, BODIES[dialect](_CANARY, _TEXTS))).status_code == 500
    sinks.keep(await served.public.get(path))
    sinks.keep(await served.public.get("/nowhere"))


@pytest.mark.usefixtures("sinks")
@pytest.mark.parametrize("name", ["httpx", "aiohttp.client", "asyncio", "uvicorn.error", "uvicorn.access", "any.other"])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING, logging.CRITICAL])
def test_g1_what_libraries_log_is_cut_to_their_name(sinks: Sinks, name: str, level: int) -> None:
    """Messages, arguments and tracebacks of other loggers are dropped; the logger and the kind of exception stay."""
    sinks.answers.append(b" " * 1000)
    try:
        raise ValueError(_CANARY)
    except ValueError as error:
        logging.getLogger(name).log(level, "%s", _CANARY, exc_info=error, stack_info=True, extra={"text": _CANARY})
    lines = [orjson.loads(line) for line in sinks.log.getvalue().splitlines()]
    if level >= logging.WARNING or name == "any.other":
        assert [(line["event"], line["logger"], line["exception"]) for line in lines] == [
            ("library", name, "ValueError")
        ]


async def test_g1_a_task_that_nobody_awaited_is_cut_to_its_name(sinks: Sinks) -> None:
    """What the event loop says of a lost exception holds no text of it."""
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": _CANARY, "exception": RuntimeError(_CANARY)})
    sinks.answers.append(b" " * 1000)
    (line,) = [orjson.loads(line) for line in sinks.log.getvalue().splitlines()]
    assert (line["logger"], line["exception"]) == ("asyncio", "RuntimeError")


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/rerank", {**BODIES["tei"](_CANARY, _TEXTS), "return_text": True}, "text"),
        ("/v1/rerank", {**BODIES["vllm"](_CANARY, _TEXTS), "return_documents": True}, "document"),
    ],
)
async def test_g1_documents_asked_for_are_the_only_text_in_an_answer(
    sinks: Sinks, path: str, body: dict[str, Any], key: str
) -> None:
    """What is repeated is each index's own document; without it the answer holds no text."""
    served = sidecar()
    response = await served.post(path, body, _HEADERS)
    answer = response.json()
    for item in answer if isinstance(answer, list) else [*answer["results"], *answer["data"]]:
        echoed = item.pop(key)
        assert (echoed if key == "text" else echoed["text"]) == _TEXTS[item["index"]]
    sinks.answers.append(orjson.dumps(answer) + repr(response.headers.raw).encode())
    sinks.keep(await served.admin.get("/metrics"))


async def test_ids_and_channel_names_stay_between_caller_and_answer(sinks: Sinks) -> None:
    """Ids come back at their own places alone; channel names and first-stage scores come back nowhere."""
    ids = [f"kingfisher-{number}" for number in range(3)]
    candidates = [
        {"text": text, "id": name, "scores": {"kingfisher": 7.25}} for text, name in zip(_TEXTS, ids, strict=False)
    ]
    served = sidecar()
    response = await served.post("/v1/cascade/rerank", {"query": _CANARY, "candidates": candidates, "explain": True})
    answer = response.json()
    for item in answer["results"]:
        assert item.pop("id") == ids[item["index"]]
    assert b"7.25" not in orjson.dumps(answer)
    sinks.answers.append(orjson.dumps(answer))
    sinks.keep(await served.admin.get("/metrics"))
    assert b"7.25" not in sinks.log.getvalue()
