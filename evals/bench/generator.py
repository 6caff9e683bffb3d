"""Drive load with h2load, and read what it wrote down of each request."""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "Generator",
    "Sample",
    "Sent",
    "clients_for",
    "closed_loop",
    "open_loop",
    "parse_log",
    "percentile",
    "sample",
]

_INTERVAL_SECONDS: Final = 0.2
"""One client sends no faster than this, so that a slow answer holds only later requests of its own client up."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One answered request: when it began, its status, and how long it took, in microseconds."""

    began_us: int
    status: int
    took_us: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run of one load came to. ``failed`` counts requests without a 200."""

    requests: int
    failed: int
    p50_ms: float
    p99_ms: float
    per_second: float


def clients_for(rate: int) -> int:
    """Return how many clients share an open loop's rate."""
    return max(1, round(rate * _INTERVAL_SECONDS))


def open_loop(rate: int, requests: int) -> list[str]:
    """Return h2load's arguments for ``rate`` requests a second, evenly spaced over all clients.

    Each client keeps its own clock, so their starts are spaced too; begun together they would send in bursts.
    """
    clients = clients_for(rate)
    spacing = [f"--rate-period={1000 // rate}ms", "-r", "1"] if clients > 1 else []
    return ["-c", str(clients), *spacing, f"--rps={rate / clients:g}", "-n", str(max(requests, clients))]


def closed_loop(concurrent: int, requests: int) -> list[str]:
    """Return h2load's arguments for ``concurrent`` clients, each sending when it has its answer."""
    return ["-c", str(concurrent), "-n", str(max(requests, concurrent))]


class Generator:
    """One h2load run, begun at once; ``wait`` gives its requests."""

    def __init__(self, url: str, body: bytes, arguments: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        data, self._log = Path(self._folder.name, "body"), Path(self._folder.name, "log")
        data.write_bytes(body)
        command = ["h2load", "--h1", "-d", str(data), f"--log-file={self._log}"]
        command += ["-H", "content-type: application/json", *arguments, url]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self, seconds: float) -> list[Sent]:
        """Return the answered requests. A run that is not over after ``seconds`` is ended, and counts as far as it got."""
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=30)
        text = self._log.read_text(encoding="ascii") if self._log.exists() else ""
        self._folder.cleanup()
        return parse_log(text)


def parse_log(text: str) -> list[Sent]:
    """Read h2load's log: begin, status and duration, tab-separated; a line that was cut off is left out."""
    rows = (line.split("\t") for line in text.splitlines())
    return [Sent(int(row[0]), int(row[1]), int(row[2])) for row in rows if len(row) == 3 and row[2].isdigit()]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile: the least value that at least ``share`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def sample(sent: Sequence[Sent], requests: int) -> Sample:
    """Sum a run up. Only requests answered 200 are timed. Raises RuntimeError where there is none."""
    good = [entry for entry in sent if entry.status == 200]
    if not good:
        raise RuntimeError("no request was answered with 200")
    took = [entry.took_us / 1000 for entry in good]
    span_us = max(entry.began_us + entry.took_us for entry in good) - min(entry.began_us for entry in good)
    return Sample(
        requests=requests,
        failed=requests - len(good),
        p50_ms=percentile(took, 0.50),
        p99_ms=percentile(took, 0.99),
        per_second=len(good) / max(span_us, 1) * 1e6,
    )
