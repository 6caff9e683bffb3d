"""The real process with a listwise large stage: every dialect, every fault of the chat server, and a client that leaves."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pytest

from cascade.testing.chat import FakeChat, passages_of, written_order
from cascade.testing.upstream import FakeTei
from tests.e2e.processes import Process, listening, serving, write_yaml
from tests.server.sidecar import BODIES

_PATHS: Final = {"native": "/v1/cascade/rerank", "tei": "/rerank", "vllm": "/v1/rerank", "vllm-score": "/v1/score"}
_TEXTS: Final = [f"{'owl ' * number}moth" for number in range(5)]
_SMALL_ORDER: Final = [4, 3, 2, 1, 0]
_ORDER: Final = [2, 3, 4, 1, 0]
"""The small stage counts owls; of its first three the large stage wants few."""
_CANARY: Final = "kingfisher 7f3a"


@dataclass(frozen=True, slots=True)
class Running:
    """A sidecar, and the chat server behind it."""

    process: Process
    chat: FakeChat

    def ask(self, dialect: str, query: str = "owl", **headers: str) -> httpx.Response:
        """Ask in a dialect for all documents."""
        body = BODIES[dialect](query, _TEXTS)
        with httpx.Client(base_url=self.process.public, trust_env=False, timeout=30) as client:
            return client.post(_PATHS[dialect], json=body, headers=headers)

    def metrics(self) -> dict[str, float]:
        """Return what the admin listener counts."""
        with httpx.Client(base_url=self.process.admin, trust_env=False) as admin:
            lines = admin.get("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def _release(small: str, chat: str, **large: Any) -> dict[str, Any]:
    stage = {"adapter": "chat", "url": chat, "model": "fake/chat", "engine": "vllm/0.32", "retries": 0, **large}
    return {
        "release": "listwise-1",
        "stages": {"small": {"adapter": "tei", "url": small, "model": "m", "engine": "tei/1.9"}, "large": stage},
        "depth": 50,
        "escalation": {"kind": "static", "top_m": 3},
        "budgets": {"total_ms": 5000, "small_ms": 2000, "large_ms": 3000, "reserve_ms": 20},
        "probe": "off",
    }


def _start(stack: ExitStack, folder: Path, chat: FakeChat, **large: Any) -> Running:
    small = FakeTei(score_of=lambda query, text: float(text.count("owl")))
    urls = [stack.enter_context(listening(server)) for server in (small, chat)]
    release = write_yaml(folder / "release.yaml", _release(*urls, **large))
    config = write_yaml(folder / "settings.yaml", {"cache": "off"})
    arguments = ("--release", str(release), "--config", str(config), "--log-level", "debug")
    return Running(stack.enter_context(serving(folder, *arguments)), chat)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Serve for all tests of this module; the breaker never opens."""
    with ExitStack() as stack:
        chat = FakeChat(score_of=lambda query, text: -float(text.count("owl")))
        never = {"min_calls": 1000, "consecutive": 1000}
        yield _start(stack, tmp_path_factory.mktemp("listwise"), chat, breaker=never)


@pytest.fixture(autouse=True)
def _right_again(running: Running) -> Iterator[None]:
    """Have the chat server answer rightly after each test."""
    yield
    running.chat.writes, running.chat.finish_reason, running.chat.refusal = None, "stop", None
    running.chat.hangs, running.chat.script = False, []


def _order(dialect: str, answer: Any) -> tuple[list[int], list[float]]:
    """Return the indices of an answer, best first, and their scores."""
    match dialect:
        case "tei":
            items = [(item["index"], item["score"]) for item in answer]
        case "vllm":
            items = [(item["index"], item["relevance_score"]) for item in answer["results"]]
        case "vllm-score":
            data = [(item["index"], item["score"]) for item in answer["data"]]
            items = sorted(data, key=lambda one: -one[1])
        case _:
            items = [(item["index"], item["score"]) for item in answer["results"]]
    return [index for index, _ in items], [score for _, score in items]


@pytest.mark.parametrize("dialect", _PATHS)
def test_every_dialect_answers_the_order_with_scores_that_tell_the_rank(running: Running, dialect: str) -> None:
    """The small stage's best three in the model's order, the rest behind; scores fall evenly, and a header says why."""
    response = running.ask(dialect)
    indices, scores = _order(dialect, response.json())
    assert (response.status_code, indices) == (200, _ORDER)
    assert scores == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    assert response.headers["x-cascade-stage"] == "large"
    assert response.headers["x-cascade-score"] == "rank"
    assert not {"x-cascade-degraded", "x-cascade-repaired"} & set(response.headers)
    assert [text for _, text in passages_of(running.chat.posts[-1].body)] == [
        _TEXTS[index].strip() for index in [4, 3, 2]
    ]


@pytest.mark.parametrize("dialect", _PATHS)
def test_a_mended_order_is_whole_and_says_so(running: Running, dialect: str) -> None:
    """What the model left out stands behind, in the small order; a header and a metric count it."""
    running.chat.writes = lambda numbers: "[2] > [2]"
    before = running.metrics()["cascade_order_repairs_total"]
    response = running.ask(dialect)
    indices, _ = _order(dialect, response.json())
    assert indices == [3, 4, 2, 1, 0]
    assert response.headers["x-cascade-repaired"] == "3"
    assert "x-cascade-degraded" not in response.headers
    assert running.metrics()["cascade_order_repairs_total"] == before + 3


_FAULTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "rubbish": ({"writes": lambda numbers: "What a lovely list."}, "stage_invalid_answer"),
    "empty": ({"writes": lambda numbers: ""}, "stage_invalid_answer"),
    "thinks on": ({"writes": lambda numbers: f"<think>{written_order(numbers)}"}, "stage_invalid_answer"),
    "refuses": ({"refusal": "no"}, "stage_invalid_answer"),
    "not json": ({"script": [httpx.Response(200, text="<html>")]}, "stage_invalid_answer"),
    "500": ({"script": [httpx.Response(500, json={"error": {"message": _CANARY}})]}, "stage_invalid_answer"),
    "400": ({"script": [httpx.Response(400, json={"error": {"message": _CANARY}})]}, "stage_refused"),
    "404": ({"script": [httpx.Response(404)]}, "stage_refused"),
    "429": ({"script": [httpx.Response(429)]}, "stage_overloaded"),
    "503": ({"script": [httpx.Response(503)]}, "stage_overloaded"),
    "504": ({"script": [httpx.Response(504)]}, "stage_timeout"),
}


@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("dialect", _PATHS)
def test_a1_each_fault_leaves_the_small_order_and_is_marked(running: Running, dialect: str, fault: str) -> None:
    """Whole, in time, status 200, the reason in a header; no text of the server's or the caller's is written anywhere."""
    fields, reason = _FAULTS[fault]
    for name, value in fields.items():
        setattr(running.chat, name, list(value) if name == "script" else value)
    _assert_small_order(running, dialect, running.ask(dialect, query=f"owl {_CANARY}"), reason)


def test_a_chat_server_that_hangs_leaves_the_small_order_and_is_marked(running: Running) -> None:
    """In every dialect, each with more time than the one before: what is known to take longer is not asked for."""
    running.chat.hangs = True
    for number, dialect in enumerate(_PATHS, 1):
        response = running.ask(dialect, **{"x-request-timeout-ms": str(400 * number)})
        _assert_small_order(running, dialect, response, "stage_timeout")


def _assert_small_order(running: Running, dialect: str, response: httpx.Response, reason: str) -> None:
    """Check that the small order was answered, whole and marked, and that nothing of any text was written."""
    indices, scores = _order(dialect, response.json())
    assert (response.status_code, indices) == (200, _SMALL_ORDER)
    assert response.headers["x-cascade-degraded"] == reason
    assert response.headers["x-cascade-stage"] == "small"
    assert "x-cascade-score" not in response.headers
    assert all(above > below for above, below in pairwise(scores))
    assert "kingfisher" not in running.process.stderr.read_text(encoding="utf-8")


def test_explain_tells_of_the_list(running: Running) -> None:
    """One call of three, the tokens that the server counted, and what was mended."""
    running.chat.writes = lambda numbers: "[3] > [1]"
    body = {**BODIES["native"]("owl", _TEXTS), "explain": True}
    with httpx.Client(base_url=running.process.public, trust_env=False, timeout=30) as client:
        told = client.post("/v1/cascade/rerank", json=body).json()["explain"]
    (_, large) = told["rounds"]
    assert (large["sent"], large["scored"], large["calls"], large["repaired"]) == (3, 3, 1, 1)
    assert large["tokens_estimated"] is False


def test_c1_a_client_that_leaves_ends_the_call_at_the_chat_server(running: Running) -> None:
    """No generation goes on for nobody."""
    running.chat.hangs = True
    before, posts = running.chat.cancelled, len(running.chat.posts)
    body = orjson.dumps(BODIES["tei"]("owl", _TEXTS))
    address = httpx.URL(running.process.public)
    with socket.create_connection((address.host, address.port)) as client:
        client.sendall(
            b"POST /rerank HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        _until(lambda: len(running.chat.posts) > posts)
    _until(lambda: running.chat.cancelled > before)


def _until(holds: Any) -> None:
    """Wait until something holds; fail where it does not within the time that any of it may take."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
