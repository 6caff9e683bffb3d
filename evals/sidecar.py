"""Run ``cascade serve`` as a process of its own for the length of a block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

__all__ = ["running_sidecar"]

_START_SECONDS = 60.0


@contextmanager
def running_sidecar(release: Path | None = None) -> Iterator[tuple[str, str]]:
    """Start the sidecar on free ports; yield the addresses of its public and admin listeners.

    It keeps no scores: what is asked twice here shows what asking costs, with the vectors of documents kept.
    Raises RuntimeError with what it logged where it does not come up.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "cascade.cli", "serve", "--port", "0", "--admin-port", "0"]
        if release is not None:
            command += ["--release", str(release)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CASCADE__")}
        environment |= {"CASCADE__DRAIN_SECONDS": "0", "CASCADE__CACHE": "off"}
        with log.open("wb") as stream:
            process = subprocess.Popen(command, stderr=stream, env=environment)
        try:
            yield _addresses(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _addresses(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up and process.poll() is None:
        for line in log.read_bytes().splitlines():
            if b'"serving"' in line:
                told = orjson.loads(line)
                return told["public"], told["admin"]
        time.sleep(0.05)
    raise RuntimeError(f"the sidecar did not start: {log.read_text(encoding='utf-8')}")
