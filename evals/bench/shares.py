"""Where the sidecar's time goes: sampled with py-spy while it answers under a steady load.

    python -m evals.bench.shares [--target deciding] [--seconds 10] [--py-spy FILE]

Prints two tables of shares of all samples: by package of the innermost frame, and by function of the sidecar
with everything that it calls. Sampling slows the sidecar down, so no latency is measured here.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from evals.bench.generator import Generator, open_loop
from evals.bench.loads import Shape, body
from evals.bench.targets import Field, missing

__all__ = ["by_function", "by_package", "main", "parse_stacks"]

_FRAME: Final = re.compile(r"(?P<function>\S+) \((?P<file>[^:()]+)(?::\d+)?\)$")
_RATE: Final = 200
_SAMPLES_PER_SECOND: Final = 500

Stack = tuple[tuple[str, str], ...]
"""Frames from outermost to innermost, each a function and its file."""


def parse_stacks(text: str) -> list[tuple[Stack, int]]:
    """Read py-spy's raw form: frames joined by ``;``, then how many samples had them."""
    stacks = []
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        found = (_FRAME.search(frame) for frame in frames.split(";"))
        stack = tuple((match["function"], match["file"]) for match in found if match is not None)
        if stack and count.isdigit():
            stacks.append((stack, int(count)))
    return stacks


def by_package(stacks: Iterable[tuple[Stack, int]]) -> Counter[str]:
    """Count samples by the package of the innermost frame; the standard library is named by its module."""
    counts: Counter[str] = Counter()
    for stack, samples in stacks:
        counts[_package(stack[-1][1])] += samples
    return counts


def by_function(stacks: Iterable[tuple[Stack, int]], within: str = "cascade/") -> Counter[str]:
    """Count samples by each function under ``within`` that is on the stack, once a stack."""
    counts: Counter[str] = Counter()
    for stack, samples in stacks:
        own = {f"{file.removeprefix(within)} {function}" for function, file in stack if file.startswith(within)}
        counts.update(dict.fromkeys(own, samples))
    return counts


def _package(file: str) -> str:
    parts = file.partition("site-packages/")[2] or file
    first = parts.split("/")[0]
    return first.removesuffix(".py")


def _record(sampler: str, process: int, out: Path, seconds: int) -> None:
    command = [sampler, "record", "--pid", str(process), "--duration", str(seconds), "--format", "raw"]
    command += ["--rate", str(_SAMPLES_PER_SECOND), "--nolineno", "--output", str(out)]
    subprocess.run(command, check=True, timeout=seconds + 60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample one kind of sidecar and print its shares; 1 where a tool is missing."""
    parser = argparse.ArgumentParser(prog="python -m evals.bench.shares", description=__doc__)
    parser.add_argument("--target", choices=("pass-through", "deciding"), default="deciding")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--py-spy", default="py-spy", metavar="FILE", help="the sampler: pip install py-spy")
    given = parser.parse_args(arguments)
    lacks = missing((), service_ms=0.0, litellm=None)
    sampler = shutil.which(given.py_spy)
    if sampler is None or lacks:
        print("".join(lacks.values()) or "the sampler is missing: pip install py-spy", file=sys.stderr)
        return 1
    shape = Shape()
    with tempfile.TemporaryDirectory() as folder, Field(Path(folder), service_ms=0.0, litellm=None) as field:
        endpoint = field.endpoint(given.target, shape.documents)
        load = Generator(endpoint.url, body(shape), open_loop(_RATE, _RATE * (given.seconds + 5)))
        out = Path(folder) / "stacks"
        _record(sampler, endpoint.process, out, given.seconds)
        load.wait(60)
        stacks = parse_stacks(out.read_text(encoding="utf-8"))
    total = sum(samples for _, samples in stacks)
    print(f"{given.target}: {total} samples in {given.seconds} s at {_RATE}/s")
    for title, counts in (("innermost package", by_package(stacks)), ("function, inclusive", by_function(stacks))):
        print(f"\n| {title} | share |\n|---|---:|")
        print("\n".join(f"| {name} | {count / total:.1%} |" for name, count in counts.most_common(40)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
