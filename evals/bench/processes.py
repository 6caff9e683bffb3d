"""Start processes, count what they use of the processor, and end them, each by its id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["clean_environment", "cpu_seconds", "free_port", "listens", "parse_stat", "running"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    *,
    ready: Callable[[Path], bool],
    seconds: float,
    environment: Mapping[str, str],
) -> Iterator[int]:
    """Run a command for the length of the block; yield its process id once ``ready(log)``.

    Raises RuntimeError with the end of its log where it is not ready in time.
    """
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=dict(environment))
    try:
        give_up = time.monotonic() + seconds
        while not ready(log):
            if process.poll() is not None or time.monotonic() > give_up:
                told = log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{command[0]} did not start: {told}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=30)


def clean_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without proxies and the sidecar's settings, and with ``more``.

    A sidecar keeps no scores then: benches ask the same again, and measure what asking costs.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CASCADE__") and not name.lower().endswith("_proxy")
    }
    return kept | {"CASCADE__CACHE": "off"} | more


def free_port() -> int:
    """Return a port of the loopback that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
    return port


def listens(port: int) -> bool:
    """Tell whether something accepts connections on a port of the loopback."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def parse_stat(text: str) -> tuple[int, int]:
    """Return the parent's id and utime + stime in clock ticks from ``/proc/PID/stat``.

    The command's name stands in brackets and may hold any character, brackets too.
    """
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[11]) + int(fields[12])


def cpu_seconds(root: int) -> float:
    """Return the processor time that a process and its living descendants have used."""
    known: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                known[int(entry.name)] = parse_stat((entry / "stat").read_text(encoding="utf-8", errors="replace"))
            except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
                continue
    tree = {root}
    grew = True
    while grew:
        children = {process for process, (parent, _) in known.items() if parent in tree} - tree
        tree |= children
        grew = bool(children)
    return sum(known[process][1] for process in tree if process in known) / _TICKS
