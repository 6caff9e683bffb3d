"""``cascade config``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.certificates import chained, signer
from tests.cli.conftest import BARE, Command, WriteRelease

_SECRET: Final = "kingfisher-secret-7f3a"
_NOWHERE: Final = "http://127.0.0.1:9/release.tar"
_STAGE: Final[dict[str, Any]] = {
    "adapter": "tei",
    "url": "${CASCADE_UPSTREAM_URL}",
    "model": "m",
    "engine": "tei/1.9",
    "auth": {"env": "CASCADE_UPSTREAM_KEY"},
}
_STAGES: Final[dict[str, Any]] = {"stages": {"small": _STAGE}, "depth": 5}
_SET: Final = {"CASCADE_UPSTREAM_URL": "http://reranker.test/base", "CASCADE_UPSTREAM_KEY": _SECRET}


def test_validate_names_release_and_digest(command: Command, release: WriteRelease) -> None:
    """A good configuration is exit 0 and one line."""
    done = command("config", "validate", "--release", release())
    assert done.status == 0
    assert done.out.startswith("valid: release bare-1, sha256:")
    assert done.err == ""


def test_validate_names_a_level_that_the_release_does_not_have(command: Command) -> None:
    """The levels that there are stand beside it."""
    done = command("config", "validate", variables={"CASCADE__LEVEL": "degraded-9"})
    assert done.status == 2
    assert "no level of that name; it has normal, degraded-1, degraded-2, degraded-3" in done.err
    assert command("config", "validate", variables={"CASCADE__LEVEL": "degraded-3"}).status == 0


def test_validate_takes_the_packaged_release(command: Command) -> None:
    """Without a file the default is checked."""
    done = command("config", "validate")
    assert (done.status, done.err) == (0, "")
    assert "default-2026-11" in done.out


@pytest.mark.parametrize("library", ["onnxruntime", "tokenizers"])
def test_validate_names_a_library_that_embedded_stages_lack(
    command: Command, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """The packaged release runs models here: without what runs them it cannot start, and is not called valid."""
    monkeypatch.setitem(sys.modules, library, None)  # what makes an import fail
    done = command("config", "validate")
    assert (done.status, done.out) == (2, "")
    expected = f'cascade: embedded stages need {library}; install cascade-rerank[embedded]; in a clone: pip install ".[embedded]"\n'
    assert done.err == expected


def test_validate_checks_credentials_without_telling_them(command: Command, release: WriteRelease) -> None:
    """A token that is there passes and is not printed."""
    done = command("config", "validate", "--release", release(**_STAGES), variables=_SET)
    assert done.status == 0
    assert _SECRET not in done.out + done.err


@pytest.mark.parametrize(
    ("change", "variables", "named"),
    [
        ({}, {"CASCADE_UPSTREAM_KEY": _SECRET}, "the environment variable CASCADE_UPSTREAM_URL is not set"),
        (
            {},
            {"CASCADE_UPSTREAM_URL": "http://x"},
            "the environment variable CASCADE_UPSTREAM_KEY holds no usable token",
        ),
        ({"auth": {"file": "/run/secrets/none"}}, _SET, "the file /run/secrets/none cannot be read"),
        ({"auth": {"file": "/no/such/file"}}, _SET, "add it, or its folder before /*, to the setting release_files"),
        ({"ca_bundle": "/no/such/bundle"}, _SET, "ca_bundle /no/such/bundle: cannot be used"),
        ({"serializer": "unheard@1"}, _SET, "unheard@1"),
        ({"url": f"http://user:{_SECRET}@host"}, _SET, "no credentials"),
        ({"modle": "m"}, _SET, "modle"),
    ],
)
def test_validate_names_what_is_wrong_and_no_secret(
    command: Command, release: WriteRelease, change: dict[str, Any], variables: dict[str, str], named: str
) -> None:
    """Each fault is exit 2 and one line on stderr, with no token in it."""
    path = release(stages={"small": {**_STAGE, **change}}, depth=5)
    done = command("config", "validate", "--release", path, variables=variables)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith("cascade: ")
    assert named in line
    assert _SECRET not in line


def test_d10_an_unknown_setting_is_an_error_wherever_it_stands(
    command: Command, release: WriteRelease, tmp_path: Path
) -> None:
    """A misspelt key of the file or of a variable is named."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("prot: 1\n", encoding="utf-8")
    in_file = command("config", "validate", "--release", release(), "--config", str(settings))
    assert (in_file.status, in_file.err.count("\n")) == (2, 1)
    assert "settings: prot: " in in_file.err
    in_variable = command("config", "validate", "--release", release(), variables={"CASCADE__PROT": "1"})
    assert (in_variable.status, in_variable.err.count("\n")) == (2, 1)
    assert "settings: prot: " in in_variable.err


def test_dump_shows_release_and_settings_without_secrets(command: Command, release: WriteRelease) -> None:
    """The release is shown as written, variables by name and whether they are set, and no value of them."""
    done = command("config", "dump", "--release", release(**_STAGES), variables=_SET)
    shown = yaml.safe_load(done.out)
    assert (done.status, done.err) == (0, "")
    assert shown["release"] == {**BARE, **_STAGES}
    assert shown["variables"] == {"CASCADE_UPSTREAM_URL": "set"}
    assert shown["digest"].startswith("sha256:")
    assert shown["policy_digest"].startswith("sha256:")
    assert shown["settings"]["port"] == 8787
    assert _SECRET not in done.out
    assert "reranker.test" not in done.out


def test_dump_expands_addresses_when_asked_and_still_no_token(command: Command, release: WriteRelease) -> None:
    """With ``--expand`` every default is filled in; the token is never read."""
    done = command("config", "dump", "--expand", "--release", release(**_STAGES), variables=_SET)
    small = yaml.safe_load(done.out)["release"]["stages"]["small"]
    assert small["url"] == "http://reranker.test/base"
    assert small["auth"]["env"] == "CASCADE_UPSTREAM_KEY"
    assert small["max_length"] == 512
    assert _SECRET not in done.out + done.err


def test_b2_dump_shows_every_setting_and_every_time(command: Command, release: WriteRelease) -> None:
    """Each setting, and each budget of the release, is in the dump."""
    shown = yaml.safe_load(command("config", "dump", "--expand", "--release", release()).out)
    assert set(shown["settings"]) >= {"host", "port", "admin_host", "admin_port", "drain_seconds", "max_body_bytes"}
    assert set(shown["release"]["budgets"]) == {"total_ms", "small_ms", "large_ms", "reserve_ms"}


def test_h1_dump_has_one_digest_for_one_release(command: Command, release: WriteRelease) -> None:
    """Renaming a release changes its digest and keeps its policy's; the dump tells both."""
    one = yaml.safe_load(command("config", "dump", "--release", release()).out)
    other = yaml.safe_load(command("config", "dump", "--release", release(release="bare-2")).out)
    assert one["digest"] != other["digest"]
    assert one["policy_digest"] == other["policy_digest"]


def test_h1_the_environment_beats_the_file_and_the_file_the_default(
    command: Command, release: WriteRelease, tmp_path: Path
) -> None:
    """Precedence as documented."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("port: 1111\nadmin_port: 2222\n", encoding="utf-8")
    done = command(
        "config",
        "dump",
        "--release",
        release(),
        "--config",
        str(settings),
        variables={"CASCADE__ADMIN_PORT": "3333"},
    )
    shown = yaml.safe_load(done.out)["settings"]
    assert (shown["host"], shown["port"], shown["admin_port"]) == ("127.0.0.1", 1111, 3333)


def test_h1_the_release_flag_beats_the_environment(command: Command, release: WriteRelease) -> None:
    """A flag wins over a variable that names another file."""
    done = command("config", "dump", "--release", release(), variables={"CASCADE__RELEASE": "/no/such/file"})
    assert yaml.safe_load(done.out)["release"]["release"] == "bare-1"


def test_a_release_at_an_address_is_named_as_it_is(command: Command) -> None:
    """An address given as an option or a variable reaches its server with both slashes."""
    for options, variables in ((("--release", _NOWHERE), {}), ((), {"CASCADE__RELEASE": _NOWHERE})):
        done = command("config", "validate", *options, variables=variables)
        assert (done.status, done.out) == (2, "")
        assert done.err == "cascade: release http://127.0.0.1:9/release.tar: no answer: ClientConnectorError\n"


@pytest.mark.parametrize("expand", [(), ("--expand",)])
def test_dump_tells_only_how_long_smoke_queries_are(
    command: Command, release: WriteRelease, expand: tuple[str, ...]
) -> None:
    """They may be what users asked, and a dump is sent around; all else of the section is as written."""
    query = {"query": _SECRET, "documents": ["a", f"{_SECRET}-b"], "first": 1}
    done = command("config", "dump", *expand, "--release", release(rollout={"min_queries": 7, "smoke": [query]}))
    assert (done.status, done.err) == (0, "")
    assert _SECRET not in done.out
    shown = yaml.safe_load(done.out)["release"]["rollout"]
    told = {"query": "<22 characters>", "documents": ["<1 characters>", "<24 characters>"], "first": 1}
    assert (shown["min_queries"], shown["smoke"]) == (7, [told])


def test_validate_reads_the_files_of_tls(command: Command, release: WriteRelease, tmp_path: Path) -> None:
    """A certificate that could not be served with is told of before anything listens."""
    variables = {f"CASCADE__ADMIN_TLS_{each}_FILE": str(tmp_path / "none.pem") for each in ("CERTIFICATE", "KEY")}
    done = command("config", "validate", "--release", release(), variables=variables)
    told = f"cascade: admin_tls_certificate_file {tmp_path}/none.pem: cannot be read: FileNotFoundError\n"
    assert (done.status, done.out, done.err) == (2, "", told)


def test_validate_tells_what_is_amiss_behind_a_certificate(
    command: Command, release: WriteRelease, tmp_path: Path
) -> None:
    """It would be served with, so that is no error."""
    files = chained(tmp_path, signer("one"), [signer("another").certificate])
    variables = {"CASCADE__TLS_CERTIFICATE_FILE": str(files.certificate), "CASCADE__TLS_KEY_FILE": str(files.key)}
    done = command("config", "validate", "--release", release(), variables=variables)
    why = "certificate 2 (another) has not issued the one before it"
    assert (done.status, done.err) == (0, f"cascade: tls_certificate_file {files.certificate}: {why}\n")
