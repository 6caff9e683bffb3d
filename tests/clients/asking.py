"""Run clients in their own environment, one process for each family of them."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .install import CLIENTS

__all__ = ["Answers", "Found", "Outcome", "Raised", "ask", "run"]

_DRIVER: Final = Path(__file__).resolve().parent / "driver.py"
_PATIENCE_S: Final = 300.0
# What makes clients fetch price tables, tokenizers and telemetry from elsewhere.
_SETTINGS: Final = {
    "ANONYMIZED_TELEMETRY": "False",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_INHERITED: Final = ("HOME", "LANG", "PATH", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Found:
    """An order as a client hands it to its user. ``documents`` are those that it hands over as the server's."""

    places: tuple[int, ...]
    scores: tuple[float, ...]
    documents: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """What a client raised, its message, and the status that the exception carries, if it does."""

    kind: str
    told: str
    status: int | None


Outcome = Found | Raised


@dataclass(frozen=True, slots=True)
class Answers:
    """Outcomes by client and case. ``strayed`` are hosts that were looked up or connected to off this machine."""

    outcomes: Mapping[str, Mapping[str, Outcome]]
    strayed: tuple[str, ...]


def run(arguments: Sequence[str | Path], stdin: bytes = b"", variables: Mapping[str, str] | None = None) -> bytes:
    """Run the clients' Python with few variables of the environment and these; return what it wrote."""
    assert CLIENTS.marker.exists(), f"{CLIENTS.folder.name} is not installed: run scripts/clients install"
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    done = subprocess.run(
        [CLIENTS.bin / "python", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=_PATIENCE_S,
        env=inherited | _SETTINGS | dict(variables or {}),
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    return done.stdout


def ask(requests: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Answers:
    """Send the requests of each client and case; see the driver for their form."""
    told = json.loads(run([_DRIVER], json.dumps(requests).encode()))
    outcomes = {
        name: {case: _outcome(outcome) for case, outcome in cases.items()} for name, cases in told["outcomes"].items()
    }
    return Answers(outcomes, tuple(told["strayed"]))


def _outcome(told: Mapping[str, Any]) -> Outcome:
    if "found" not in told:
        return Raised(told["raised"], told["told"], told["status"])
    places, scores, documents = zip(*told["found"], strict=True) if told["found"] else ((), (), ())
    return Found(places, scores, documents)
