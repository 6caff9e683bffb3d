"""The audit of the locks never says that all is well where it could not ask."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[1] / "scripts" / "audit.py"


@contextmanager
def _service(status: int, body: bytes) -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/pypi"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _asked(service: str) -> tuple[int, str]:
    command = [sys.executable, str(_SCRIPT), "--service", service]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/nowhere"}, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b'{"info": {}, "vulnerabilities": []}', "knows no fault of urllib3/1.24.1"),
        (200, b"{}", "knows no fault"),
        (200, b"[]", "knows no fault"),
        (200, b"<html>", "does not answer (JSONDecodeError)"),
        (404, b"{}", "does not answer (HTTPError)"),
        (503, b"", "does not answer (HTTPError)"),
    ],
)
def test_a_service_that_tells_nothing_was_not_asked(status: int, body: bytes, why: str) -> None:
    """A mirror of packages answers too, and knows of no faults: that is another exit status, and no success."""
    with _service(status, body) as service:
        code, told = _asked(service)
    assert code == 3
    assert told.startswith("audit: NOT ASKED: ")
    assert why in told


def test_a_service_that_is_not_there_was_not_asked() -> None:
    """Nor was one that is no https address."""
    for service in ("http://127.0.0.1:9/pypi", "http://mirror.test/pypi"):
        code, told = _asked(service)
        assert (code, "NOT ASKED" in told) == (3, True)
