"""The real sidecar as a process, and a reranker server on a real socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import uvicorn
import yaml
from starlette.types import Receive, Scope, Send

from cascade.testing.upstream import FakeServer

__all__ = ["Process", "asgi", "cascade", "environment", "listening", "serving", "write_yaml"]

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02


def asgi(server: FakeServer) -> Any:
    """Put a fake server behind ASGI."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body", False):
                break
        request = httpx.Request(scope["method"], f"http://fake{scope['path']}", headers=scope["headers"], content=body)
        answering = asyncio.create_task(server(request))
        leaving = asyncio.ensure_future(receive())
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():  # its client went away: a server that computes drops its work then
            answering.cancel()
            await asyncio.wait((answering,))
            return
        leaving.cancel()
        response = answering.result()
        headers = [(name, value) for name, value in response.headers.raw if name.lower() != b"transfer-encoding"]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.content})

    return app


@contextmanager
def listening(server: FakeServer) -> Iterator[str]:
    """Serve a fake server on a free port in a thread of its own; give its address."""
    config = uvicorn.Config(
        asgi(server), http="httptools", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    runner = uvicorn.Server(config)
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=asyncio.run, args=(runner.serve([bound]),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        runner.should_exit = True
        thread.join()


def write_yaml(path: Path, value: Mapping[str, Any]) -> Path:
    """Write a mapping, and return where."""
    path.write_text(yaml.safe_dump(dict(value)), encoding="utf-8")
    return path


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without settings of the sidecar, and with ``variables``."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CASCADE")} | dict(variables)


def cascade(*arguments: str, stdin: bytes = b"", variables: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end."""
    command = [str(Path(sys.executable).parent / "cascade"), *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, check=False, timeout=_START_SECONDS, env=environment(variables)
    )


@dataclass(frozen=True, slots=True)
class Process:
    """A sidecar that serves."""

    popen: subprocess.Popen[bytes]
    public: str
    admin: str
    stderr: Path

    def events(self) -> list[dict[str, Any]]:
        """Return the log lines so far."""
        return _events(self.stderr)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit status."""
        self.popen.send_signal(number)
        return self.popen.wait(_STOP_SECONDS)


@contextmanager
def serving(folder: Path, *arguments: str, **variables: str) -> Iterator[Process]:
    """Start ``cascade serve`` on free ports, wait until it serves, and end it."""
    errors = folder / "stderr"
    command = [str(Path(sys.executable).parent / "cascade"), "serve", "--port", "0", "--admin-port", "0", *arguments]
    with errors.open("wb") as stream:
        popen = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment(variables))
        try:
            line = _wait_for_serving(popen, errors)
            yield Process(popen, line["public"], line["admin"], errors)
        finally:
            if popen.poll() is None:
                popen.kill()
            popen.wait(_STOP_SECONDS)


def _wait_for_serving(popen: subprocess.Popen[bytes], errors: Path) -> dict[str, Any]:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and popen.poll() is None:
        for event in _events(errors):
            if event["event"] == "serving":
                return event
        time.sleep(_POLL_SECONDS)
    raise AssertionError(errors.read_text(encoding="utf-8"))


def _events(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines that are log lines."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return [orjson.loads(line) for line in lines if line.startswith(b"{")]
