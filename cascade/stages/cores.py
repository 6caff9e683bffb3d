"""Count the cores that this process may keep busy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["cpu_instructions", "has_int8_instructions", "usable_cores"]

_CONTROLLERS: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_CPU: Final = Path("/proc/cpuinfo")
_INT8: Final = frozenset({"avx512_vnni", "avx_vnni", "asimddp", "i8mm"})
"""What multiplies and adds 8-bit integers in one step: VNNI on x86, dotprod and i8mm on ARM."""


def usable_cores(controllers: Path = _CONTROLLERS, membership: Path = _MEMBERSHIP) -> int:
    """Return the cores that affinity allows, cut to the whole cores of the cgroup's quota, at least one.

    A container limited to two cores of a large machine has the affinity of the whole machine: more
    threads than the quota only get throttled together.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for folder in _folders(controllers, membership) if (quota := _quota(folder)) is not None]
    return max(1, int(min([allowed, *quotas])))


def cpu_instructions(cpu: Path = _CPU) -> frozenset[str] | None:
    """Return the instruction sets of the first core, as Linux names them; None where that cannot be read."""
    try:
        lines = cpu.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    told = (line.partition(":") for line in lines)
    return next((frozenset(value.split()) for key, _, value in told if key.strip() in {"flags", "Features"}), None)


def has_int8_instructions(instructions: frozenset[str] | None) -> bool:
    """Tell whether a CPU has what makes statically quantised int8 faster than float32. One that is not known has not."""
    return instructions is not None and not _INT8.isdisjoint(instructions)


def _folders(controllers: Path, membership: Path) -> list[Path]:
    """Return the folders whose limits hold for this process: its groups' and all above them."""
    try:
        lines = membership.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    folders = [controllers, controllers / "cpu"]  # what a container sees of its own group
    for line in lines:
        _, names, path = [*line.split(":", 2), "", ""][:3]
        if names and "cpu" not in names.split(","):
            continue
        root = controllers / "cpu" if names else controllers
        group = root / path.lstrip("/")
        folders += [folder for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return list(dict.fromkeys(folders))


def _quota(folder: Path) -> float | None:
    """Return the cores that one group may use: ``cpu.max`` of version 2, else the quota of version 1."""
    told = _words(folder / "cpu.max") or [
        *_words(folder / "cpu.cfs_quota_us"),
        *_words(folder / "cpu.cfs_period_us"),
    ]
    try:
        quota, period = map(int, told)
    except ValueError:  # "max", or a file is not there
        return None
    return quota / period if quota > 0 and period > 0 else None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []
