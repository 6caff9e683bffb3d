"""The wheel in an environment that has what the image has, far from any checkout; and the bill of materials."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cascade import __version__

from .conftest import ROOT, Built

pytestmark = pytest.mark.package

_LOCK: Final = ROOT / "deploy" / "requirements.lock"
_STOP_SECONDS: Final = 40


@pytest.fixture(scope="module")
def programs(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install as the Dockerfile does; return the folder of the environment's programs."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("deploy/requirements.lock is for Python 3.11")
    home = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(_LOCK), cwd=home)
    _run(*pip, "--no-deps", "--no-index", str(built.wheel), cwd=home)
    _run(str(home / "bin" / "pip"), "check", cwd=home)
    return home / "bin"


def _environment() -> dict[str, str]:
    """Return this process's environment without what leads to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("CASCADE", "PYTHON"))}


def _run(*command: str, cwd: Path, stdin: str = "") -> str:
    done = subprocess.run(
        command, cwd=cwd, env=_environment(), input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_is_there(programs: Path, tmp_path: Path) -> None:
    """It tells its version, and prints every packaged release."""
    assert _run(str(programs / "cascade"), "--version", cwd=tmp_path).strip() == __version__
    example = _run(str(programs / "cascade"), "config", "example", "tei-vllm", cwd=tmp_path)
    assert example == (ROOT / "policies" / "tei-vllm.yaml").read_text(encoding="utf-8")


def test_it_serves_the_packaged_release(programs: Path, tmp_path: Path) -> None:
    """Both embedded stages score, with no network and no checkout; SIGTERM ends it with status 0."""
    command = [str(programs / "cascade"), "serve", "--port", "0", "--admin-port", "0"]
    environment = _environment() | {"HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            answer = httpx.post(
                f"{_public(process)}/rerank",
                json={"query": "why do boats float", "texts": ["Bread is baked.", "A hull displaces water."]},
                timeout=30,
            )
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=_STOP_SECONDS)
        finally:
            process.kill()
    assert [each["index"] for each in answer.json()] == [1, 0]
    assert answer.headers["x-cascade-stage"] == "large"
    assert "x-cascade-degraded" not in answer.headers
    assert process.returncode == 0, rest


def _public(process: subprocess.Popen[str]) -> str:
    """Wait for the line that tells the address."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        told: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if told.get("event") == "serving":
            return str(told["public"])
    raise AssertionError("".join(seen))


def test_the_bill_of_materials_is_the_lock(tmp_path: Path) -> None:
    """Every package that the image installs, in its version and with its hashes; twice the same bytes."""
    bills = [tmp_path / "a.cdx.json", tmp_path / "b.cdx.json"]
    for bill in bills:
        subprocess.run([ROOT / "scripts" / "sbom", bill], check=True)
    assert bills[0].read_bytes() == bills[1].read_bytes()
    told = json.loads(bills[0].read_text(encoding="utf-8"))
    assert (told["bomFormat"], told["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    pins = re.findall(r"^([a-z0-9-]+)==(\S+)", _LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted((each["name"], each["version"]) for each in told["components"]) == sorted(pins)
    assert all(each["externalReferences"][0]["hashes"] for each in told["components"])
