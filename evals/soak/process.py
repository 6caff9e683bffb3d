"""What a process holds: memory, descriptors, tasks."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson

__all__ = ["Held", "Insides", "Stall", "growth_mb", "held_by", "insides_of"]

_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Held:
    """What a process held at a second of the run."""

    at_s: float
    rss_mb: float
    descriptors: int
    sockets: int
    threads: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A time when the sidecar's loop did nothing else: since when on the monotonic clock, how long, how busy itself."""

    began_s: float
    ms: float
    computed_ms: float

    @property
    def without_core_ms(self) -> float:
        """Return how long it had no core to run on."""
        return max(0.0, self.ms - self.computed_ms)


@dataclass(frozen=True, slots=True)
class Insides:
    """What a process said of itself: its tasks by name, the objects that the collector watches, and its stalls."""

    tasks: int
    objects: int
    names: dict[str, int]
    stalls: list[Stall]


def held_by(process: int, at_s: float) -> Held:
    """Read what a process holds."""
    folder = Path(f"/proc/{process}")
    lines = (folder / "status").read_text(encoding="utf-8").splitlines()
    status = dict(line.split(":", 1) for line in lines)
    links = []
    for entry in (folder / "fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    sockets = sum(link.startswith("socket:") for link in links)
    rss_mb = int(status["VmRSS"].split()[0]) / 1024
    return Held(round(at_s, 1), round(rss_mb, 1), len(links), sockets, int(status["Threads"]))


def insides_of(process: int, told: Path) -> Insides:
    """Ask a process of `evals.soak.served` for its tasks and objects. Raises RuntimeError where it does not say."""
    before = told.stat().st_size if told.exists() else 0
    os.kill(process, signal.SIGUSR1)
    give_up = time.monotonic() + _PATIENCE_S
    while time.monotonic() < give_up:
        if told.exists() and told.stat().st_size > before and told.read_bytes().endswith(b"\n"):
            line: dict[str, Any] = orjson.loads(told.read_bytes().splitlines()[-1])
            stalls = [Stall(*each) for each in line["stalls"]]
            return Insides(line["tasks"], line["objects"], line["names"], stalls)
        time.sleep(0.05)
    raise RuntimeError("the sidecar did not tell of its tasks")


def growth_mb(samples: list[Held]) -> float:
    """Return by how much the median memory of the last fifth is above that of the second fifth: the first warms up."""
    fifth = len(samples) // 5
    if not fifth:
        return 0.0
    early = median(held.rss_mb for held in samples[fifth : 2 * fifth])
    late = median(held.rss_mb for held in samples[-fifth:])
    return round(late - early, 1)
