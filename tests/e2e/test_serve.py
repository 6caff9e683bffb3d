"""The real process: ``cascade serve`` before a reranker server, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pytest

from cascade.server.keys import hash_of
from tests.e2e.one_stage import Running, body_of, started
from tests.e2e.processes import cascade, serving, write_yaml

_CANARY: Final = "kingfisher 7f3a"
_BARE: Final[dict[str, Any]] = {
    "release": "bare-1",
    "stages": {},
    "depth": 0,
    "escalation": "none",
    "budgets": {"total_ms": 1000, "small_ms": 100, "large_ms": 100, "reserve_ms": 10},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Serve at debug level for all tests of this module that stop nothing."""
    with ExitStack() as stack:
        yield started(stack, tmp_path_factory.mktemp("serve"), "--log-level", "debug", max_body_bytes=6_000_000)


def test_both_listeners_answer(running: Running) -> None:
    """The public one reranks through the upstream, the admin one counts it, and each keeps to its own."""
    with running.client() as client:
        response = client.post("/rerank", json=body_of("blue bird", ["bird", "fish", "blue bird"]))
        assert [item["index"] for item in response.json()] == [2, 0, 1]
        assert response.headers["x-cascade-stage"] == "small"
        assert client.get("/livez").status_code == client.get("/readyz").status_code == 200
        assert client.get("/metrics").status_code == client.get("/status").status_code == 404
    with httpx.Client(base_url=running.process.admin, trust_env=False) as admin:
        assert 'cascade_requests_total{dialect="tei",stage="small"}' in admin.get("/metrics").text
        status = admin.get("/status").json()
        assert (status["release"], status["ready"]) == ("one-1", True)
        assert status["stages"]["small"]["observed"]["version"] == "1.9.0"
        assert admin.post("/rerank", json={}).status_code == 404


def test_a7_the_answer_leaves_in_time_when_the_upstream_hangs(running: Running) -> None:
    """With 300 ms given and a server that never answers, the whole first-stage order comes when these are over.

    How exactly is played on virtual time; here the log tells which deadline ended the wait.
    """
    with running.client() as client:
        response = client.post("/rerank", json=body_of("hang", ["a", "b"]), headers={"x-request-timeout-ms": "300"})
    assert response.status_code == 200
    assert [item["index"] for item in response.json()] == [0, 1]
    assert response.headers["x-cascade-degraded"] == "stage_timeout"
    decision_id = response.headers["x-cascade-decision-id"]
    (told,) = [each for each in running.process.events() if each.get("decision_id") == decision_id]
    assert (told["deadline_ms"], told["rounds"][0]["code"]) == (300.0, "deadline")


def test_h5_a_client_that_waits_keeps_no_other_waiting(tmp_path: Path) -> None:
    """While ten requests hang, one from another thread is answered in full, and liveness at once.

    The sidecar is its own: that ten rounds took so long is remembered for half a minute.
    """
    with ExitStack() as stack:
        _while_ten_hang(started(stack, tmp_path))


def _while_ten_hang(running: Running) -> None:
    held = running.upstream.holding
    answers: list[httpx.Response] = []

    def ask() -> None:
        with running.client() as client:
            answers.append(
                client.post("/rerank", json=body_of("hang", ["a"]), headers={"x-request-timeout-ms": "3000"})
            )

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    while running.upstream.holding < held + 10:
        time.sleep(0.01)
    with running.client() as client:
        assert client.get("/livez").status_code == 200
        other = client.post("/v1/rerank", json={"query": "bird", "documents": ["fish", "bird"]})
        assert other.headers["x-cascade-stage"] == "small"
        assert [item["index"] for item in other.json()["results"]] == [1, 0]
    assert not answers  # all ten are still waiting
    for thread in threads:
        thread.join()
    assert {answer.headers["x-cascade-degraded"] for answer in answers} == {"stage_timeout"}


def test_a_document_of_five_megabytes_is_answered_over_a_socket(running: Running) -> None:
    """The body comes in many pieces; the answer is the whole order."""
    with running.client() as client:
        response = client.post("/rerank", json=body_of("bird", ["fish", "bird " * 1_000_000]))
    assert [item["index"] for item in response.json()] == [1, 0]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused_over_a_socket(running: Running, chunked: bool) -> None:
    """413 comes back, with the length announced or not, and the listener serves on."""
    body = orjson.dumps(body_of("bird", ["a" * 7_000_000]))
    pieces = (body[start : start + 65_536] for start in range(0, len(body), 65_536))
    with running.client() as client:
        response = client.post("/rerank", content=pieces if chunked else body)
        assert response.status_code == 413
        assert "at most 6000000 bytes" in response.text
        assert client.post("/rerank", json=body_of("q", ["a"])).status_code == 200


def test_clients_that_break_off_do_no_harm(running: Running) -> None:
    """Half a head, half a body, and bytes that are no HTTP leave a listener that serves on."""
    host, port = running.process.public.removeprefix("http://").split(":")
    for said in (
        b"POST /rerank HTTP/1.1\r\nhost: x\r\ncont",
        b'POST /rerank HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{"texts": ["kingfisher 7f3a',
        b"kingfisher 7f3a\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(said)
    with running.client() as client:
        assert client.post("/rerank", json=body_of("q", ["a"])).status_code == 200


def test_g1_the_process_prints_no_text_at_debug_level(running: Running) -> None:
    """Queries, documents, header values and broken bodies are not on stdout or stderr of a real process."""
    headers = {"authorization": f"Bearer {_CANARY}", "x-request-id": _CANARY, "user-agent": _CANARY}
    with running.client() as client:
        client.post("/rerank", json=body_of(_CANARY, [_CANARY, ""]), headers=headers)
        client.post("/rerank", json=body_of(f"hang {_CANARY}", [_CANARY]), headers={"x-request-timeout-ms": "50"})
        client.post("/rerank", content=f'{{"texts": ["{_CANARY}'.encode(), headers=headers)
        client.post("/v1/cascade/rerank", json={_CANARY: _CANARY})
        client.get(f"/{_CANARY}")
        running.upstream.script.append(httpx.Response(500, text=_CANARY))
        degraded = client.post("/rerank", json=body_of(_CANARY, [_CANARY]))
        assert degraded.headers["x-cascade-degraded"] == "stage_invalid_answer"
    written = running.process.stderr.read_bytes()
    assert b'"event":"rerank"' in written
    for trace in (b"kingfisher", b"7f3a"):
        assert trace not in written


def test_keys_are_asked_for_and_read_again_while_serving(tmp_path: Path) -> None:
    """A key that is put into the file opens the listener within one look, without a restart."""
    keys = write_yaml(tmp_path / "keys.yaml", {"keys": [{"name": "one", "sha256": hash_of("one").hex()}]})
    with ExitStack() as stack:
        running = started(stack, tmp_path, keys_file=str(keys), keys_seconds=0.05)
        with running.client() as client:
            body = body_of("bird", ["fish", "bird"])
            assert client.get("/health").status_code == 200
            assert client.post("/rerank", json=body).status_code == 401
            assert client.post("/rerank", json=body, headers={"authorization": "Bearer one"}).status_code == 200
            write_yaml(keys, {"keys": [{"name": "second", "sha256": hash_of("second").hex()}]})
            while client.post("/rerank", json=body, headers={"authorization": "Bearer second"}).status_code != 200:
                time.sleep(0.01)
            assert client.post("/rerank", json=body, headers={"authorization": "Bearer one"}).status_code == 401
        assert running.process.stop() == 0


def test_a_head_without_end_is_cut_off_over_a_socket(running: Running) -> None:
    """A header that goes on and on gets 400, and the connection is closed."""
    host, port = running.process.public.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nx: ")
        answer = b""
        try:
            for _ in range(100):
                connection.sendall(b"a" * 10_000)
            answer = connection.recv(1000)
        except ConnectionError:
            return  # closed before all of it was sent
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_release_without_stages_serves_alone(tmp_path: Path) -> None:
    """Nothing upstream is needed to answer the first-stage order; flags beat the environment, which beats the file."""
    release = write_yaml(tmp_path / "release.yaml", _BARE)
    config = write_yaml(tmp_path / "settings.yaml", {"log_level": "error", "port": 1, "drain_seconds": 0})
    with serving(
        tmp_path, "--config", str(config), "--release", str(release), CASCADE__LOG_LEVEL="info", CASCADE__PORT="2"
    ) as process:
        response = httpx.post(f"{process.public}/rerank", json=body_of("bird", ["fish", "bird"]), trust_env=False)
        assert [item["index"] for item in response.json()] == [0, 1]
        assert "x-cascade-degraded" not in response.headers
        assert process.stop() == 0


def test_a_port_in_use_is_exit_2_and_one_line(tmp_path: Path) -> None:
    """The line names the setting and the address."""
    release = str(write_yaml(tmp_path / "release.yaml", _BARE))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cascade("serve", "--admin-port", "0", "--release", release, "--port", str(port), variables={})
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("cascade: ")
    assert f"port: cannot listen on 127.0.0.1:{port}" in line
