"""Name the Python environments that hold the engines."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["ENVIRONMENTS", "Engine", "Environment", "environment", "locked_by"]

_HERE = Path(__file__).resolve().parent
ENVIRONMENTS = _HERE.parents[1] / ".engines"


class Engine(StrEnum):
    """A server that tests start; its value names its requirements file and its environment."""

    INFINITY = "infinity"
    LLAMACPP = "llamacpp"
    VLLM = "vllm"


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a locked requirements file is installed."""

    requirements: Path
    folder: Path

    @property
    def marker(self) -> Path:
        """Return the file that installation writes last: without it the folder is half-installed."""
        return self.folder / "complete"

    @property
    def bin(self) -> Path:
        """Return the folder of the environment's programs, `python` among them."""
        return self.folder / "bin"


def locked_by(requirements: Path) -> Environment:
    """Return the environment that holds exactly what a requirements file says now.

    Its folder carries the first 12 hex digits of that file's SHA-256, so changed requirements are
    another environment.
    """
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    return Environment(requirements, ENVIRONMENTS / f"{requirements.stem}-{digest[:12]}")


def environment(engine: Engine) -> Environment:
    """Return the environment of an engine."""
    return locked_by(_HERE / f"{engine}.txt")
