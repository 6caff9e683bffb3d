"""Real outages of the large server: each costs quality for as long as it lasts, never an answer."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import httpx
import pytest

from .pairs import BATCHES_DIFFER, QUERY, alone_at_llamacpp, documents
from .servers import Server, free_port, llamacpp_server
from .sidecar import Sidecar, release_of, sidecar

pytestmark = pytest.mark.engines

_TEXTS = documents(24)
_CLIENTS = 4
_PATIENCE_S = 30.0
_OUTAGE = frozenset({"stage_unreachable", "stage_timeout", "breaker_open"})
"""After a few failures in a row the breaker spares the server, and the requests their wait for it."""
_STARTING = frozenset({"stage_overloaded"})
"""llama.cpp answers 503 while it loads its model."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer: its status, the reasons why it is degraded, what placed it, and its order."""

    status: int
    degraded: frozenset[str]
    stage: str
    order: tuple[int, ...]


@dataclass(slots=True)
class Load:
    """Clients that ask without a pause until told to stop. ``seen`` holds every answer, in the order they came."""

    url: str
    stopping: Event = field(default_factory=Event)
    seen: list[Seen] = field(default_factory=list)

    def ask_until_stopped(self) -> None:
        """Be one client."""
        with httpx.Client(trust_env=False, timeout=_PATIENCE_S) as client:
            while not self.stopping.is_set():
                self.seen.append(_ask(client, self.url))

    def wait_for(self, enough: Callable[[list[Seen]], bool], *, since: int = 0) -> None:
        """Return once the answers after the first ``since`` are enough; fail when they never are."""
        give_up = time.monotonic() + _PATIENCE_S
        while not enough(self.seen[since:]):
            assert time.monotonic() < give_up, f"not within {_PATIENCE_S:g} s; the last: {self.seen[-1:]}"
            time.sleep(0.02)


def _ask(client: httpx.Client, url: str) -> Seen:
    reply = client.post(f"{url}/rerank", json={"query": QUERY, "texts": _TEXTS})
    reasons = frozenset(filter(None, reply.headers.get("x-cascade-degraded", "").split(",")))
    order = tuple(item["index"] for item in reply.json()) if reply.status_code == 200 else ()
    return Seen(reply.status_code, reasons, reply.headers.get("x-cascade-stage", ""), order)


@contextmanager
def _load(serving: Sidecar) -> Iterator[Load]:
    """Run the clients; an error in one of them is raised at the end."""
    load = Load(serving.public)
    with ThreadPoolExecutor(_CLIENTS) as pool:
        clients = [pool.submit(load.ask_until_stopped) for _ in range(_CLIENTS)]
        try:
            yield load
        finally:
            load.stopping.set()
    for client in clients:
        client.result()


@contextmanager
def _in_front_of(logs: Path, small: Server, large: Server) -> Iterator[Sidecar]:
    """Run a sidecar of its own whose large stage may take a second."""
    release = release_of("outages", small, large, adapter="tei", top_m=24, large_ms=1000.0)
    with sidecar(logs, release) as serving:
        yield serving


def _healthy(count: int) -> Callable[[list[Seen]], bool]:
    return lambda seen: sum(answer.stage == "large" and not answer.degraded for answer in seen) >= count


def _degraded(count: int) -> Callable[[list[Seen]], bool]:
    return lambda seen: sum(bool(answer.degraded) for answer in seen) >= count


def _assert_served(seen: list[Seen], small: Server, *, reasons: frozenset[str]) -> None:
    """Check that every answer is whole, and that every degraded one says why and gives the small order."""
    alone = alone_at_llamacpp(small, QUERY, _TEXTS)
    assert {answer.status for answer in seen} == {200}
    for answer in seen:
        assert sorted(answer.order) == list(range(len(_TEXTS)))
        assert answer.stage == ("small" if answer.degraded else "large")
        assert answer.degraded <= reasons
        if answer.degraded:
            scores = [alone[index] for index in answer.order]
            assert scores == pytest.approx(sorted(scores, reverse=True), abs=2 * BATCHES_DIFFER)


def _port(server: Server) -> int:
    port = urlsplit(server.base_url).port
    assert port is not None
    return port


def test_a_killed_large_server_costs_no_answer_and_is_used_again_when_it_is_back(logs: Path, llamacpp: Server) -> None:
    """Killed under load, the large server is missed in the order only; restarted on its port, it ranks again."""
    with ExitStack() as running:
        large = running.enter_context(llamacpp_server(logs, model="large"))
        serving = running.enter_context(_in_front_of(logs, llamacpp, large))
        with _load(serving) as load:
            load.wait_for(_healthy(20))
            os.killpg(large.pid, signal.SIGKILL)
            load.wait_for(_degraded(20))
            away = len(load.seen)
            running.enter_context(llamacpp_server(logs, model="large", port=_port(large)))
            load.wait_for(_healthy(20), since=len(load.seen))
    _assert_served(load.seen[:away], llamacpp, reasons=_OUTAGE)
    _assert_served(load.seen[away:], llamacpp, reasons=_OUTAGE | _STARTING)
    assert not load.seen[-1].degraded


def test_a_hanging_large_server_costs_its_budget_and_no_answer(logs: Path, llamacpp: Server) -> None:
    """A server that takes connections and never answers is given up at its budget; going on, it ranks again."""
    with (
        llamacpp_server(logs, model="large") as large,
        _in_front_of(logs, llamacpp, large) as serving,
        _load(serving) as load,
    ):
        load.wait_for(_healthy(20))
        os.killpg(large.pid, signal.SIGSTOP)
        try:
            load.wait_for(_degraded(2 * _CLIENTS))
        finally:
            os.killpg(large.pid, signal.SIGCONT)
        load.wait_for(_healthy(20), since=len(load.seen))
    _assert_served(load.seen, llamacpp, reasons=frozenset({"stage_timeout", "breaker_open"}))


def test_a_large_server_that_comes_after_the_sidecar_is_found(logs: Path, llamacpp: Server) -> None:
    """A sidecar that starts without its large server serves the small order, and uses the server once it is there."""
    port = free_port()
    missing = Server(f"http://127.0.0.1:{port}", "large", 0, "not started")
    with _in_front_of(logs, llamacpp, missing) as serving, httpx.Client(trust_env=False) as client:
        before = _ask(client, serving.public)
        assert serving.status()["stages"]["large"]["observed"] is None
        with llamacpp_server(logs, model="large", port=port):
            after = _ask(client, serving.public)
    assert before.degraded == {"stage_unreachable"}
    assert not after.degraded
    _assert_served([before, after], llamacpp, reasons=_OUTAGE)


def test_a_small_server_that_is_gone_costs_no_answer(logs: Path, llamacpp: Server) -> None:
    """Without its small server the sidecar sends the first candidates to the large one, and says so."""
    with (
        llamacpp_server(logs, model="small") as small,
        _in_front_of(logs, small, llamacpp) as serving,
        httpx.Client(trust_env=False) as client,
    ):
        assert not _ask(client, serving.public).degraded
        os.killpg(small.pid, signal.SIGKILL)
        answer = _ask(client, serving.public)
    assert answer.status == 200
    assert answer.degraded == {"stage_unreachable"}
    assert answer.stage == "large"
    assert sorted(answer.order) == list(range(len(_TEXTS)))
