"""The processes of the overload benchmark: upstreams, a sidecar, its generator, and the client that checks answers."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
import orjson
import yaml
from prometheus_client.parser import text_string_to_metric_families

from evals.bench.generator import Generator, Sent
from evals.bench.overload_figures import Cell, Checked, cell, decided
from evals.bench.overload_release import orders, release, request
from evals.bench.processes import clean_environment, free_port, listens, running

__all__ = ["Sidecar", "bodies_of", "open_loop", "sidecar", "verdict"]

_SLOT_S: Final = 0.5
"""A client of the generator sends no faster than this, longer than any deadline: an answer in time holds up no request."""
_CHECKED: Final = 0.05
_PATIENCE_S: Final = 10.0


def open_loop(rate: float, seconds: float) -> tuple[list[str], int]:
    """Return h2load's arguments for an open loop of ``rate`` a second, and how many requests it sends."""
    clients = max(1, round(rate * _SLOT_S))
    each = max(1, round(seconds * rate / clients))
    spacing = [f"--rate-period={max(1, round(_SLOT_S * 1000 / clients))}ms", "-r", "1"] if clients > 1 else []
    return ["-c", str(clients), *spacing, f"--rps={rate / clients:.4f}", "-n", str(clients * each)], clients * each


def verdict(status: int, headers: Any, body: bytes, scores: Sequence[tuple[int, int]]) -> str | None:
    """Return what is wrong with an answer: None, ``lost`` for another status than 200, ``order``."""
    if status != 200:
        return "lost"
    given = [item["index"] for item in orjson.loads(body)["results"]]
    reasons = set(headers.get("x-cascade-degraded", "").replace(" ", "").split(",")) - {"", "load_level"}
    level, stage = headers.get("x-cascade-level", "normal"), headers["x-cascade-stage"]
    return None if given in orders(level, stage, scores, degraded=bool(reasons)) else "order"


def bodies_of(seed: int, count: int) -> list[tuple[bytes, list[tuple[int, int]]]]:
    """Return requests of the checking client, no two alike."""
    return [request(seed * 100_003 + number) for number in range(count)]


class Sidecar:
    """A sidecar with its upstreams, to be loaded."""

    def __init__(self, public: str, admin: str, log: Path, process: int) -> None:
        self._url = public + "/v1/rerank"
        self._admin = admin
        self._log = log
        self.process = process

    async def play(self, parts: Sequence[tuple[float, float]], *, settle: float, seed: int) -> tuple[Cell, Cell | None]:
        """Send one ``(rate, seconds)`` after the other; return the last part's figures after ``settle`` seconds of it, and before."""
        *before, (rate, seconds) = parts
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PATIENCE_S)) as session:
            for number, part in enumerate(before):
                await self._load(session, *part, seed * 100 + number)
            began = time.time()
            steps = asyncio.create_task(self._steps_within(session, began + settle, began + seconds))
            sent, planned, checked = await self._load(session, rate, seconds, seed * 100 + len(before))
            switches = await steps
        requests = decided(self._log.read_bytes().splitlines(keepends=True))
        settled = cell(
            (began + settle, began + seconds),
            planned=planned,
            requests=requests,
            sent=sent,
            checked=checked,
            switches=switches,
        )
        first = (
            cell((began, began + settle), planned=planned, requests=requests, sent=sent, checked=checked, switches=0)
            if settle
            else None
        )
        return settled, first

    async def _load(
        self, session: aiohttp.ClientSession, rate: float, seconds: float, seed: int
    ) -> tuple[list[Sent], int, list[Checked]]:
        arguments, planned = open_loop(rate * (1 - _CHECKED), seconds)
        generator = Generator(self._url, request(0)[0], arguments)
        checking = asyncio.create_task(self._check(session, rate * _CHECKED, seconds, seed))
        sent = await asyncio.to_thread(generator.wait, seconds + _PATIENCE_S)
        return sent, planned, await checking

    async def _check(self, session: aiohttp.ClientSession, rate: float, seconds: float, seed: int) -> list[Checked]:
        """Send requests at random times, each on its own, and check each answer."""
        gaps = np.random.default_rng(seed).exponential(1 / rate, size=round(rate * seconds * 2) + 20)
        times = [at for at in np.cumsum(gaps).tolist() if at < seconds]
        began = time.time()
        tasks = []
        for at, (body, scores) in zip(times, bodies_of(seed, len(times)), strict=True):
            await asyncio.sleep(max(0.0, began + at - time.time()))
            tasks.append(asyncio.create_task(self._ask(session, body, scores)))
        return list(await asyncio.gather(*tasks))

    async def _ask(self, session: aiohttp.ClientSession, body: bytes, scores: Sequence[tuple[int, int]]) -> Checked:
        came, begun = time.time(), time.perf_counter()
        try:
            async with session.post(self._url, data=body, headers={"content-type": "application/json"}) as answer:
                content = await answer.read()
                took_ms = (time.perf_counter() - begun) * 1000
                return Checked(came, took_ms, verdict(answer.status, answer.headers, content, scores))
        except (aiohttp.ClientError, TimeoutError):
            return Checked(came, (time.perf_counter() - begun) * 1000, "lost")

    async def _steps_within(self, session: aiohttp.ClientSession, begin: float, end: float) -> float:
        """Return how often the level changed between two times."""
        counts = []
        for at in (begin, end):
            await asyncio.sleep(max(0.0, at - time.time()))
            async with session.get(f"{self._admin}/metrics") as answer:
                text = await answer.text()
            counts.append(
                sum(
                    sample.value
                    for family in text_string_to_metric_families(text)
                    for sample in family.samples
                    if sample.name == "cascade_level_steps_total"
                )
            )
        return counts[1] - counts[0]


@asynccontextmanager
async def sidecar(
    level: str | None, *, keeps: bool = False, changes: dict[str, Any] | None = None
) -> AsyncIterator[Sidecar]:
    """Run upstreams and a sidecar for the length of the block, stepping levels or, with ``level``, pinned to one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ports = [free_port(), free_port()]
        command = [sys.executable, "-m", "evals.bench.batching", *map(str, ports), *(["--keeps"] if keeps else [])]
        with running(
            command,
            folder / "upstreams.log",
            ready=lambda log: all(listens(port) for port in ports),
            seconds=30,
            environment=clean_environment(),
        ):
            file, log = folder / "release.yaml", folder / "sidecar.log"
            small, large = (f"http://127.0.0.1:{port}" for port in ports)
            file.write_text(yaml.safe_dump(release(small, large) | (changes or {})), encoding="utf-8")
            command = [sys.executable, "-m", "cascade.cli", "serve", "--port", "0", "--admin-port", "0"]
            command += ["--release", str(file), *(["--level", level] if level else [])]
            environment = clean_environment(CASCADE__DRAIN_SECONDS="0", CASCADE__LEFTOVER_SECONDS="1")
            with running(
                command, log, ready=lambda log: _serving(log) is not None, seconds=60, environment=environment
            ) as process:
                told = _serving(log) or {}
                yield Sidecar(told["public"], told["admin"], log, process)


def _serving(log: Path) -> dict[str, Any] | None:
    for line in log.read_bytes().splitlines():
        if b'"serving"' in line:
            told: dict[str, Any] = orjson.loads(line)
            return told
    return None
