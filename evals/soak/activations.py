"""Releases that take turns under load: `python -m evals.soak.activations`; no request may notice.

    python -m evals.soak.activations [--activations 1000] [--rate 200] [--seed 1] [--json FILE]

Of ten activations eight go at once to all of the traffic; one gets a share, and is promoted to all; one gets a share, and
is taken back. Ends with status 1 where a request failed, an answer broke the contract, or anything is left at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import orjson

from cascade.testing.upstream import FakeTei
from evals.bench.processes import clean_environment, free_port, running
from evals.soak.answers import answer_of
from evals.soak.clients import Clients
from evals.soak.faults import Deck
from evals.soak.process import Held, held_by, insides_of
from evals.soak.proxy import Proxy, proxy_before
from evals.soak.requests import CANARY, DEPTHS, TOP_M, score_by

__all__ = ["main"]

_SALTS: Final = ("small", "large")
_TOTAL_MS: Final = 2000.0
_WARM_S: Final = 3.0
_QUIET_S: Final = 7.0
"""Longer than a connection is kept without use, at either side."""
_PATIENCE_S: Final = 30.0
_MORE_DESCRIPTORS: Final = 4
_MORE_TASKS: Final = 2
_MOST_MB: Final = 24.0


@dataclass(slots=True)
class Activations:
    """What became of the activations, and what the process held before and after."""

    outcomes: Counter[str] = field(default_factory=Counter)
    ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    held: list[tuple[Held, int]] = field(default_factory=list)
    seconds: float = 0.0


def _release(name: str, urls: tuple[str, str], hold_s: float) -> dict[str, Any]:
    return {
        "release": name,
        "stages": {
            stage: {"adapter": "tei", "url": url, "model": "fake/reranker", "engine": "tei/1.9", "dtype": "float16"}
            for stage, url in zip(_SALTS, urls, strict=True)
        },
        "depth": DEPTHS[0],
        "escalation": {"kind": "static", "top_m": TOP_M},
        "budgets": {"total_ms": _TOTAL_MS, "small_ms": 900.0, "large_ms": 900.0, "reserve_ms": 15.0},
        "overload": {"hold_s": hold_s},
        "probe": "off",
        "rollout": {"steps": [50, 100], "min_queries": 10**6, "shadow": {"share": 0.05}},
    }


async def _served(given: argparse.Namespace, folder: Path) -> tuple[Activations, Clients]:
    async with AsyncExitStack() as stack:
        proxies: list[Proxy] = []
        for salt in _SALTS:
            fake, deck = FakeTei(score_of=score_by(salt), delay_ms=3.0), Deck(salt, share=0.0)
            proxies.append(await stack.enter_async_context(proxy_before(partial(answer_of, fake), deck, deck, CANARY)))
            proxies[-1].whole = True
        urls = (f"http://127.0.0.1:{proxies[0].port}", f"http://127.0.0.1:{proxies[1].port}")
        settings = _prepare(folder, urls)
        command = [sys.executable, "-m", "evals.soak.served", str(folder / "settings.json"), str(folder / "told")]
        log = folder / "log"
        process = running(
            command,
            folder / "stderr",
            ready=lambda _: log.exists() and b'"serving"' in log.read_bytes(),
            seconds=60,
            environment=clean_environment(PYTHONPATH=str(Path.cwd())),
        )
        pid = await asyncio.to_thread(process.__enter__)
        try:
            return await _run(given, folder, settings, pid)
        finally:
            await asyncio.to_thread(process.__exit__, None, None, None)


def _prepare(folder: Path, urls: tuple[str, str]) -> dict[str, Any]:
    for number, name in enumerate(("even", "odd")):
        bundle = folder / "releases" / name
        bundle.mkdir(parents=True)
        (bundle / "release.yaml").write_bytes(orjson.dumps(_release(name, urls, 5.0 + number)))
    settings = {
        "port": free_port(),
        "admin_port": free_port(),
        "cache": "off",
        "release": str(folder / "releases" / "even" / "release.yaml"),
        "releases_folder": str(folder / "releases"),
        "state_folder": str(folder / "state"),
        "strict_activation": False,
        "log_level": "warning",
        "log_file": str(folder / "log"),
        "drain_seconds": 0.2,
    }
    (folder / "settings.json").write_bytes(orjson.dumps(settings | {"log_level": "info"}))
    return settings


async def _run(
    given: argparse.Namespace, folder: Path, settings: dict[str, Any], pid: int
) -> tuple[Activations, Clients]:
    url, admin = (f"http://127.0.0.1:{settings[name]}" for name in ("port", "admin_port"))
    done = Activations()

    async def ask(clients: Clients, goes_on: asyncio.Event) -> None:
        await clients.ask(given.rate, lambda: not goes_on.is_set())

    async def hold() -> None:
        await asyncio.sleep(_QUIET_S)
        give_up = time.monotonic() + _PATIENCE_S
        while done.held and time.monotonic() < give_up:
            if held_by(pid, 0.0).descriptors <= done.held[0][0].descriptors + _MORE_DESCRIPTORS:
                break
            await asyncio.sleep(0.5)
        done.held.append((held_by(pid, 0.0), (await asyncio.to_thread(insides_of, pid, folder / "told")).tasks))

    warm, over = Clients(url, f"{given.seed} warm", _SALTS), asyncio.Event()
    asyncio.get_running_loop().call_later(_WARM_S, over.set)
    await ask(warm, over)
    async with httpx.AsyncClient(base_url=admin, trust_env=False, timeout=30) as client:
        await _activate(client, done, min(20, given.activations))  # what is made once is made by then
        done = Activations()
        await hold()
        clients, over = Clients(url, f"{given.seed} soak", _SALTS), asyncio.Event()
        asking = asyncio.create_task(ask(clients, over))
        began = time.monotonic()
        await _activate(client, done, given.activations)
        done.seconds = time.monotonic() - began
        over.set()
        await asking
        await hold()
    return done, clients


async def _activate(client: httpx.AsyncClient, done: Activations, count: int) -> None:
    """Activate releases one after another, each another than the one that serves."""
    status = (await client.get("/rollout")).json()
    for number in range(count):
        other = "odd" if status["stable"]["release"] == "even" else "even"
        how = {8: "promoted", 9: "taken back"}.get(number % 10, "at once")
        began = time.monotonic()
        answer = await client.post("/rollout", json={"release": other, "at_once": how == "at once"})
        done.ms.append((time.monotonic() - began) * 1000)
        if answer.is_success and how != "at once":
            await asyncio.sleep(0.05)
            path = "promote" if how == "promoted" else "abort"
            body = {"force": True} if how == "promoted" else {"reason": "soak"}
            answer = await client.post(f"/rollout/{path}", json=body)
        done.outcomes[how if answer.is_success else f"refused: {answer.status_code}"] += 1
        if not answer.is_success and len(done.wrong) < 5:
            done.wrong.append(f"activation {number}: {answer.text[:300]}")
        status = (await client.get("/rollout")).json()


def _wrong(done: Activations, clients: Clients, count: int) -> list[str]:
    """Return what did not hold."""
    (before, tasks_before), (after, tasks_after) = done.held
    wrong = list(done.wrong)
    if (
        refused := done.outcomes.total() - sum(done.outcomes[how] for how in ("at once", "promoted", "taken back"))
    ) > 0:
        wrong.append(f"{refused} of {count} activations were refused")
    wrong += [f"{number} requests failed: {what}" for what, number in sorted(clients.lost.items())]
    wrong += [
        f"{number} answers: {what}, such as {clients.examples[what]}" for what, number in clients.breaches.items()
    ]
    if clients.leaks:
        wrong.append(f"{clients.leaks} answers hold text")
    if after.descriptors > before.descriptors + _MORE_DESCRIPTORS:
        wrong.append(f"descriptors: {before.descriptors} before, {after.descriptors} after")
    if tasks_after > tasks_before + _MORE_TASKS:
        wrong.append(f"tasks: {tasks_before} before, {tasks_after} after")
    if after.rss_mb > before.rss_mb + _MOST_MB:
        wrong.append(f"memory: {before.rss_mb} MB before, {after.rss_mb} MB after")
    return wrong


def _told(done: Activations, clients: Clients) -> dict[str, Any]:
    (before, tasks_before), (after, tasks_after) = done.held
    times = sorted(done.ms)
    return {
        "activations": dict(sorted(done.outcomes.items())),
        "requests": len(clients.seen),
        "failed": clients.lost.total(),
        "degraded": sum(bool(seen.judged.degraded) for seen in clients.seen),
        "seconds": round(done.seconds, 1),
        "requests_per_s": round(len(clients.seen) / done.seconds, 1),
        "activation_ms": {"median": round(median(times), 1), "p99": round(times[int(0.99 * (len(times) - 1))], 1)},
        "descriptors": [before.descriptors, after.descriptors],
        "tasks": [tasks_before, tasks_after],
        "rss_mb": [before.rss_mb, after.rss_mb],
    }


def main() -> int:
    """Run it, and tell."""
    parser = argparse.ArgumentParser(description="Releases that take turns under load; no request may notice.")
    parser.add_argument("--activations", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done, clients = asyncio.run(_served(given, Path(folder)))
    wrong, told = _wrong(done, clients, given.activations), _told(done, clients)
    conditions = {
        "seed": given.seed,
        "rate": given.rate,
        "machine": f"{os.cpu_count()} x {platform.machine()}, {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
    }
    print("\n".join(f"{name}: {value}" for name, value in (told | conditions).items()))
    print("\n".join(["", *(f"WRONG: {line}" for line in wrong)] if wrong else ["", "all that is promised held"]))
    if given.json is not None:
        figures = told | {"conditions": conditions, "wrong": wrong}
        given.json.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
