"""Goodput and quality of the sidecar from half to ten times what its servers can score, beside each level held fast.

    python -m evals.bench.overload [--quick] [--controllers adaptive,fixed-normal] [--loads 1x,4x] [--json FILE]

evals/bench/README.md says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from evals.bench.overload_field import sidecar
from evals.bench.overload_figures import Cell, aims, table, written
from evals.bench.overload_release import CAPACITY, LEVELS

__all__ = ["CONTROLLERS", "main", "measure_capacity"]

CONTROLLERS: Final = ("adaptive", *(f"fixed-{name}" for name in LEVELS))
_LOADS: Final = ("0.5x", "1x", "2x", "4x", "10x")
_HOVER: Final = 1.05
_WARM_S: Final = 1.0
_LEAST_UNDEGRADED: Final = 0.99
_CAPACITY_STEPS: Final = 4

Cells = dict[str, dict[str, list[Cell]]]


async def measure_capacity(seconds: float) -> float:
    """Return the highest rate that the first level serves with 99% in time and not degraded, by bisection."""
    low, high = 0.4 * CAPACITY, 1.1 * CAPACITY
    for number in range(_CAPACITY_STEPS):
        rate = (low + high) / 2
        async with sidecar("normal") as served:
            found, _ = await served.play([(rate, seconds + 1)], settle=1.0, seed=900 + number)
        print(f"capacity: {rate:.1f}/s: {found.undegraded:.3f} in time and not degraded", file=sys.stderr)
        low, high = (rate, high) if found.undegraded >= _LEAST_UNDEGRADED else (low, rate)
    return low


async def _play(given: argparse.Namespace, capacity: float) -> tuple[Cells, Cells]:
    settled: Cells = {name: {} for name in given.controllers}
    first: Cells = {name: {} for name in given.controllers}
    for repetition in range(given.repetitions):
        for load in given.loads:
            for controller in given.controllers:
                if repetition and controller != "adaptive":
                    continue
                level = None if controller == "adaptive" else controller.removeprefix("fixed-")
                rate = float(load.removesuffix("x")) * capacity
                parts = [(capacity / 2, _WARM_S), (rate, given.settle + given.seconds)]
                async with sidecar(level, keeps=given.keeps) as served:
                    after, before = await served.play(parts, settle=given.settle, seed=repetition + 1)
                settled[controller].setdefault(load, []).append(after)
                if before is not None:
                    first[controller].setdefault(load, []).append(before)
                print(
                    f"{repetition + 1} {load} {controller}: goodput {after.goodput:.3f}, quality "
                    f"{after.quality_goodput:.3f}, p99 {after.p99_ms:.0f} ms, late {after.late:.2%}",
                    file=sys.stderr,
                )
    if "adaptive" in given.controllers and given.hover_seconds:
        async with sidecar(None, keeps=given.keeps) as served:
            parts = [(capacity / 2, _WARM_S), (_HOVER * capacity, given.settle + given.hover_seconds)]
            hover, _ = await served.play(parts, settle=given.settle, seed=77)
        settled["adaptive"]["hover"] = [hover]
    return settled, first


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return (done.stdout or done.stderr).strip().partition("\n")[0]


def _conditions(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "machine": f"{os.cpu_count()} x {platform.machine()}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cascade": version("cascade-rerank"),
        "h2load": _first_line("h2load", "--version"),
        "seconds": given.seconds,
        "settle": given.settle,
        "repetitions": given.repetitions,
        "hover_seconds": given.hover_seconds,
        "keeps": given.keeps,
        "load_average_before": os.getloadavg(),
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evals.bench.overload", description=__doc__)
    parser.add_argument("--controllers", default=",".join(CONTROLLERS))
    parser.add_argument("--loads", default=",".join(_LOADS), help="multiples of the capacity")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured of each load, after --settle")
    parser.add_argument("--settle", type=float, default=3.0, help="first seconds of each load, told apart")
    parser.add_argument("--hover-seconds", type=float, default=30.0, help="at 1.05x, adaptive only; 0: none")
    parser.add_argument("--repetitions", type=int, default=2, help="of adaptive; each fixed level is measured once")
    parser.add_argument("--capacity", type=float, help="requests a second; unset: measured first")
    parser.add_argument("--keeps", action="store_true", help="servers score what is queued though its client has gone")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: 1x and 4x, three controllers, 2 seconds each"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures and conditions there")
    given = parser.parse_args(arguments)
    if given.quick:
        given.loads, given.controllers = "1x,4x", "adaptive,fixed-normal,fixed-degraded-3"
        given.seconds, given.settle, given.repetitions, given.hover_seconds = 2.0, 2.0, 1, 0.0
        given.capacity = given.capacity or 0.8 * CAPACITY
    given.loads = given.loads.split(",")
    given.controllers = given.controllers.split(",")
    if unknown := set(given.controllers) - set(CONTROLLERS):
        parser.error(f"unknown controllers: {', '.join(sorted(unknown))}; known are {', '.join(CONTROLLERS)}")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print tables, and write the JSON file that was asked for; 1 where nothing can run."""
    given = _parse(arguments)
    if shutil.which("h2load") is None:
        print("the load generator is h2load: apt-get install nghttp2-client", file=sys.stderr)
        return 1
    conditions = _conditions(given)
    capacity = given.capacity or asyncio.run(measure_capacity(given.seconds))
    settled, first = asyncio.run(_play(given, capacity))
    conditions |= {"load_average_after": os.getloadavg(), "capacity_per_second": round(capacity, 2)}
    print(f"Capacity: {capacity:.1f} requests a second\n\n{table(settled, [*given.loads, 'hover'])}")
    print(f"\nThe first {given.settle:g} seconds of each load\n\n{table(first, given.loads)}\n")
    figures = written(settled)
    print("\n".join(aims(figures)))
    if given.json is not None:
        told = figures | {"first_seconds": written(first), "conditions": conditions}
        given.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
