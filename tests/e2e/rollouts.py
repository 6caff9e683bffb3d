"""Releases to be rolled out over real sockets, and clients that ask all the time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from cascade.testing.upstream import FakeTei
from tests.e2e.processes import Process, write_yaml

__all__ = ["Clients", "asking", "happened", "known", "reversed_scores", "two_stages", "until", "variables", "worth"]

_TEXTS: Final = [f"passage {number}" for number in range(12)]


def worth(query: str, text: str) -> float:
    """Score a passage by its number, and the pairs of a probe as they should be."""
    if text.startswith("passage "):
        return float(text.removeprefix("passage "))
    return 5.0 if text.startswith("Paris is") else -5.0


def reversed_scores(query: str, text: str) -> float:
    """Score passages the wrong way round; the pairs of a probe do not tell."""
    score = worth(query, text)
    return -score if text.startswith("passage ") else score


def two_stages(name: str, small: str, large: str, guardrails: Mapping[str, float], **fields: Any) -> dict[str, Any]:
    """Return a release over two servers that is rolled out within seconds; ``guardrails`` are those that are on."""
    limits = dict.fromkeys(
        ("late", "errors", "fallback", "escalation", "cost", "ranking_loss", "drift_psi"), None
    ) | dict(guardrails)
    server = {"adapter": "tei", "model": "fake/reranker", "engine": "tei/1.9", "dtype": "float16"}
    stages = {stage: server | {"url": url} for stage, url in (("small", small), ("large", large))}
    rollout = {"steps": [40, 70, 100], "min_queries": 10, "min_seconds": 0, "guardrails": limits}
    return {
        "release": name,
        "stages": stages,
        "depth": 50,
        "escalation": {"kind": "static", "top_m": 2},
        "budgets": {"total_ms": 4000, "small_ms": 3500, "large_ms": 3500, "reserve_ms": 20},
        "probe": "enforce",
        "rollout": rollout | fields.pop("rollout", {}),
    } | fields


def variables(state: Path, **more: str) -> dict[str, str]:
    """Return settings of a sidecar that watches its release and keeps what it knows in ``state``."""
    settings = {"watch_release": "true", "release_seconds": "0.5", "strict_activation": "false"}
    return {
        f"CASCADE__{name.upper()}": value for name, value in (settings | {"state_folder": str(state)} | more).items()
    }


@dataclass
class Clients:
    """What clients got: statuses, and releases with their arm, each with how often."""

    statuses: Counter[int] = field(default_factory=Counter)
    releases: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)


@contextmanager
def asking(process: Process, threads: int = 3, apart_s: float = 0.001) -> Iterator[Clients]:
    """Ask all the time from some threads, each over one connection."""
    stop, clients = threading.Event(), Clients()

    def ask(number: int) -> None:
        with httpx.Client(base_url=process.public, trust_env=False, timeout=10) as client:
            count = 0
            while not stop.is_set():
                count += 1
                try:
                    response = client.post("/rerank", json={"query": f"query {number}-{count}", "texts": _TEXTS})
                except httpx.HTTPError as error:
                    clients.faults[type(error).__name__] += 1
                    continue
                clients.statuses[response.status_code] += 1
                said = response.headers.get("x-cascade-release", ""), response.headers.get("x-cascade-arm", "stable")
                clients.releases[said] += 1
                stop.wait(apart_s)

    running = [threading.Thread(target=ask, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield clients
    finally:
        stop.set()
        for thread in running:
            thread.join()


def until(reached: Callable[[], bool], what: str, most_s: float = 20.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + most_s
    while not reached():
        if time.monotonic() > end:
            raise AssertionError(f"not reached: {what}")
        time.sleep(0.02)


def happened(process: Process) -> list[tuple[str, str]]:
    """Return what happened to which release, as the log has it."""
    return [(event["what"], event["release"]) for event in process.events() if event["event"] == "rollout"]


def known(state: Path) -> dict[str, Any]:
    """Return what a sidecar keeps in its state folder."""
    kept: dict[str, Any] = orjson.loads((state / "rollout.json").read_bytes())
    return kept


def replaced(path: Path, release: Mapping[str, Any]) -> None:
    """Put a release in the place of another in one step."""
    write_yaml(path.with_suffix(".new"), release).replace(path)


def server(score_of: Callable[[str, str], float] = worth, **fields: Any) -> FakeTei:
    """Return a reranker server that scores by a function."""
    return FakeTei(score_of=score_of, **fields)
