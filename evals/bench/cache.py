"""What a kept score costs, and at which hit rate it pays.

    python -m evals.bench.cache [--documents 50] [--characters 600] [--rounds 300] [--seed 0] [--redis URL] [--json FILE]

Steps of one round, each timed alone and in random order, so that drift hits all alike: making keys; looking up in memory
(all kept, none kept); keeping; the same in a Redis (--redis, or a redis-server of its own where one is installed), where
writing goes beside and is timed to the moment that it is queued, and packing apart. Then a whole round of a cached stage
around one that takes no time: all from the cache, and nothing from it, against the stage alone. Each figure is the median over the
rounds and their 5th and 95th percentile, in microseconds for one round.

What is looked up costs each round, hit or miss; a hit saves its share of the stage's time. So with a share h of the
documents kept, a round of X ms is shorter where h X > cost: the table gives that h for some X.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from pydantic import TypeAdapter

from cascade.cache.key import KeyMaker
from cascade.cache.memory import MemoryStore
from cascade.cache.packed import Packer
from cascade.cache.redis import RedisStore, connect
from cascade.cache.score_cache import ScoreCache
from cascade.cache.stage import CachedStage
from cascade.cache.store import Store
from cascade.guard.deadline import Deadline
from cascade.guard.tenant import asking_for
from cascade.policy.release import StageSpec
from cascade.stages.base import Stage
from cascade.stages.serializers import serializer
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Arm, StageName

__all__ = ["STAGES_MS", "break_even", "main"]

STAGES_MS: Final = (2.0, 5.0, 20.0, 100.0)
"""Rounds of a stage for which the share is told."""
_SPEC: Final = {"adapter": "tei", "url": "http://stage.example", "model": "m", "engine": "tei/1.9"}
_FAR_MS: Final = 10_000.0

Step = Callable[[int], Awaitable[float]]
"""Do something in a round of some number, and return the seconds that it took."""


def break_even(cost_us: float, stage_ms: float) -> float | None:
    """Return the share of documents kept from which on a round is shorter; None where it never is."""
    share = cost_us / 1000 / stage_ms
    return share if share <= 1 else None


class _Bench:
    """Documents of drawn characters, another query each round, and the steps over them."""

    def __init__(self, documents: int, characters: int, seed: int) -> None:
        draw = random.Random(seed)  # noqa: S311 - texts to be drawn again
        letters = "abcdefghijklmnopqrstuvwxyz     "
        self.documents = [Text("".join(draw.choices(letters, k=characters))) for _ in range(documents)]
        self.secret = secrets.token_bytes(32)
        self.maker = KeyMaker(self.secret)
        self.packer = Packer(self.secret)
        self.steps: dict[str, Step] = {"make keys": self._make, "pack": self._pack}

    def keys(self, query: str) -> list[bytes]:
        """Return the keys of all documents for a query."""
        made = self.maker.of_query(
            b"x" * 600, serializer("passthrough@1"), Text(query), tenant=None, instruction=None, max_length=512
        )
        return made.of_pairs(self.documents)

    async def _make(self, number: int) -> float:
        began = time.perf_counter()
        self.keys(f"query {number}")
        return time.perf_counter() - began

    async def _pack(self, number: int) -> float:
        keys = self.keys("packed")
        began = time.perf_counter()
        for key in keys:
            self.packer.unpack(key, self.packer.pack(key, 0.5))
        return time.perf_counter() - began

    def add_store(self, name: str, store: Store) -> None:
        """Add the steps of a store, and those of a stage around it."""
        there = self.keys("kept")

        def look(what: str) -> Step:
            async def step(number: int) -> float:
                store.put(dict.fromkeys(there, 0.5))
                await asyncio.sleep(0.002)
                keys = there if what == "kept" else self.keys(f"missing {number}")
                began = time.perf_counter()
                found = await store.get(keys, Deadline.after_ms(_FAR_MS, time.monotonic))
                took = time.perf_counter() - began
                if found.faults or len(found.scores) != (len(keys) if what == "kept" else 0):
                    raise RuntimeError(f"{name}: the store did not answer as it should")
                return took

            return step

        async def put(number: int) -> float:
            scores = dict.fromkeys(self.keys(f"new {number}"), 0.5)
            began = time.perf_counter()
            store.put(scores)
            return time.perf_counter() - began

        bare = ScriptedStage(lambda query, text: 0.5)
        spec: StageSpec = TypeAdapter(StageSpec).validate_python(_SPEC)
        cached = CachedStage(bare, spec, ScoreCache(store, self.maker, time.monotonic), StageName.LARGE, Arm.STABLE)
        self.steps |= {
            f"{name}: look up, all kept": look("kept"),
            f"{name}: look up, none kept": look("missing"),
            f"{name}: keep": put,
            f"{name}: round, all from the cache": self._round(cached, "the same"),
            f"{name}: round, none from the cache": self._round(cached, "another"),
            "round of the stage alone": self._round(bare, "another"),
        }

    def _round(self, stage: Stage, which: str) -> Step:
        async def score(query: str) -> float:
            began = time.perf_counter()
            with asking_for(None):
                await stage.score(
                    Text(query),
                    self.documents,
                    deadline=Deadline.after_ms(_FAR_MS, time.monotonic),
                    call_id="bench",
                )
            return time.perf_counter() - began

        async def step(number: int) -> float:
            if which == "another":
                return await score(f"round {number} {id(stage)}")
            await score("the same")
            await asyncio.sleep(0.002)
            return await score("the same")

        return step


def _figure(seconds: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=20, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 19
    us = {"median_us": median(seconds), "p5_us": cuts[0], "p95_us": cuts[-1]}
    return {name: round(value * 1e6, 2) for name, value in us.items()}


async def _measure(given: argparse.Namespace, url: str | None) -> dict[str, dict[str, float]]:
    bench = _Bench(given.documents, given.characters, given.seed)
    stores: dict[str, Store] = {"memory": MemoryStore(256_000_000, 3600.0, time.monotonic)}
    if url is not None:
        stores["redis"] = RedisStore(
            connect(url), bench.secret, ttl_s=600.0, most_ms=1000.0, most_waiting=100_000, clock=time.monotonic
        )
    for name, store in stores.items():
        await store.start()
        bench.add_store(name, store)
    draw = random.Random(given.seed)  # noqa: S311 - an order to be drawn again
    taken: dict[str, list[float]] = {name: [] for name in bench.steps}
    for number in range(-5, given.rounds):
        for name in draw.sample(list(bench.steps), len(bench.steps)):
            seconds = await bench.steps[name](number)
            if number >= 0:  # the first ones warm up
                taken[name].append(seconds)
    for store in stores.values():
        await store.aclose()
    return {name: _figure(seconds) for name, seconds in taken.items()}


@contextmanager
def _redis(given: str | None) -> Iterator[str | None]:
    """Give the address of a Redis: the one that was named, else one of our own, None where none is installed."""
    program = shutil.which("redis-server")
    if given is not None or program is None:
        yield given
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            for _ in range(200):
                with socket.socket() as caller:
                    if caller.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.02)
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def _shares(figures: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """Return, by store, the share from which a round of some milliseconds is shorter."""
    alone = figures["round of the stage alone"]["median_us"]
    return {
        name: {
            f"{stage_ms:g}": break_even(
                max(0.0, figures[f"{name}: round, none from the cache"]["median_us"] - alone), stage_ms
            )
            for stage_ms in STAGES_MS
        }
        for name in ("memory", "redis")
        if f"{name}: keep" in figures
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=50)
    parser.add_argument("--characters", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--redis", help="address of a Redis to measure; unset: one of our own, where installed")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    with _redis(given.redis) as url:
        figures = asyncio.run(_measure(given, url))
    shares = _shares(figures)
    print(f"{given.documents} documents of {given.characters} characters, {given.rounds} rounds, us a round\n")
    print("| step | median | p5 | p95 |\n|---|---|---|---|")
    for name, figure in figures.items():
        print(f"| {name} | {figure['median_us']:.0f} | {figure['p5_us']:.0f} | {figure['p95_us']:.0f} |")
    print(
        "\n| share of documents kept from which it pays, for a round of | "
        + " | ".join(f"{ms:g} ms" for ms in STAGES_MS)
    )
    print("|---" * (len(STAGES_MS) + 1) + "|")
    for name, by_ms in shares.items():
        print(f"| {name} | " + " | ".join("never" if one is None else f"{one:.1%}" for one in by_ms.values()) + " |")
    if given.json is not None:
        told: dict[str, Any] = {
            "machine": {"python": platform.python_version(), "processor": platform.machine(), "system": sys.platform},
            "given": {name: getattr(given, name) for name in ("documents", "characters", "rounds", "seed")},
            "figures": figures,
            "break_even": shares,
        }
        given.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
