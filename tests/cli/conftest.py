"""Run the command line in this process."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import yaml

from cascade.cli import main
from cascade.telemetry.logs import configure_logging
from tests.logs import logging_given_back
from tests.server.admin_listener import Listener, admin_listener

_NONE: Final[Mapping[str, str]] = {}
BARE: Final[dict[str, Any]] = {
    "release": "bare-1",
    "stages": {},
    "depth": 0,
    "escalation": "none",
    "budgets": {"total_ms": 1000, "small_ms": 100, "large_ms": 100, "reserve_ms": 10},
}
"""A release that needs nothing."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended, and what it wrote."""

    status: int
    out: str
    err: str


class Command(Protocol):
    """Run ``cascade`` with arguments, stdin and variables."""

    def __call__(self, *arguments: str, stdin: bytes = b"", variables: Mapping[str, str] = _NONE) -> Done:
        """Return how it ended."""
        ...


class WriteRelease(Protocol):
    """Write a release that needs nothing, changed by some fields."""

    def __call__(self, **fields: Any) -> str:
        """Return its path."""
        ...


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Give a function that runs ``cascade`` as its console script does."""

    def run(*arguments: str, stdin: bytes = b"", variables: Mapping[str, str] = _NONE) -> Done:
        for name in [name for name in os.environ if name.startswith("CASCADE")]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["cascade", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return Done(int(ended.value.code or 0), written.out, written.err)

    with logging_given_back():
        yield run


@pytest.fixture
def release(tmp_path: Path) -> WriteRelease:
    """Give a function that writes a release."""

    def write(**fields: Any) -> str:
        path = tmp_path / "release.yaml"
        path.write_text(yaml.safe_dump({**BARE, **fields}), encoding="utf-8")
        return str(path)

    return write


class Rollout(Protocol):
    """Run ``cascade rollout`` against the listener."""

    def __call__(self, *arguments: str, width: int = 80, variables: Mapping[str, str] = _NONE) -> Done:
        """Return how it ended."""
        ...


@pytest.fixture(scope="module")
def served() -> Iterator[Listener]:
    """Listen once for all tests."""
    with admin_listener() as made:
        yield made


@pytest.fixture
def listener(command: Command, served: Listener) -> Listener:
    """Give the listener with a desk that was asked nothing; its log is in memory: what the command prints is its own."""
    configure_logging("info", io.BytesIO())
    return served.afresh()


@pytest.fixture
def rollout(command: Command, listener: Listener) -> Rollout:
    """Give a function that runs the command at the listener, on a terminal of a width."""

    def run(*arguments: str, width: int = 80, variables: Mapping[str, str] = _NONE) -> Done:
        told = {"CASCADE_ADMIN_URL": listener.url, "COLUMNS": str(width), **variables}
        return command("rollout", *arguments, variables=told)

    return run
