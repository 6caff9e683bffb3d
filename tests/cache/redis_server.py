"""A real redis-server of a test's own, on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

__all__ = ["PASSWORD", "RedisServer"]

PASSWORD: Final = "canary-5f3a"
_START_SECONDS: Final = 20.0


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class RedisServer:
    """Start, pause and end one process; tests skip where the program is not installed (`scripts/redis`)."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("redis-server is not installed: run scripts/redis")
        self._program = program
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @property
    def url(self) -> str:
        """Return its address, with the password."""
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    def start(self, *options: str) -> None:
        """Start it, and wait until it listens."""
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        command += ["--save", "", "--appendonly", "no", "--requirepass", PASSWORD, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ends = time.monotonic() + _START_SECONDS
        while not self._listens():
            assert self._process.poll() is None, "redis-server ended"
            assert time.monotonic() < ends, "redis-server does not listen"
            time.sleep(0.02)

    def _listens(self) -> bool:
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", self.port)) == 0

    def pause(self) -> None:
        """Let it answer nothing, with its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it at once, if it is there."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
