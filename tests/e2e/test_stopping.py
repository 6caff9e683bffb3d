"""A real process that is told to stop: readiness first, then what is under way, then the exit."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.one_stage import body_of, started
from tests.e2e.rollouts import until


def test_h6_readiness_fails_first_and_requests_are_served_while_draining(tmp_path: Path) -> None:
    """After SIGTERM readiness is 503, and requests still work, over new connections too, for as long as the drain lasts."""
    with ExitStack() as stack:
        running = started(stack, tmp_path, drain_seconds=60.0)
        with running.client() as client:
            assert client.get("/readyz").status_code == 200
            running.process.popen.terminate()
            until(lambda: client.get("/readyz").status_code == 503, "readiness that fails")
            assert client.get("/livez").status_code == 200
        with running.client() as new_connection:
            response = new_connection.post("/rerank", json=body_of("bird", ["fish", "bird"]))
            assert response.headers["x-cascade-stage"] == "small"
        assert running.process.popen.poll() is None


def test_a_process_that_is_killed_while_it_drains_leaves_no_start_counted(tmp_path: Path) -> None:
    """Whoever told it to stop may not wait as long; a release is passed over for deaths of its own alone."""
    with ExitStack() as stack:
        running = started(stack, tmp_path, drain_seconds=60.0, state_folder=str(tmp_path / "state"))
        counted = tmp_path / "state" / "releases" / "starts.json"
        assert counted.exists()
        running.process.popen.terminate()
        until(lambda: not counted.exists(), "the start settled")
        assert running.process.popen.poll() is None


def test_h6_a_request_under_way_is_finished_before_the_exit(tmp_path: Path) -> None:
    """A request that outlasts the drain is answered in full by its stage; then connections are refused, and the exit status is 0."""
    with ExitStack() as stack:
        running = started(stack, tmp_path, drain_seconds=0.1)
        running.upstream.delay_ms = 1500
        answers: list[httpx.Response] = []

        def ask() -> None:
            with running.client() as client:
                answers.append(client.post("/rerank", json=body_of("bird", ["fish", "bird"])))

        thread = threading.Thread(target=ask)
        thread.start()
        while not running.upstream.posts:
            time.sleep(0.01)
        assert running.process.stop() == 0
        thread.join()
        assert [item["index"] for item in answers[0].json()] == [1, 0]
        assert answers[0].headers["x-cascade-stage"] == "small"
        with pytest.raises(httpx.ConnectError), running.client() as late:
            late.get("/livez")
        events = [event["event"] for event in running.process.events()]
        assert events.index("serving") < events.index("stopping")
        assert b"Traceback" not in running.process.stderr.read_bytes()


def test_h6_a_request_that_would_outlast_the_process_is_answered_with_the_best_order_so_far(tmp_path: Path) -> None:
    """Its stage never answers and its deadline is far: it gets first-stage order before the exit, and none is cut off."""
    with ExitStack() as stack:
        running = started(stack, tmp_path, drain_seconds=0.1, leftover_seconds=0.3, max_in_flight=1)
        answers: list[httpx.Response] = []

        def ask() -> None:
            headers = {"x-request-timeout-ms": "60000"}
            with running.client() as client:
                answers.append(client.post("/rerank", json=body_of("hang", ["fish", "bird"]), headers=headers))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        with httpx.Client(base_url=running.process.admin, trust_env=False) as admin:
            while admin.get("/status").json()["admission"]["held"] < 3:
                time.sleep(0.01)
        assert running.process.stop() == 0
        for thread in threads:
            thread.join()
        for answer in answers:
            assert answer.status_code == 200
            assert [item["index"] for item in answer.json()] == [0, 1]
            assert answer.headers["x-cascade-degraded"] == "deadline_too_short"
        assert len(answers) == 3
        told = {event["event"]: event for event in running.process.events()}
        assert told["leftovers are answered"]["requests"] == 3
        assert b"Traceback" not in running.process.stderr.read_bytes()
