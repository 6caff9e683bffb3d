"""What ``cascade rollout`` does not take, what it does not reach, and what it does not tell."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cascade.errors import ConfigError
from cascade.server.gate import open_access
from cascade.server.keys import hash_of
from tests.cli.conftest import Command, Rollout, WriteRelease
from tests.server.admin_listener import Listener, admin_listener
from tests.server.rollout_desk import CANDIDATE, STABLE, entry, running


def test_what_is_no_bundle_is_exit_2(
    rollout: Rollout, listener: Listener, release: WriteRelease, tmp_path: Path
) -> None:
    """A path that is not there, a release that is not packed, one that lacks what it names; nothing is asked."""
    for path, said in (
        (f"{tmp_path}/none.tar", "cannot be read"),
        (release(), "no bundle; make one with cascade release build"),
    ):
        done = rollout("start", path)
        assert (done.status, done.out) == (2, "")
        assert said in done.err
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    data = yaml.safe_load(Path(release()).read_text(encoding="utf-8"))
    data["rollout"] = {"gold": "sha256:" + "0" * 64}
    (lacking / "release.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    done = rollout("start", str(lacking))
    assert done.status == 2
    assert "sha256:0000" in done.err
    assert listener.desk.asked == []


def test_a_name_that_is_not_known_may_be_meant_as_a_path(
    rollout: Rollout, listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file of that name is here the refusal says how a path is written; a name that is known is one all the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "next.yaml").write_text("", encoding="utf-8")
    assert rollout("start", "next.yaml").status == 0
    listener.desk.raises = ConfigError("no release of this name")
    done = rollout("start", "next.yaml")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "cascade: refused\n  no release of this name\n  if what lies here is meant: a path has a slash in it, "
        "as ./next.yaml, or ends in .tar; a release in YAML is built first, with cascade release build\n"
    )
    assert rollout("start", "next").err == "cascade: refused\n  no release of this name\n"


def test_the_key_comes_from_a_variable_or_a_file(rollout: Rollout, listener: Listener, tmp_path: Path) -> None:
    """What opens the listener; without it exit 2 says how to name one."""
    keys = tmp_path / "keys.yaml"
    entry_of = {"name": "op", "sha256": hash_of("op-key").hex(), "rights": ["read", "operate"]}
    keys.write_text(yaml.safe_dump({"keys": [entry_of]}), encoding="utf-8")
    access = open_access(keys, "admin", "admin_keys_file", listener.service.metrics.keys)
    file = tmp_path / "key"
    file.write_text("op-key\n", encoding="utf-8")
    with admin_listener(admin_access=access) as guarded:
        at = ("--admin", guarded.url)
        assert rollout("status", *at, "--key-file", str(file)).status == 0
        assert rollout("abort", *at, "--key-env", "OP_KEY", variables={"OP_KEY": "op-key"}).status == 0
        without = rollout("status", *at)
        watching = rollout("status", "--watch", *at)
        wrong = rollout("status", *at, "--key-env", "OP_KEY", variables={"OP_KEY": "kingfisher"})
    assert without.status == wrong.status == watching.status == 2
    assert watching.err == without.err
    hint = "name a key with --key-env or --key-file\n"
    assert without.err == f"cascade: {guarded.url}: authorization: a key is asked for; {hint}"
    assert wrong.err == f"cascade: {guarded.url}: authorization: the key is not known; {hint}"
    assert "kingfisher" not in wrong.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--key-env", "A", "--key-file", "b"), "--key-env, --key-file: name one"),
        (("--key-env", "UNSET_KEY"), "--key-env UNSET_KEY: there is no key"),
        (("--key-env", "TWO"), "--key-env TWO: a key is one line of printable ASCII without spaces"),
        (("--key-env", "LETTERS"), "--key-env LETTERS: a key is one line of printable ASCII without spaces"),
        (("--key-file", "none"), "--key-file none: cannot be read: FileNotFoundError"),
        (("--key-file", "large"), "--key-file large: it is too large for a key"),
        (("--admin", "127.0.0.1:8788"), "--admin: must be an http or https address, such as http://127.0.0.1:8788"),
        (("--admin", "http://[::1"), "--admin: must be an http or https address, such as http://127.0.0.1:8788"),
        (("--admin", "http://a/?b"), "--admin: must be an http or https address, such as http://127.0.0.1:8788"),
        (
            ("--admin", "http://me:kingfisher@a"),
            "--admin: an address holds no key; name one with --key-env or --key-file",
        ),
        (("--watch", "--json"), "--watch, --json: name one"),
    ],
)
def test_bad_input_is_exit_2_in_one_line(
    rollout: Rollout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    """No key is in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large").write_text("k" * 5000, encoding="utf-8")
    variables = {"TWO": "kingfisher one\n", "LETTERS": "k\u00f6nigsfischer"}
    done = rollout("status", *arguments, variables=variables)
    assert (done.status, done.out, done.err) == (2, "", f"cascade: {said}\n")


def test_authorities_of_a_plain_address_are_bad_input(command: Command, tmp_path: Path) -> None:
    """Who names them counts on TLS; an address is https however it is written."""
    file = str(tmp_path / "ca.pem")
    plain = "http://127.0.0.1:9"
    done = command("rollout", "--ca-file", file, "status", "--admin", plain)
    said = f"cascade: --ca-file, --certificate-file: {plain} is not asked over TLS; write https\n"
    assert (done.status, done.out, done.err) == (2, "", said)
    assert (
        command("rollout", "status", "--admin", plain, variables={"CASCADE_ADMIN_CERTIFICATE_FILE": file}).err == said
    )
    done = command("rollout", "--ca-file", file, "status", "--admin", "HTTPS://127.0.0.1:9")
    assert done.err == f"cascade: --ca-file {file}: cannot be used: FileNotFoundError\n"


def test_no_connection_is_exit_2(command: Command) -> None:
    """The address is named. It is the settings' own where none is given."""
    for variables, address in (
        ({"CASCADE_ADMIN_URL": "http://127.0.0.1:9/"}, "http://127.0.0.1:9"),
        ({"CASCADE__ADMIN_PORT": "9"}, "http://127.0.0.1:9"),
        ({"CASCADE__ADMIN_PORT": "9", "CASCADE__ADMIN_HOST": "0.0.0.0"}, "http://127.0.0.1:9"),  # noqa: S104
        ({"CASCADE__ADMIN_PORT": "9", "CASCADE__ADMIN_HOST": "::"}, "http://[::1]:9"),
    ):
        done = command("rollout", "status", variables=variables)
        assert (done.status, done.out) == (2, "")
        assert done.err == f"cascade: {address} does not answer: ConnectError\n"


def test_what_is_no_sidecar_that_rolls_out_is_exit_2(rollout: Rollout, listener: Listener) -> None:
    """A process without rollouts, one that is not ready, and one that tells otherwise."""
    listener.service.desk = None
    done = rollout("status")
    assert done.status == 2
    assert done.err.endswith("is not the admin listener of a sidecar that rolls releases out: status 404\n")
    listener.service.desk = listener.desk  # type: ignore[assignment]  # what the routes ask of it
    listener.service.started = False
    done = rollout("abort")
    assert (done.status, done.err) == (2, f"cascade: {listener.url}: not ready: try again\n")
    listener.desk.told = {"state": "running"}
    done = rollout("status")
    assert done.status == 2
    assert done.err == f"cascade: {listener.url} tells of rollouts otherwise than this version does\n"


def test_what_is_told_does_nothing_to_a_terminal(rollout: Rollout, listener: Listener) -> None:
    """Escapes, and letters that turn the direction of what follows, become question marks; markup stays text."""
    hostile = "\x1b[2J[red]r\u202e2"
    listener.desk.told = running(candidate=CANDIDATE | {"release": hostile}, stable=STABLE | {"release": "a\rb"})
    listener.desk.entries = [entry(release=hostile, why=[hostile])]
    for action in ("status", "history"):
        done = rollout(action)
        assert done.status == 0
        assert "?[2J[red]r?2" in done.out
        assert not set(done.out) & {"\x1b", "\u202e", "\r"}
    listener.desk.raises = ConfigError(hostile)
    assert rollout("abort").err == "cascade: refused\n  ?[2J[red]r?2\n"
