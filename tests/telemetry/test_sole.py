"""One process alone writes where two would spoil it for each other."""

from __future__ import annotations

import errno
import fcntl
import io
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from cascade.errors import ConfigError
from cascade.telemetry.logs import configure_logging
from cascade.telemetry.sole import sole

_HOLDS = """
import pathlib, sys
from cascade.telemetry.sole import sole
with sole(pathlib.Path(sys.argv[1]), "x"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    """The error names what is held; the file of the lock stays and hinders nobody."""
    lock = tmp_path / "lock"
    told = pytest.raises(ConfigError, match=r"^state_folder /x is in use by another process; give each its own$")
    with sole(lock, "state_folder /x"), told, sole(lock, "state_folder /x"):
        pytest.fail("held twice")
    assert lock.exists()
    with sole(lock, "state_folder /x"):
        pass


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    """Nothing has to be cleared away before the next start."""
    lock = tmp_path / "lock"
    command = [sys.executable, "-c", _HOLDS, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"held\n"
            with pytest.raises(ConfigError, match="in use by another process"), sole(lock, "x"):
                pytest.fail("held twice")
        finally:
            process.kill()
    with sole(lock, "x"):
        pass


def test_a_place_where_no_file_can_be_is_an_error(tmp_path: Path) -> None:
    """It says what it is for, and what the system says; a link is not followed."""
    with (
        pytest.raises(ConfigError, match=r"^x: cannot be used: No such file or directory$"),
        sole(tmp_path / "a" / "b", "x"),
    ):
        pytest.fail("held")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"^x: cannot be used: "), sole(tmp_path / "link", "x"):
        pytest.fail("held")


def test_where_there_are_no_locks_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems have none: it goes on. Another fault of the system's is an error."""
    stream = io.BytesIO()
    configure_logging("info", stream)
    fails = OSError(errno.ENOLCK, "No locks available")

    def flock(descriptor: int, operation: int) -> None:
        raise fails

    monkeypatch.setattr(fcntl, "flock", flock)
    with sole(tmp_path / "lock", "x"):
        (line,) = map(orjson.loads, stream.getvalue().splitlines())
    assert (line["level"], line["what"], line["why"]) == ("warning", "x", "No locks available")
    fails = OSError(errno.EIO, "Input/output error")
    with (
        pytest.raises(ConfigError, match=r"^x: lock cannot be locked: Input/output error$"),
        sole(tmp_path / "lock", "x"),
    ):
        pytest.fail("held")
