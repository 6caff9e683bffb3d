"""Real servers killed and restarted again and again under load: every answer whole and in time, and nothing piles up."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import httpx
import pytest

from .pairs import QUERY, documents
from .servers import Server, llamacpp_server
from .sidecar import Sidecar, release_of, sidecar

pytestmark = pytest.mark.engines

_TEXTS = documents(12)
_CLIENTS = 4
_DEADLINE_MS = 2000
_SLACK_MS = 500.0
"""On the way back, and for a machine that runs three servers and the clients at once."""
_PATIENCE_S = 60.0
_REASONS = frozenset(
    {"stage_unreachable", "stage_timeout", "stage_overloaded", "breaker_open", "deadline_too_short", "load_level"}
)
"""What a server that is away, or that loads its model, may cost; anything else is a fault of ours."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer."""

    status: int
    stage: str
    degraded: frozenset[str]
    order: tuple[int, ...]
    took_ms: float


@dataclass(slots=True)
class Load:
    """Clients that ask without a pause until told to stop."""

    url: str
    stopping: Event = field(default_factory=Event)
    seen: list[Seen] = field(default_factory=list)

    def ask_until_stopped(self) -> None:
        """Be one client."""
        headers = {"x-request-timeout-ms": str(_DEADLINE_MS)}
        with httpx.Client(trust_env=False, timeout=_PATIENCE_S, headers=headers) as client:
            while not self.stopping.is_set():
                began = time.monotonic()
                reply = client.post(f"{self.url}/rerank", json={"query": QUERY, "texts": _TEXTS})
                took_ms = (time.monotonic() - began) * 1000
                reasons = frozenset(filter(None, reply.headers.get("x-cascade-degraded", "").split(",")))
                order = tuple(item["index"] for item in reply.json()) if reply.status_code == 200 else ()
                stage = reply.headers.get("x-cascade-stage", "")
                self.seen.append(Seen(reply.status_code, stage, reasons, order, took_ms))
                if reasons:
                    time.sleep(0.02)  # an answer without a stage takes no time at all

    def wait_for(self, count: int, *, degraded: bool) -> None:
        """Return once so many more answers were degraded, or came whole from the large stage."""
        since, give_up = len(self.seen), time.monotonic() + _PATIENCE_S
        while sum(bool(seen.degraded) == degraded for seen in self.seen[since:]) < count:
            assert time.monotonic() < give_up, f"not within {_PATIENCE_S:g} s; the last: {self.seen[-1:]}"
            time.sleep(0.02)


@contextmanager
def _load(serving: Sidecar) -> Iterator[Load]:
    load = Load(serving.public)
    with ThreadPoolExecutor(_CLIENTS) as pool:
        clients = [pool.submit(load.ask_until_stopped) for _ in range(_CLIENTS)]
        try:
            yield load
        finally:
            load.stopping.set()
    for client in clients:
        client.result()


def _port(server: Server) -> int:
    port = urlsplit(server.base_url).port
    assert port is not None
    return port


def _quiet(serving: Sidecar) -> dict[str, int]:
    """Return what is held, seated, waiting or in flight, once nothing is or patience ends."""
    give_up = time.monotonic() + 10
    while True:
        status = serving.status()
        admission = status["admission"]
        left = {
            "held": admission["held"],
            "seats": sum(admission["seats"].values()),
            "waiting": sum(admission["waiting"].values()),
            "in flight": sum(stage["guards"]["in_flight_texts"] for stage in status["stages"].values()),
            "calls": sum(stage["guards"]["waiting_calls"] for stage in status["stages"].values()),
        }
        if not any(left.values()) or time.monotonic() > give_up:
            return left
        time.sleep(0.1)


def test_b6_b13_servers_killed_and_restarted_in_turn_cost_order_and_nothing_else(logs: Path) -> None:
    """Small and large are killed in turn, twice each: every answer is whole, in time, says why, and all comes back."""
    with ExitStack() as running:
        small = running.enter_context(llamacpp_server(logs, model="small"))
        large = running.enter_context(llamacpp_server(logs, model="large"))
        release = release_of("restarts", small, large, adapter="tei", top_m=6, large_ms=1000.0)
        for stage in release["stages"].values():
            stage["breaker"] = {"open_s": 0.3, "max_open_s": 1.0}
        release["budgets"]["small_ms"] = 900.0
        serving = running.enter_context(sidecar(logs, release))
        alive = {"small": small, "large": large}
        with _load(serving) as load:
            load.wait_for(20, degraded=False)
            for name in ("large", "small", "large", "small"):
                os.killpg(alive[name].pid, signal.SIGKILL)
                load.wait_for(30, degraded=True)
                alive[name] = running.enter_context(llamacpp_server(logs, model=name, port=_port(alive[name])))
                load.wait_for(20, degraded=False)
        left = _quiet(serving)
        breakers = {stage["guards"]["breaker"] for stage in serving.status()["stages"].values()}
        metrics = httpx.get(serving.admin + "/metrics", trust_env=False).text
        told = serving.log.read_text(encoding="utf-8") + metrics
    assert {seen.status for seen in load.seen} == {200}
    assert {tuple(sorted(seen.order)) for seen in load.seen} == {tuple(range(len(_TEXTS)))}
    assert frozenset().union(*(seen.degraded for seen in load.seen)) <= _REASONS
    assert [seen for seen in load.seen if not seen.degraded and seen.stage != "large"] == []
    assert [seen for seen in load.seen if seen.stage == "retrieval" and seen.order != tuple(range(len(_TEXTS)))] == []
    assert [seen.took_ms for seen in load.seen if seen.took_ms > _DEADLINE_MS + _SLACK_MS] == []
    assert left == dict.fromkeys(left, 0)
    assert breakers == {"closed"}
    assert "internal fault" not in told
    assert QUERY not in told
