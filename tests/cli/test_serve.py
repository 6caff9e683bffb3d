"""``cascade serve`` that cannot start; tests/e2e serves with the real process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cli.conftest import Command, Done, WriteRelease

_STAGE: Final[dict[str, Any]] = {
    "adapter": "tei",
    "url": "${CASCADE_UPSTREAM_URL}",
    "model": "m",
    "engine": "tei/1.9",
}
_FREE_PORTS: Final = ("--port", "0", "--admin-port", "0")


def _refused(done: Done) -> str:
    """Check that nothing was served; return the one line that says why."""
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith("cascade: ")
    return line


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"depth": -1}, "depth.fixed.depth"),
        ({"tresholds": 1}, "tresholds"),
        ({"stages": {"small": _STAGE}}, "CASCADE_UPSTREAM_URL is not set"),
        ({"stages": {"small": {**_STAGE, "url": "http://x", "auth": {"env": "NO_KEY"}}}}, "NO_KEY"),
        ({"release": None}, "release"),
    ],
)
def test_a_bad_release_is_exit_2_and_one_line(
    command: Command, release: WriteRelease, change: dict[str, Any], named: str
) -> None:
    """The line names the file and the key, the missing variable, or the missing credential."""
    assert named in _refused(command("serve", *_FREE_PORTS, "--release", release(**change)))


def test_bad_settings_are_exit_2_and_one_line(command: Command, tmp_path: Path) -> None:
    """Unknown keys, values out of range and files that are missing are each named."""
    config = tmp_path / "settings.yaml"
    config.write_text(yaml.safe_dump({"prot": 1}), encoding="utf-8")
    assert "settings: prot: " in _refused(command("serve", "--config", str(config)))
    assert "settings: log_level: " in _refused(command("serve", "--log-level", "loud"))
    assert "settings: prot: " in _refused(command("serve", variables={"CASCADE__PROT": "1"}))
    missing = command("serve", *_FREE_PORTS, "--release", str(tmp_path / "none.yaml"))
    assert "cannot be read" in _refused(missing)
