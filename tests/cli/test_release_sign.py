"""``cascade release keygen``, ``sign`` and ``verify --keys``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cascade.rollout.load import load_release
from tests.cli.conftest import Command
from tests.rollout.arrange import stage_data, write_release


@pytest.fixture
def keys(command: Command, tmp_path: Path) -> tuple[str, str]:
    """Make a pair of keys with the command; give both files."""
    private, public = str(tmp_path / "release.key"), str(tmp_path / "release.pub")
    done = command("release", "keygen", "--key", private, "--public", public)
    assert (done.status, done.err) == (0, "")
    assert done.out.endswith(f": {private} signs, {public} goes into release_keys_file\n")
    return private, public


def _settings(folder: Path, public: str) -> str:
    path = folder / "settings.yaml"
    path.write_text(f"release_keys_file: {public}\n", encoding="utf-8")
    return str(path)


def test_a_bundle_is_built_signed_and_verified(command: Command, tmp_path: Path, keys: tuple[str, str]) -> None:
    """Signed at building or afterwards it passes strictly, and unsigned it does not."""
    private, public = keys
    written = write_release(tmp_path)
    digest = load_release(written.path, {}).digest
    plain, signed, at_once = (str(tmp_path / f"{name}.tar") for name in ("plain", "signed", "at-once"))
    command("release", "build", str(written.path), "--out", plain)
    done = command("release", "sign", plain, "--key", private, "--out", signed)
    assert (done.status, done.out) == (0, f"{signed}: release r1, {digest}, signed\n")
    built = command("release", "build", str(written.path), "--out", at_once, "--key", private)
    assert (built.status, built.out.rstrip().endswith(", signed")) == (0, True)
    assert Path(at_once).read_bytes() == Path(signed).read_bytes()
    for bundle in (signed, at_once):
        done = command("release", "verify", bundle, "--strict", "--keys", public, "--digest", digest)
        assert (done.status, done.out) == (0, f"release r1, {digest}: passes --strict\n")
        assert command("config", "validate", "--release", bundle, "--config", _settings(tmp_path, public)).status == 0
    done = command("release", "verify", plain, "--keys", public)
    assert done.status == 1
    assert done.out.splitlines()[0].startswith("error: it is not signed, and release keys are set")


def test_the_key_of_another_does_not_count(command: Command, tmp_path: Path, keys: tuple[str, str]) -> None:
    """The error names both keys by their ids."""
    other, public = str(tmp_path / "other.key"), str(tmp_path / "other.pub")
    command("release", "keygen", "--key", other, "--public", public)
    bundle = str(tmp_path / "bundle.tar")
    command("release", "build", str(write_release(tmp_path).path), "--out", bundle, "--key", other)
    done = command("release", "verify", bundle, "--keys", keys[1])
    assert done.status == 1
    assert "which is none of the release keys" in done.out


def test_a_yaml_file_is_told_how_to_be_signed(command: Command, tmp_path: Path, keys: tuple[str, str]) -> None:
    """Signing it is exit 2, verifying it with keys exit 1."""
    path = str(write_release(tmp_path).path)
    done = command("release", "sign", path, "--key", keys[0], "--out", str(tmp_path / "x.tar"))
    assert (done.status, done.out) == (2, "")
    assert done.err == f"cascade: release {path}: a YAML file is no bundle; make one with cascade release build\n"
    done = command("release", "verify", path, "--keys", keys[1])
    assert (done.status, "cascade release build" in done.out) == (1, True)


_FREE_PORTS = {"CASCADE__PORT": "0", "CASCADE__ADMIN_PORT": "0"}


@pytest.mark.parametrize("command_line", ["serve", "config validate"])
def test_with_release_keys_an_unsigned_release_does_not_serve(
    command: Command, tmp_path: Path, keys: tuple[str, str], command_line: str
) -> None:
    """It is exit 2 with the sentence that says how to build and sign; the packaged one is unsigned too."""
    path = str(write_release(tmp_path).path)
    for options in (["--release", path], []):
        done = command(
            *command_line.split(), *options, variables={**_FREE_PORTS, "CASCADE__RELEASE_KEYS_FILE": keys[1]}
        )
        assert (done.status, done.out) == (2, "")
        last = done.err.splitlines()[-1]
        assert last.startswith("cascade: release ")
        assert "cascade release build" in last
        assert "cascade release sign" in last


def test_a_key_is_not_overwritten(command: Command, keys: tuple[str, str]) -> None:
    """It is exit 2, and the key is as it was."""
    before = Path(keys[0]).read_bytes()
    done = command("release", "keygen", "--key", keys[0], "--public", keys[1])
    assert (done.status, done.out) == (2, "")
    assert done.err.endswith("it is there; a key is never overwritten\n")
    assert Path(keys[0]).read_bytes() == before


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        (
            {"auth": {"file": "/run/secrets/nowhere"}},
            "error: auth: the file /run/secrets/nowhere cannot be read: FileNotFoundError",
        ),
        ({"ca_bundle": "/nowhere/ca.pem"}, "error: ca_bundle /nowhere/ca.pem: cannot be used: FileNotFoundError"),
    ],
)
def test_strictly_what_a_start_would_stumble_over_is_an_error(
    command: Command, tmp_path: Path, stage: dict[str, Any], told: str
) -> None:
    """Stages are built as an activation builds them; without --strict nobody looks."""
    stages = {"small": stage_data("small", **stage), "large": stage_data("large")}
    path = str(write_release(tmp_path, stages=stages).path)
    assert command("release", "verify", path).status == 0
    done = command("release", "verify", path, "--strict")
    assert (done.status, done.out.splitlines()[0]) == (1, told)


def test_strictly_a_credential_that_is_not_set_is_left_out(command: Command, tmp_path: Path) -> None:
    """Variables need not be set, those of tokens neither; one that holds nothing usable is an error."""
    stages = {
        "small": stage_data("small", url="${CASCADE_SMALL}", auth={"env": "SMALL_KEY"}),
        "large": stage_data("large"),
    }
    path = str(write_release(tmp_path, stages=stages).path)
    assert command("release", "verify", path, "--strict").status == 0
    done = command("release", "verify", path, "--strict", variables={"SMALL_KEY": " "})
    assert done.out.splitlines()[0] == "error: auth: the environment variable SMALL_KEY holds no usable token"


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_what_settings_let_no_release_name_is_an_error(
    command: Command, tmp_path: Path, strict: tuple[str, ...]
) -> None:
    """An activation refuses it too, and so does serve: variables and files are those of the settings."""
    stages = {"small": stage_data("small", url="${MY_SMALL}"), "large": stage_data("large")}
    path = str(write_release(tmp_path, stages=stages).path)
    done = command("release", "verify", path, *strict)
    assert (done.status, done.out.splitlines()[0].partition(" is not among")[0]) == (
        1,
        "error: the environment variable MY_SMALL",
    )
    settings = tmp_path / "settings.yaml"
    settings.write_text("release_variables: [MY_*]\n", encoding="utf-8")
    assert command("release", "verify", path, *strict, "--config", str(settings)).status == 0
    named = {"CASCADE__RELEASE_VARIABLES": "MY_*"}
    assert command("release", "verify", path, *strict, variables=named).status == 0


def test_a_file_that_settings_let_no_release_name_is_an_error(command: Command, tmp_path: Path) -> None:
    """It is told where every variable is set: it may stand in the file's name."""
    stages = {"small": stage_data("small", auth={"file": "${CASCADE_TOKEN}"}), "large": stage_data("large")}
    path = str(write_release(tmp_path, stages=stages).path)
    assert command("release", "verify", path).status == 0
    done = command("release", "verify", path, variables={"CASCADE_TOKEN": "/etc/shadow"})
    assert (done.status, done.out.splitlines()[0].partition(" is not among")[0]) == (
        1,
        "error: stages.small: the file /etc/shadow",
    )


def test_the_keys_of_settings_count_where_none_are_named(
    command: Command, tmp_path: Path, keys: tuple[str, str]
) -> None:
    """What serve would refuse unsigned is not verified either."""
    bundle = str(tmp_path / "bundle.tar")
    command("release", "build", str(write_release(tmp_path).path), "--out", bundle)
    assert command("release", "verify", bundle).status == 0
    done = command("release", "verify", bundle, variables={"CASCADE__RELEASE_KEYS_FILE": keys[1]})
    assert done.status == 1
    assert done.out.startswith("error: it is not signed, and release keys are set")


def test_what_a_release_says_does_nothing_to_a_terminal(command: Command, tmp_path: Path) -> None:
    """Models and instructions may hold anything: signs of control become question marks."""
    changes = {"small": stage_data("small", model="m\x1b[31m\n"), "large": stage_data("large")}
    one = str(write_release(tmp_path / "one").path)
    path = str(write_release(tmp_path / "other", stages=changes).path)
    for arguments in (("show", path), ("verify", path), ("diff", one, path)):
        done = command("release", *arguments)
        assert "m?[31m?" in done.out
        assert "\x1b" not in done.out
    stages = {
        "small": {
            "adapter": "onnx",
            "model": "m",
            "engine": "onnxruntime",
            "weights": {"package": "\x1b[31m\nm", "folder": "f"},
        }
    }
    path = str(write_release(tmp_path / "package", stages=stages, escalation="none").path)
    done = command("tune", path, "--lengths", str(tmp_path / "none"), "--out", str(tmp_path / "out"))
    assert (done.status, done.err.count("\n"), "\x1b" in done.err) == (2, 1, False)


def test_variables_that_no_release_may_name_are_not_shown(command: Command, tmp_path: Path) -> None:
    """Whoever looks at a release of others, in a pipeline above all, prints no secret of theirs by it."""
    stages = {"small": stage_data("small", model="${TOKEN_OF_OURS}"), "large": stage_data("large")}
    one = str(write_release(tmp_path / "one").path)
    path = str(write_release(tmp_path / "other", stages=stages).path)
    for arguments in (("show", path), ("verify", path), ("verify", path, "--strict"), ("diff", one, path)):
        done = command("release", *arguments, variables={"TOKEN_OF_OURS": "kingfisher"})
        assert "kingfisher" not in done.out + done.err
    named = command(
        "release", "show", path, variables={"CASCADE__RELEASE_VARIABLES": "TOKEN_OF_OURS", "TOKEN_OF_OURS": "m7"}
    )
    assert "m7" in named.out
