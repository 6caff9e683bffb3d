"""Run the whole sidecar as its own process, as an operator does."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

import cascade

from .servers import Server, free_port, running

__all__ = ["Sidecar", "release_of", "sidecar"]

_HOST = "127.0.0.1"
_START_S = 60.0
_ANSWER_S = 60.0
_UNDER_TEST = str(Path(cascade.__file__).resolve().parents[1])
"""The code that the tests import is what the process runs, wherever the command was installed from."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A sidecar that is ready. ``log`` is everything that it has written."""

    public: str
    admin: str
    log: Path

    def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Post JSON to the public listener, whatever comes back."""
        return httpx.post(self.public + path, json=dict(body), trust_env=False, timeout=_ANSWER_S)

    def status(self) -> dict[str, Any]:
        """Return what the admin listener says of the release and its stages."""
        answer = httpx.get(self.admin + "/status", trust_env=False, timeout=_ANSWER_S).raise_for_status()
        told: dict[str, Any] = answer.json()
        return told


def release_of(
    name: str, small: Server, large: Server, *, adapter: str, top_m: int, large_ms: float = 20_000.0
) -> dict[str, Any]:
    """Return a release with llama.cpp as its small stage and ``large`` behind ``adapter``, in ample time."""
    tei = {"adapter": "tei", "url": small.base_url, "model": small.model, "engine": f"llama.cpp/{small.version}"}
    behind = {"adapter": adapter, "url": large.base_url, "model": large.model, "engine": large.version}
    return {
        "release": name,
        "stages": {"small": tei, "large": behind},
        "depth": 50,
        "escalation": {"kind": "static", "top_m": top_m},
        "budgets": {"total_ms": 40_000.0, "small_ms": 20_000.0, "large_ms": large_ms, "reserve_ms": 50.0},
    }


@contextmanager
def sidecar(folder: Path, release: Mapping[str, Any]) -> Iterator[Sidecar]:
    """Run ``cascade serve`` with a release in the existing ``folder``; raises EngineStartError when it is not ready."""
    port, admin_port = free_port(), free_port()
    file = folder / f"release-{port}.yaml"
    file.write_text(json.dumps(release), encoding="utf-8")  # JSON is YAML too
    command = [str(Path(sys.executable).with_name("cascade")), "serve", "--release", str(file)]
    command += ["--host", _HOST, "--port", str(port), "--admin-host", _HOST, "--admin-port", str(admin_port)]
    log = folder / f"cascade-{port}.log"
    settings = {"CASCADE__DRAIN_SECONDS": "0", "CASCADE__CACHE": "off", "PYTHONPATH": _UNDER_TEST}
    with running(command, settings, port, log, _START_S):
        yield Sidecar(f"http://{_HOST}:{port}", f"http://{_HOST}:{admin_port}", log)
