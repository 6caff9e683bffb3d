"""Settings from flags, environment, file and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cascade.errors import ConfigError
from cascade.server.settings import ENVIRONMENT_PREFIX, Settings, load_settings

_SECRET: Final = "canary-5f3a"
_VALUES: Final[Mapping[str, tuple[Any, Any, Any]]] = {
    "host": ("flag.example", "environment.example", "file.example"),
    "port": (1, 2, 3),
    "admin_host": ("flag.example", "environment.example", "file.example"),
    "admin_port": (1, 2, 3),
    "release": ("flag.yaml", "environment.yaml", "file.yaml"),
    "watch_release": (True, True, True),
    "release_seconds": (1.5, 2.5, 3.5),
    "release_auth_file": ("flag.token", "environment.token", "file.token"),
    "release_keys_file": ("flag.pem", "environment.pem", "file.pem"),
    "release_variables": ("FLAG_*", "ENVIRONMENT_*,OTHER", "FILE_*"),
    "release_files": ("/flag/*", "/environment/**,/other", "/file/*"),
    "tls_certificate_file": ("flag.pem", "environment.pem", "file.pem"),
    "tls_key_file": ("flag.pem", "environment.pem", "file.pem"),
    "tls_key_password_file": ("flag.pem", "environment.pem", "file.pem"),
    "tls_client_ca_file": ("flag.pem", "environment.pem", "file.pem"),
    "admin_tls_certificate_file": ("flag.pem", "environment.pem", "file.pem"),
    "admin_tls_key_file": ("flag.pem", "environment.pem", "file.pem"),
    "admin_tls_key_password_file": ("flag.pem", "environment.pem", "file.pem"),
    "admin_tls_client_ca_file": ("flag.pem", "environment.pem", "file.pem"),
    "max_connections": (1, 2, 3),
    "max_client_connections": (1, 2, 3),
    "releases_folder": ("flag.folder", "environment.folder", "file.folder"),
    "state_folder": ("flag.folder", "environment.folder", "file.folder"),
    "strict_activation": (False, False, False),
    "level": ("flag-1", "environment-1", "file-1"),
    "log_level": ("debug", "warning", "error"),
    "log_file": ("flag.log", "environment.log", "file.log"),
    "max_body_bytes": (2001, 2002, 2003),
    "body_seconds": (1.5, 2.5, 3.5),
    "keys_file": ("flag.yaml", "environment.yaml", "file.yaml"),
    "admin_keys_file": ("flag.yaml", "environment.yaml", "file.yaml"),
    "keys_seconds": (1.5, 2.5, 3.5),
    "max_requests": (1, 2, 3),
    "max_in_flight": (1, 2, 3),
    "max_queued": (1, 2, 3),
    "long_request_bytes": (1, 2, 3),
    "max_long_in_flight": (1, 2, 3),
    "rerank_dialect": ("infinity", "infinity", "infinity"),
    "drain_seconds": (1.5, 2.5, 3.5),
    "leftover_seconds": (1.5, 2.5, 3.5),
    "embedded_threads": (1, 2, 3),
    "fingerprint_seconds": (1.5, 2.5, 3.5),
    "query_hash_key_file": ("flag.key", "environment.key", "file.key"),
    "record_file": ("flag.jsonl", "environment.jsonl", "file.jsonl"),
    "record_sample": (0.25, 0.5, 0.75),
    "record_max_bytes": (2001, 2002, 2003),
    "record_files": (1, 2, 3),
    "record_queue": (1, 2, 3),
    "record_seconds": (1.5, 2.5, 3.5),
    "observe_in_flight": (1, 2, 3),
    "cache": ("off", "redis", "off"),
    "cache_stages": ("small", "large", "small"),
    "cache_ttl_seconds": (1.5, 2.5, 3.5),
    "cache_bytes": (100_001, 100_002, 100_003),
    "cache_redis_url": ("redis://flag.example", "env:REDIS_URL", "file:/run/secrets/redis"),
    "cache_redis_ms": (1.5, 2.5, 3.5),
    "cache_redis_queue": (1, 2, 3),
    "cache_key_file": ("flag.key", "environment.key", "file.key"),
    "tracing": ("otlp", "otlp", "otlp"),
    "trace_endpoint": ("http://flag.example", "http://environment.example", "http://file.example"),
    "trace_headers_file": ("flag.headers", "environment.headers", "file.headers"),
    "trace_ratio": (0.25, 0.5, 0.75),
    "trace_trust_parent": (True, True, True),
    "trace_keep": ("failed", "failed,degraded", "escalated"),
    "trace_slow_ms": (1.5, 2.5, 3.5),
    "trace_baggage": (True, True, True),
    "trace_queue": (1000, 1001, 1002),
}
"""For every setting, what flag, environment and file say in the tests below."""
_NEEDED: Final[Mapping[str, dict[str, Any]]] = {
    "watch_release": {"release": Path("release.yaml")},
    "release_auth_file": {"release": "https://bundles.example/release.tar"},
    "cache": {"cache_redis_url": "redis://redis.example", "cache_key_file": Path("cache.key")},
    "trace_slow_ms": {"trace_keep": "slow"},
    **{
        f"{of}{what}": {f"{of}{each}": Path("tls.pem") for each in ("certificate_file", "key_file") if each != what}
        for of in ("tls_", "admin_tls_")
        for what in ("certificate_file", "key_file", "key_password_file", "client_ca_file")
    },
}
"""What a setting has no meaning without."""
_PATHS: Final = (
    "release", "release_auth_file", "release_keys_file", "releases_folder", "state_folder",
    "log_file", "query_hash_key_file", "record_file", "keys_file", "admin_keys_file", "cache_key_file",
    "trace_headers_file",
    "tls_certificate_file", "tls_key_file", "tls_key_password_file", "tls_client_ca_file",
    "admin_tls_certificate_file", "admin_tls_key_file", "admin_tls_key_password_file", "admin_tls_client_ca_file",
)  # fmt: skip


def _file(folder: Path, content: Mapping[str, Any] | str) -> Path:
    """Write a settings file and return where it is."""
    path = folder / "settings.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(dict(content)), encoding="utf-8")
    return path


def _kept(settings: Settings, name: str) -> Any:
    """Return a setting as it would be written."""
    value = getattr(settings, name)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value) if isinstance(value, Path) else value


def _told(flags: Mapping[str, Any], *, file: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return what is said of settings that are refused."""
    with pytest.raises(ConfigError) as raised:
        load_settings(flags, file=file, environment=environment or {})
    assert raised.value.__suppress_context__
    return str(raised.value)


def test_the_tests_below_know_every_setting() -> None:
    """A new setting is tested as soon as it exists."""
    assert set(_VALUES) == set(Settings.model_fields)


@pytest.mark.parametrize("name", _VALUES)
def test_a_flag_wins_over_environment_over_file_over_default(tmp_path: Path, name: str) -> None:
    """Each source holds where no source before it says anything."""
    flag, variable, filed = _VALUES[name]
    needed = _NEEDED.get(name, {})
    file = _file(tmp_path, {name: filed})
    environment = {f"CASCADE__{name.upper()}": str(variable)}
    assert _kept(load_settings({**needed, name: flag}, file=file, environment=environment), name) == flag
    assert _kept(load_settings({**needed, name: None}, file=file, environment=environment), name) == variable
    kept = str(_kept(load_settings(needed, file=file, environment={}), name))
    assert kept == (str(tmp_path / str(filed)) if name in _PATHS else str(filed))
    assert _kept(load_settings(needed, environment=environment), name) == variable
    default = Settings.model_fields[name].default
    assert getattr(load_settings({}, environment={}), name) == default
    assert default not in (flag, variable, filed)


def test_a_path_in_a_file_counts_from_the_file(tmp_path: Path) -> None:
    """A settings file can be moved with what it names; an absolute path stays as it is."""
    file = _file(tmp_path, {"release": "../mine.yaml", "log_file": "/var/log/cascade"})
    settings = load_settings({}, file=file, environment={})
    assert settings.release == tmp_path / "../mine.yaml"
    assert settings.log_file == Path("/var/log/cascade")


def test_a_release_may_be_at_an_address(tmp_path: Path) -> None:
    """An address in a file does not count from there, and what may be secret in it is not dumped."""
    written = "https://bundles.example/release.tar?sig=kingfisher"
    settings = load_settings({}, file=_file(tmp_path, {"release": written}), environment={})
    assert settings.release == written
    assert settings.model_dump(mode="json")["release"] == "https://bundles.example/release.tar?…"
    assert load_settings({}, environment={}).model_dump(mode="json")["release"] is None
    told = _told({"release": "ftp://bundles.example/kingfisher"})
    assert told == "settings: release: must be a path, or an http or https address"


def test_what_a_setting_has_no_meaning_without_is_told() -> None:
    """Nothing is watched where there is no release, and no token is sent to a path."""
    told = _told({"watch_release": True})
    assert told == "settings: watch_release: there is no release to watch; name it in release"
    told = _told({"release": "release.yaml", "release_auth_file": "token"})
    assert told.startswith("settings: release_auth_file: release is no http(s) address")


def test_sources_join_setting_by_setting(tmp_path: Path) -> None:
    """A source that says one thing leaves the others' say about the rest."""
    file = _file(tmp_path, {"port": 1, "admin_port": 2, "host": "a"})
    settings = load_settings({"port": 3}, file=file, environment={"CASCADE__ADMIN_PORT": "4"})
    assert (settings.port, settings.admin_port, settings.host, settings.log_level) == (3, 4, "a", "info")


def test_defaults_are_safe_ones() -> None:
    """Unset, both listeners are on this host alone, and logs are at info."""
    settings = load_settings({}, environment={})
    assert (settings.host, settings.port) == ("127.0.0.1", 8787)
    assert (settings.admin_host, settings.admin_port) == ("127.0.0.1", 8788)
    assert (settings.release, settings.log_file, settings.query_hash_key_file) == (None, None, None)
    assert (settings.log_level, settings.max_body_bytes, settings.drain_seconds) == ("info", 8_000_000, 2.0)


@pytest.mark.parametrize("name", ["port", "admin_port", "drain_seconds"])
def test_inv10_zero_is_a_setting(tmp_path: Path, name: str) -> None:
    """Zero from any source is zero and not unset."""
    assert getattr(load_settings({name: 0}, file=_file(tmp_path, {name: 7}), environment={}), name) == 0
    assert getattr(load_settings({}, environment={f"CASCADE__{name.upper()}": "0"}), name) == 0
    assert getattr(load_settings({}, file=_file(tmp_path, {name: 0}), environment={}), name) == 0


@pytest.mark.parametrize(
    ("name", "legal", "illegal"),
    [
        ("host", ("h", "::1"), ("",)),
        ("admin_host", ("h", "::1"), ("",)),
        ("port", ("0", "65535"), ("-1", "65536", "http", "", "1.5")),
        ("admin_port", ("0", "65535"), ("-1", "65536", "http", "", "1.5")),
        ("max_body_bytes", ("1024", "1000000000"), ("1023", "0", "-1", "8MB", "")),
        ("embedded_threads", ("1", "64"), ("0", "-1", "all", "")),
        ("max_queued", ("0", "1"), ("-1", "many")),
        ("max_long_in_flight", ("1", "64"), ("0", "65", "")),
        ("release_seconds", ("0.1", "86400"), ("0", "-1", "86401", "nan", "inf", "")),
        ("drain_seconds", ("0", "0.5", "600"), ("-0.1", "600.1", "nan", "inf", "2s", "")),
        ("log_level", ("debug", "info", "warning", "error"), ("INFO", "trace", "")),
    ],
)
def test_settings_have_bounds(name: str, legal: tuple[str, ...], illegal: tuple[str, ...]) -> None:
    """The ends of a range are legal, what lies beyond is an error that names the setting."""
    variable = f"CASCADE__{name.upper()}"
    for text in legal:
        assert str(getattr(load_settings({}, environment={variable: text}), name)).removesuffix(".0") == text
    for text in illegal:
        assert _told({}, environment={variable: text}).startswith(f"settings: {name}: ")


@pytest.mark.parametrize("name", ["port", "log_level", "max_body_bytes", "drain_seconds", "admin_port"])
def test_g1_a_value_is_never_told(tmp_path: Path, name: str) -> None:
    """An error of a setting from any source names it and repeats nothing of it."""
    for told in (
        _told({name: _SECRET}),
        _told({}, environment={f"CASCADE__{name.upper()}": _SECRET}),
        _told({}, file=_file(tmp_path, {name: _SECRET})),
        _told({}, file=_file(tmp_path, {name: [_SECRET]})),
        _told({}, file=_file(tmp_path, {name: {_SECRET: _SECRET}})),
    ):
        assert told.startswith(f"settings: {name}: ")
        assert _SECRET not in told


def test_every_fault_is_told_at_once() -> None:
    """An operator mends all of them in one go."""
    told = _told({"port": -1, "drain_seconds": -1})
    assert [part.split(":")[:2] for part in told.split("; ")] == [["settings", " port"], ["settings", " drain_seconds"]]


def test_inv10_an_unknown_key_in_the_file_is_refused(tmp_path: Path) -> None:
    """The key is named, its value is not."""
    told = _told({}, file=_file(tmp_path, {"prot": _SECRET}))
    assert told == "settings: prot: Extra inputs are not permitted"


@pytest.mark.parametrize("variable", ["CASCADE__PROT", "CASCADE__API_KEY", "CASCADE__PORT_", "CASCADE__RELEASE__PATH"])
def test_inv10_an_unknown_variable_is_refused(variable: str) -> None:
    """A variable that begins as ours but is no setting is a mistake, and its value is not told."""
    told = _told({}, environment={variable: _SECRET})
    name = variable.removeprefix("CASCADE__").lower()
    assert told == f"settings: {name}: Extra inputs are not permitted"


@pytest.mark.parametrize(
    "environment",
    [
        {"CASCADE_PORT": "tcp://10.0.0.1:8787", "CASCADE_SERVICE_HOST": "10.0.0.1", "CASCADE_PORT_8787_TCP_PORT": "1"},
        {"CASCADE": "x", "PORT": "1", "XCASCADE__PORT": "1", "cascade__port": "1"},
    ],
)
def test_variables_that_are_not_ours_are_ignored(environment: dict[str, str]) -> None:
    """What an orchestrator announces for a service named cascade changes nothing."""
    assert load_settings({}, environment=environment) == Settings()


def test_the_prefix_has_two_underscores() -> None:
    """The prefix is part of the interface."""
    assert ENVIRONMENT_PREFIX == "CASCADE__"


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no environment is given, the process's own is read; an empty one given is not the process's."""
    monkeypatch.setenv("CASCADE__PORT", "4321")
    assert load_settings({}).port == 4321
    assert load_settings({}, environment={}).port == 8787


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("port: 1\nport: 2\n", "line 2: port is given twice"),
        ("port: &p 1\n", "line 1: anchors and aliases are not allowed"),
        ("port: !!int 1\n", "line 1: tags are not allowed"),
        ("port: 2026-13-45\n", "not valid YAML"),
        ("port: [1\n", "not valid YAML at line 2"),
        ("", "the file must hold one mapping"),
        ("- port\n", "the file must hold one mapping"),
        ("1: 2\n", "the file must hold one mapping"),
    ],
)
def test_a_settings_file_is_read_as_strictly_as_a_release(tmp_path: Path, content: str, told: str) -> None:
    """The path comes first, then what is wrong and where."""
    file = _file(tmp_path, content)
    assert _told({}, file=file) == f"settings {file}: {told}"


def test_a_settings_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """A file that is missing or not in UTF-8 is told by its path and the kind of error."""
    absent = tmp_path / "absent.yaml"
    assert _told({}, file=absent) == f"settings {absent}: cannot be read: FileNotFoundError"
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"host: \xe9\n")
    assert _told({}, file=latin) == f"settings {latin}: cannot be read: UnicodeDecodeError"


def test_settings_are_frozen() -> None:
    """What was checked cannot be changed afterwards."""
    with pytest.raises(ValueError, match="frozen"):
        load_settings({}, environment={}).port = 1  # type: ignore[misc]
