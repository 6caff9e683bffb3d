"""Added latency and processor time of the sidecar, beside a plain proxy and LiteLLM's.

    python -m evals.bench.overhead [--quick] [--targets direct,nginx] [--litellm DIR] [--json FILE]

evals/bench/README.md says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx

from evals.bench.figures import Cell, aims, medians, spread, table
from evals.bench.generator import Generator, Sample, Sent, closed_loop, open_loop, sample
from evals.bench.loads import LARGE, LOADS, QUICK, Load, body, calls, with_services
from evals.bench.processes import cpu_seconds
from evals.bench.targets import TARGETS, Endpoint, Field, litellm_version, missing

__all__ = ["main", "measured", "plan"]

_WARM_REQUESTS: Final = 300
_MOST_REQUESTS: Final = 20_000
_LARGE_RATE: Final = 2
_PATIENCE_SECONDS: Final = 90.0
_LITELLM: Final = "litellm[proxy]==1.108.7"

Runs = dict[str, dict[str, list[Cell]]]


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: the sample, and the process's time for each request of it."""

    sample: Sample
    cpu_us: float


def plan(loads: Sequence[Load], targets: Sequence[str], repetition: int) -> list[tuple[Load, str]]:
    """Return what runs in a repetition, in order: load by load, every target in turn, each time another one first.

    Targets stand next to each other under a load, so that what else the machine does meets all of them.
    """
    steps = []
    for number, load in enumerate(loads):
        turn = (repetition + number) % len(targets)
        order = [*targets[turn:], *targets[:turn]]
        steps += [(load, target) for target in order if target == "direct" or not load.support]
    return steps


def measured(load: Load, target: str, run: Run, service_ms: Mapping[str, float]) -> Cell:
    """Return the figures of one run. ``service_ms`` is the median straight at the fake, by the load's name."""
    away_ms = sum(service_ms[load.service[count]] for count in calls(target, load.shape.documents))
    return Cell(
        added_p50_ms=run.sample.p50_ms - away_ms,
        added_p99_ms=run.sample.p99_ms - away_ms,
        cpu_us=run.cpu_us,
        per_second=run.sample.per_second,
        failed=run.sample.failed,
    )


class Bench:
    """Run loads at targets. How many requests a closed loop has follows from how fast a target was when warm."""

    def __init__(self, field: Field, seconds: float) -> None:
        self._field = field
        self._seconds = seconds
        self._speed: dict[tuple[str, int], float] = {}

    def warm(self, target: str, load: Load) -> None:
        """Ask once and check the answer, then send a few hundred requests that do not count."""
        documents = load.shape.documents
        if (target, documents) in self._speed:
            return
        endpoint = self._field.endpoint(target, documents)
        _check(endpoint, target, load)
        sent = Generator(endpoint.url, body(load.shape), closed_loop(4, _WARM_REQUESTS)).wait(_PATIENCE_SECONDS)
        self._speed[target, documents] = sample(sent, _WARM_REQUESTS).per_second

    def run(self, load: Load, target: str) -> Run:
        """Run one load at one target."""
        self.warm(target, load)
        documents = load.shape.documents
        endpoint = self._field.endpoint(target, documents)
        if load.rate:
            requests = round(load.rate * self._seconds)
            arguments = open_loop(load.rate, requests)
        else:
            requests = max(2 * load.concurrent, round(self._speed[target, documents] * self._seconds / 2))
            requests = min(_MOST_REQUESTS, requests)
            arguments = closed_loop(load.concurrent, requests)
        large_requests = round(_LARGE_RATE * self._seconds) if load.beside_large else 0
        before = cpu_seconds(endpoint.process)
        beside = (
            Generator(endpoint.url, body(LARGE), open_loop(_LARGE_RATE, large_requests)) if large_requests else None
        )
        sent = Generator(endpoint.url, body(load.shape), arguments).wait(_PATIENCE_SECONDS)
        others: list[Sent] = beside.wait(_PATIENCE_SECONDS) if beside is not None else []
        used = cpu_seconds(endpoint.process) - before
        told = sample(sent, requests)
        if len([entry for entry in others if entry.status == 200]) < large_requests:
            print(f"{target} under {load.name}: bodies of 5 MB failed", file=sys.stderr)
        return Run(told, used * 1e6 / max(1, len(sent) + len(others)))


def _check(endpoint: Endpoint, target: str, load: Load) -> None:
    """Raise RuntimeError unless a target answers with a score for every document, undegraded."""
    with httpx.Client(trust_env=False, timeout=30) as client:
        answer = client.post(endpoint.url, content=body(load.shape), headers={"content-type": "application/json"})
    told: Any = answer.json() if answer.status_code == 200 else {}
    count = len(told.get("results") or told.get("data") or ())
    if count != load.shape.documents or "x-cascade-degraded" in answer.headers:
        raise RuntimeError(f"{target} answered {answer.status_code} with {count} of {load.shape.documents} scores")


def _degraded(field: Field) -> dict[str, float]:
    """Return how many answers of each kind of sidecar were degraded: the figures are worth nothing where any was."""
    counts: dict[str, float] = {}
    with httpx.Client(trust_env=False, timeout=10) as client:
        for target, endpoint in field.sidecars():
            text = client.get(f"{endpoint.admin}/metrics").text
            found = re.findall(r"^cascade_degraded_total\{.*\} (\S+)$", text, re.MULTILINE)
            counts[target] = counts.get(target, 0.0) + sum(map(float, found))
    return counts


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return (done.stdout or done.stderr).strip().partition("\n")[0]


def _conditions(arguments: argparse.Namespace) -> dict[str, Any]:
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "machine": f"{os.cpu_count()} x {models[0] if models else platform.machine()}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cascade": version("cascade-rerank"),
        "nginx": _first_line("nginx", "-v"),
        "h2load": _first_line("h2load", "--version"),
        "litellm": litellm_version(arguments.litellm) if "litellm" in arguments.targets else None,
        "repetitions": arguments.repetitions,
        "seconds": arguments.seconds,
        "service_ms": arguments.service_ms,
        "load_average_before": os.getloadavg(),
    }


def _install_litellm(folder: Path) -> None:
    venv.create(folder, with_pip=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", _LITELLM], check=True, timeout=1800)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evals.bench.overhead", description=__doc__)
    parser.add_argument("--targets", default=",".join(TARGETS), help="which, in any order; direct always runs")
    parser.add_argument("--loads", help=f"which of {', '.join(load.name for load in LOADS if not load.support)}")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of an open loop; a closed one has half")
    parser.add_argument("--service-ms", type=float, default=0.0, help="how long the fake takes to answer")
    parser.add_argument("--quick", action="store_true", help="a smoke run: three loads, once, a second each")
    parser.add_argument("--litellm", type=Path, metavar="DIR", help="an environment with litellm[proxy]")
    parser.add_argument("--install-litellm", type=Path, metavar="DIR", help="make that environment first, with pip")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures and conditions there")
    given = parser.parse_args(arguments)
    given.targets = [name for name in TARGETS if name == "direct" or name in given.targets.split(",")]
    if given.quick:
        given.repetitions, given.seconds = 1, 1.0
    names = tuple(given.loads.split(",")) if given.loads else QUICK if given.quick else ()
    try:
        given.loads = with_services(names or tuple(load.name for load in LOADS if not load.support))
    except ValueError as error:
        parser.error(str(error))
    return given


def _all_runs(given: argparse.Namespace, field: Field) -> Runs:
    bench = Bench(field, given.seconds)
    for load in given.loads:
        for target in given.targets:
            if target == "direct" or not load.support:
                bench.warm(target, load)
    runs: list[tuple[Load, str, Run]] = []
    for repetition in range(given.repetitions):
        for load, target in plan(given.loads, given.targets, repetition):
            run = bench.run(load, target)
            runs.append((load, target, run))
            told = f"{run.sample.p50_ms:.2f} ms, {run.sample.per_second:.0f}/s"
            print(f"{repetition + 1} {load.name} {target}: {told}", file=sys.stderr)
    straight: dict[str, list[float]] = {}
    for load, target, run in runs:
        if target == "direct":
            straight.setdefault(load.name, []).append(run.sample.p50_ms)
    service_ms = {name: median(values) for name, values in straight.items()}
    cells: Runs = {target: {} for target in given.targets}
    for load, target, run in runs:
        if not load.support:
            cells[target].setdefault(load.name, []).append(measured(load, target, run, service_ms))
    return cells


def _report(cells: Runs, loads: Sequence[Load]) -> None:
    asked = {load.name: load.rate for load in loads}
    for title, figure, digits in (
        ("Added latency, median, ms", "added_p50_ms", 2),
        ("Added latency, 99th percentile, ms", "added_p99_ms", 2),
        ("Processor time of a request, us", "cpu_us", 0),
        ("Answers a second", "per_second", 0),
    ):
        print(f"\n{title}\n\n{table(cells, figure, digits=digits, asked=asked)}")
    print("\n" + "\n".join(aims(medians(cells))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print tables, and write the JSON file that was asked for; 1 where nothing can run."""
    given = _parse(arguments)
    if given.install_litellm is not None:
        _install_litellm(given.install_litellm)
        given.litellm = given.install_litellm
    lacks = missing(given.targets, service_ms=given.service_ms, litellm=given.litellm)
    for target, remedy in lacks.items():
        print(f"{remedy}" if target == "*" else f"{target} is left out: {remedy}", file=sys.stderr)
    if "*" in lacks:
        return 1
    given.targets = [target for target in given.targets if target not in lacks]
    conditions = _conditions(given)
    with (
        tempfile.TemporaryDirectory() as folder,
        Field(Path(folder), service_ms=given.service_ms, litellm=given.litellm) as field,
    ):
        cells = _all_runs(given, field)
        conditions["degraded_answers"] = _degraded(field)
    conditions["load_average_after"] = os.getloadavg()
    _report(cells, given.loads)
    if any(conditions["degraded_answers"].values()):
        print(f"degraded answers: {conditions['degraded_answers']}", file=sys.stderr)
    if given.json is not None:
        written = medians(cells) | {"conditions": conditions | {"spread": spread(cells)}}
        given.json.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
