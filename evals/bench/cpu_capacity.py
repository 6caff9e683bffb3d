"""Queries a second at a deadline on this machine's cores, served over HTTP, and what they cost.

    python -m evals.bench.cpu_capacity --json FILE
    python -m evals.bench.cpu_capacity --targets large --candidates 20 --requests 40 --steps 3       # a few minutes

For each target, deadline and number of candidates the highest rate is searched at which 99% of the answers are in time and
undegraded. Prices are assumptions of whoever gives them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson
import yaml

from cascade.policy.release import OnnxStage
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.machine import this_machine
from cascade.tuning.length_sources import lengths_of_file
from cascade.tuning.texts import Words
from cascade.tuning.token_counter import token_counter
from evals.bench.cpu_rate import breakeven_rate, confirmed, cost_of_1000, highest_rate, requests_of_probe
from evals.bench.cpu_requests import Bodies, Target, mixed_lengths, probed
from evals.bench.processes import clean_environment, running

__all__ = ["TARGETS", "main", "release_of"]

TARGETS: Final = ("large", "cascade")
_MOST_LOAD: Final = 1.3
"""The highest rate probed, of those that requests one after the other would come to."""
_LEAST_LOAD: Final = 0.2
_ALONE: Final = 5
_WARM_UP: Final = 3
_START_S: Final = 120.0
_TRIES: Final = 10


def release_of(target: str, deadline_ms: float) -> dict[str, Any]:
    """Return the packaged release for a target: its large stage alone on every candidate, or both as they are.

    It has no levels: what it does at one rate it does at all. A stage may use the whole deadline.
    """
    base = yaml.safe_load(default_release_path().read_text(encoding="utf-8"))
    for key in ("levels", "evidence"):
        base.pop(key)
    base["release"] = f"capacity-{target}"
    base["budgets"] = {"total_ms": deadline_ms, "small_ms": deadline_ms, "large_ms": deadline_ms, "reserve_ms": 20}
    if target == "large":
        most = base["limits"]["max_candidates"]
        base["stages"] = {"large": base["stages"]["large"]}
        base |= {"depth": most, "escalation": {"kind": "static", "top_m": most}}
    return dict(base)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for; print a table, and write all of it as JSON."""
    given = _parsed(arguments)
    lengths = mixed_lengths(given.seed) if given.lengths is None else lengths_of_file(given.lengths, given.seed)
    before = os.getloadavg()[0]
    found = []
    for target in given.targets:
        for deadline_ms in given.deadline_ms:
            with _served(target, deadline_ms) as url:
                for candidates in given.candidates:
                    bodies = Bodies(
                        _words(),
                        lengths,
                        candidates=candidates,
                        deadline_ms=deadline_ms,
                        known_share=given.known_share,
                        seed=given.seed,
                    )
                    row = asyncio.run(_searched(Target(url, deadline_ms), bodies, given))
                    found.append({"target": target, "candidates": candidates, "deadline_ms": deadline_ms, **row})
                    print(_line(found[-1], given), flush=True)
    if given.json is not None:
        conditions = {**asdict(this_machine()), "load_average_before": before, "host": platform.machine()}
        asked = {name: value for name, value in vars(given).items() if name not in {"json", "lengths"}}
        told = {"conditions": conditions, "asked": asked, "lengths": lengths.told().model_dump(), "found": found}
        given.json.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2) + b"\n")


async def _searched(target: Target, bodies: Bodies, given: argparse.Namespace) -> dict[str, Any]:
    """Return the time of requests alone, the highest rate that holds twice, and every probe."""
    await probed(target, bodies, 1000.0, _WARM_UP, given.seed)
    alone = [await probed(target, bodies, 1000.0, 1, given.seed) for _ in range(_ALONE)]
    alone_ms = sorted(each.p50_ms for each in alone)
    in_time_ms = [each.p50_ms for each in alone if each.holds]
    if not in_time_ms:
        return {"alone_ms": alone_ms, "per_s": None, "probes": [asdict(each) for each in alone]}
    pace = 1000.0 / max(median(in_time_ms), 0.1)
    seeds = iter(range(given.seed, given.seed + 1000))

    async def probe(rate: float) -> Any:
        requests = requests_of_probe(rate, most=given.requests, seconds=given.seconds, deadline_ms=target.deadline_ms)
        return await probed(target, bodies, rate, requests, next(seeds))

    rate, probes = await highest_rate(probe, _LEAST_LOAD * pace, _MOST_LOAD * pace, given.steps)
    if rate is not None:
        rate, again = await confirmed(probe, rate, _TRIES)
        probes += again
    return {"alone_ms": alone_ms, "per_s": rate, "probes": [asdict(each) for each in probes]}


def _line(row: dict[str, Any], given: argparse.Namespace) -> str:
    rate = row["per_s"]
    name = f"{row['target']:<8} {row['candidates']:>4} candidates, {row['deadline_ms']:g} ms"
    alone = f"alone {row['alone_ms'][_ALONE // 2]:.0f} ms"
    if rate is None:
        return f"{name}: no rate holds twice; {alone}"
    cost = cost_of_1000(given.cpu_price, rate)
    even = breakeven_rate(given.cpu_price, rate, given.gpu_price)
    return (
        f"{name}: {rate:.2f}/s; {alone}; {cost:.4f} per 1,000 at {given.cpu_price:g} an hour; "
        f"a GPU at {given.gpu_price:g} an hour costs less from {even:.1f}/s"
    )


@contextmanager
def _served(target: str, deadline_ms: float) -> Iterator[str]:
    """Serve a target in a process of its own for the length of the block; give the address of its native route."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "release.yaml"
        path.write_text(yaml.safe_dump(release_of(target, deadline_ms)), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "cascade.cli",
            "serve",
            "--release",
            str(path),
            "--port",
            "0",
            "--admin-port",
            "0",
        ]
        log = folder / "log"
        environment = clean_environment(CASCADE__DRAIN_SECONDS="0", CASCADE__LEFTOVER_SECONDS="1")
        with running(
            command, log, ready=lambda log: _address(log) is not None, seconds=_START_S, environment=environment
        ):
            yield f"{_address(log)}/v1/cascade/rerank"


def _address(log: Path) -> str | None:
    for line in log.read_bytes().splitlines():
        if b'"serving"' in line:
            return str(orjson.loads(line)["public"])
    return None


def _words() -> Words:
    large = load_release(default_release_path(), {}).release.stages.large
    if not isinstance(large, OnnxStage):
        raise TypeError("the packaged release has no cross-encoder of its own")
    return Words.counted_by(token_counter(large.weights))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m evals.bench.cpu_capacity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--targets", type=_names, default=TARGETS, help="large, cascade")
    parser.add_argument("--candidates", type=_counts, default=(20, 50, 100))
    parser.add_argument("--deadline-ms", type=_counts, default=(3000,))
    parser.add_argument("--requests", type=int, default=100, help="of a probe; 1%% of them may be late or degraded")
    parser.add_argument(
        "--seconds",
        type=float,
        default=180.0,
        help="of a probe, about; it has 20 requests at least, and lasts five deadlines",
    )
    parser.add_argument("--steps", type=int, default=5, help="halvings of the search")
    parser.add_argument("--known-share", type=float, default=0.0, help="documents that come again and again")
    parser.add_argument(
        "--lengths", type=Path, help="file of lengths as cascade tune takes it; unset: 33 to 400 tokens"
    )
    parser.add_argument("--cpu-price", type=float, default=0.10, help="assumed price of the two cores an hour")
    parser.add_argument("--gpu-price", type=float, default=0.80, help="assumed price of a GPU an hour")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if given.json is not None and not given.json.absolute().parent.is_dir():
        parser.error("--json: its folder is not there")
    if (
        min(given.requests, given.steps, given.seconds) < 1
        or not 0 <= given.known_share <= 1
        or min(given.cpu_price, given.gpu_price) <= 0
    ):
        parser.error("--requests and --steps from 1 up, --known-share from 0 to 1, prices above 0")
    return given


def _names(written: str) -> tuple[str, ...]:
    names = tuple(written.split(","))
    if unknown := [name for name in names if name not in TARGETS]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are {', '.join(TARGETS)}")
    return names


def _counts(written: str) -> tuple[int, ...]:
    counts = tuple(map(int, written.split(",")))
    if min(counts) < 1:
        raise argparse.ArgumentTypeError("numbers from 1 up")
    return counts


if __name__ == "__main__":
    main()
