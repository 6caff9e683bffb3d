"""Faults of every kind between a sidecar and its two servers, for a while; then what became of the requests.

    python -m evals.soak [--seconds 600] [--faults 10000] [--seed 1] [--json FILE]

Ends with status 1 where anything that is promised did not hold. docs/faults.md says what that is.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from cascade.testing.rerank_api import FakeInfinity, FakeLlamaCpp
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm
from evals.bench.processes import clean_environment, free_port, running
from evals.soak.answers import answer_of
from evals.soak.clients import Clients
from evals.soak.faults import Deck
from evals.soak.process import Held, held_by, insides_of
from evals.soak.proxy import Proxy, proxy_before
from evals.soak.requests import CANARY, DEPTHS, TOP_M, TOTAL_MS, score_by
from evals.soak.verdict import Run, tables, told, wrong_with

__all__ = ["QUERIES", "main", "release"]

SALTS: Final = ("small", "large")
_FAKES: Final[dict[str, type[FakeServer]]] = {
    "tei": FakeTei,
    "vllm": FakeVllm,
    "infinity": FakeInfinity,
    "llamacpp": FakeLlamaCpp,
}
_WARM_S: Final = 5.0
_QUIET_S: Final = 7.0
"""Longer than a connection is kept without use, at either side."""
_RECOVERY_S: Final = 25.0
QUERIES: Final = {"off": 1000, "memory": 5}
"""How many there are, by the cache: few, so that pairs come again."""


def release(adapters: tuple[str, str], urls: tuple[str, str], mode: str = "cascade") -> dict[str, Any]:
    """Return the release that is served: breakers that come back soon, and levels that do, so that what follows is met too."""
    stages = {
        name: {
            "adapter": adapter,
            "url": url,
            "model": "fake/reranker",
            "engine": adapter,
            "breaker": {"open_s": 0.1, "max_open_s": 0.4, "failure_share": 0.9, "consecutive": 12},
        }
        for name, adapter, url in zip(SALTS, adapters, urls, strict=True)
    }
    written = {
        "release": "soak",
        "mode": mode,
        "stages": stages,
        "depth": DEPTHS[0],
        "escalation": {"kind": "static", "top_m": TOP_M},
        "budgets": {"total_ms": TOTAL_MS, "small_ms": 120.0, "large_ms": 150.0, "reserve_ms": 15.0},
        "overload": {"hold_s": 0.5, "longest_hold_s": 2.0, "miss_share": 0.5},
        "levels": [
            {"name": "normal"},
            {"name": "degraded-1", "escalation": "none"},
            {"name": "degraded-2", "depth": DEPTHS[1], "escalation": "none"},
            {"name": "degraded-3", "stages": "none"},
        ],
    }
    if mode == "observe":
        del written["levels"]
    return written


async def _soak(given: argparse.Namespace, folder: Path) -> Run:
    adapters: tuple[str, str] = given.servers
    async with AsyncExitStack() as stack:
        proxies: list[Proxy] = []
        for salt, adapter in zip(SALTS, adapters, strict=True):
            fake = _FAKES[adapter](score_of=score_by(salt), delay_ms=3.0)
            decks = (
                Deck(f"{given.seed} {salt}", share=given.share),
                Deck(f"{given.seed} looks {salt}", share=given.share, episode_calls=0),
            )
            proxies.append(await stack.enter_async_context(proxy_before(partial(answer_of, fake), *decks, CANARY)))
        urls = (f"http://127.0.0.1:{proxies[0].port}", f"http://127.0.0.1:{proxies[1].port}")
        _prepare(given, folder, urls)
        return await _served(given, folder, proxies)


def _prepare(given: argparse.Namespace, folder: Path, urls: tuple[str, str]) -> None:
    """Write release and settings."""
    (folder / "release.yaml").write_bytes(orjson.dumps(release(given.servers, urls, given.mode)))
    given.port, given.admin_port = free_port(), free_port()
    settings = {
        "port": given.port,
        "admin_port": given.admin_port,
        "cache": given.cache,
        "cache_ttl_seconds": 10.0,  # so short that most calls leave all the same
        "cache_bytes": 1_000_000,  # and so little that some scores are pushed out
        "release": str(folder / "release.yaml"),
        "log_level": "debug",
        "log_file": str(folder / "log"),
        "record_file": str(folder / "records"),
        "record_max_bytes": 10**9,
        "drain_seconds": 0.2,
        "fingerprint_seconds": 5.0,
    }
    (folder / "settings.json").write_bytes(orjson.dumps(settings))


async def _served(given: argparse.Namespace, folder: Path, proxies: list[Proxy]) -> Run:
    command = [sys.executable, "-m", "evals.soak.served", str(folder / "settings.json"), str(folder / "told")]
    log = folder / "log"
    process = running(
        command,
        folder / "stderr",
        ready=lambda _: log.exists() and b'"serving"' in log.read_bytes(),
        seconds=60,
        environment=clean_environment(PYTHONPATH=str(Path.cwd())),
    )
    for proxy in proxies:
        proxy.whole = True
    pid = await asyncio.to_thread(process.__enter__)
    try:
        run = await _run(given, folder, proxies, pid)
    finally:
        await asyncio.to_thread(process.__exit__, None, None, None)
    for name in ("log", "records", "stderr"):
        content = (folder / name).read_bytes() if (folder / name).exists() else b""
        run.output_bytes[name] = len(content)
        run.leaks[name] = content.count(CANARY.encode())
    run.fault_lines = (folder / "log").read_bytes().count(b'"internal fault"')
    return run


async def _run(given: argparse.Namespace, folder: Path, proxies: list[Proxy], pid: int) -> Run:
    url, admin = (f"http://127.0.0.1:{port}" for port in (given.port, given.admin_port))
    began_at = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    run = Run(began=began_at, load_before=os.getloadavg(), cached=given.cache != "off")

    def clients(part: str, leave_share: float = 0.0) -> Clients:
        observes, queries = given.mode == "observe", QUERIES[given.cache]
        return Clients(url, f"{given.seed} {part}", SALTS, leave_share, observes, queries)

    async def ask_for(asking: Clients, seconds: float) -> None:
        end = time.monotonic() + seconds
        await asking.ask(given.rate, lambda: time.monotonic() < end)

    run.warm = clients("warm")
    await ask_for(run.warm, _WARM_S)
    await asyncio.sleep(_QUIET_S)
    run.before = (held_by(pid, 0.0), await asyncio.to_thread(insides_of, pid, folder / "told"))
    for proxy in proxies:
        proxy.whole = False
    run.soak = clients("soak", given.leave_share)
    began = time.monotonic()

    def faults() -> int:
        return sum(proxy.counts.total() for proxy in proxies) + run.soak.left.total()

    seconds: float = given.seconds
    at_least: int = given.faults

    def goes_on() -> bool:
        past = time.monotonic() - began
        return past < seconds or (faults() < at_least and past < 2 * seconds)

    sampling = asyncio.create_task(_sample(pid, began, run.held, given.seconds / 120, admin, run))
    await run.soak.ask(given.rate, goes_on)
    sampling.cancel()
    run.seconds = time.monotonic() - began
    for proxy in proxies:
        proxy.whole = True
        run.met.update(proxy.met)
        for kind, count in proxy.counts.items():
            run.faults[kind] += count
        run.calls += proxy.calls
    run.faults.update(run.soak.left)
    await asyncio.sleep(1.0)
    run.after = clients("after")
    await ask_for(run.after, _RECOVERY_S)
    await asyncio.sleep(_QUIET_S)
    run.end = (held_by(pid, run.seconds), await asyncio.to_thread(insides_of, pid, folder / "told"))
    await _look(admin, run)
    return run


async def _sample(pid: int, began: float, held: list[Held], every_s: float, admin: str, run: Run) -> None:
    """Look at the process and at the admin listener again and again."""
    while True:
        held.append(held_by(pid, time.monotonic() - began))
        await _look(admin, run)
        await asyncio.sleep(every_s)


async def _look(admin: str, run: Run) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        for path in ("/metrics", "/status"):
            text = (await client.get(admin + path)).text
            run.leaks[path] = run.leaks.get(path, 0) + text.count(CANARY)
            if path == "/status":
                run.status = orjson.loads(text)
            else:
                run.metrics = text


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evals.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long at least")
    parser.add_argument("--faults", type=int, default=10_000, help="how many at least, within twice the time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=60.0, help="requests a second")
    parser.add_argument("--share", type=float, default=0.25, help="of calls that meet a fault, beside episodes")
    parser.add_argument("--leave-share", type=float, default=0.08, help="of clients that leave")
    parser.add_argument("--slack-ms", type=float, default=50.0, help="after the deadline, on the way and in real time")
    parser.add_argument("--servers", default="tei,vllm", help=f"small and large, of {', '.join(_FAKES)}")
    parser.add_argument("--mode", choices=("cascade", "observe"), default="cascade", help="the release's")
    parser.add_argument("--cache", choices=tuple(QUERIES), default="off", help="whether scores are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave log and records there")
    given = parser.parse_args(arguments)
    given.servers = tuple(given.servers.split(","))
    if len(given.servers) != 2 or not set(given.servers) <= set(_FAKES):
        parser.error("--servers: two of those named")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Run, print the tables, and return the exit status."""
    given = _parse(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        run = asyncio.run(_soak(given, folder))
    wrong = wrong_with(run, slack_ms=given.slack_ms)
    conditions = {
        "seed": given.seed,
        "rate": given.rate,
        "servers": given.servers,
        "mode": given.mode,
        "cache": given.cache,
        "machine": f"{os.cpu_count()} x {platform.machine()}, {platform.python_version()}",
    }
    print(tables(run, slack_ms=given.slack_ms))
    print("\n".join(["", *(f"WRONG: {line}" for line in wrong)] if wrong else ["", "all that is promised held"]))
    if given.json is not None:
        figures = told(run, slack_ms=given.slack_ms) | {"conditions": conditions, "wrong": wrong}
        given.json.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
