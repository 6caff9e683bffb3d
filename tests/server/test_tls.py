"""TLS of a listener on a real socket: what is refused at a start, whom it lets in, and certificates that are renewed."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from cascade.errors import ConfigError
from cascade.server.connections import ConnectionBounds
from cascade.server.settings import Settings, load_settings
from cascade.server.tls import ListenerTls, check_tls, open_tls
from tests.certificates import Files, encrypted, issued
from tests.server.listeners import Public, ended, public_listener
from tests.telemetry.captured import captured_log

_LIVE = b"GET /livez HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
_V1_ROOT = """\
-----BEGIN CERTIFICATE-----
MIIBGzCBwQIUMTCiIBoHGkFrdMaCycP+lvbHSbUwCgYIKoZIzj0EAwIwDzENMAsG
A1UEAwwEcm9vdDAgFw0yNjExMzAxMzQzNThaGA8yMTI2MTEwNjEzNDM1OFowDzEN
MAsGA1UEAwwEcm9vdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABC8nn0EzCo4l
mDK6LPNBVDP6VHfqpsv7hish7B+KiENdTfVMNp0W6VlNE5cq2f8xm2jCCtR6GbwT
3W9YDXIK5SowCgYIKoZIzj0EAwIDSQAwRgIhAPV4w5rCEd8kmWR5NXax4EE2bsVV
bMrXwcmy6P229ZPHAiEA60f5W9NjHwjkSndLQgqmGZlDlyEQ0jeBM/cVbYoCmSg=
-----END CERTIFICATE-----
"""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Give who signs certificates."""
    return trustme.CA()


def _settings(files: Files, **more: Any) -> Settings:
    return Settings(tls_certificate_file=files.certificate, tls_key_file=files.key, **more)


def _opened(files: Files, reloaded: Callable[[bool], None] = lambda good: None, **more: Any) -> ListenerTls:
    opened = open_tls(_settings(files, **more), "public", reloaded)
    assert opened is not None
    return opened


def _trusting(authority: trustme.CA, shown: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if shown is not None:
        shown.configure_cert(context)
    return context


def _pem(folder: Path, authority: trustme.CA) -> Path:
    path = folder / "clients.pem"
    path.write_bytes(authority.cert_pem.bytes())
    return path


def _serial(public: Public, context: ssl.SSLContext) -> str:
    """Return which certificate is shown to a client that is served."""
    with public.over_tls(context) as connection:
        connection.sendall(_LIVE)
        assert ended(connection).startswith(b"HTTP/1.1 200 ")
        return str((connection.getpeercert() or {})["serialNumber"])


def test_a_listener_speaks_tls_1_2_or_newer_and_nothing_else(tmp_path: Path, authority: trustme.CA) -> None:
    """Older versions and plain HTTP get no answer; a client that trusts the authority is served."""
    with public_listener(tls=_opened(issued(tmp_path, authority))) as public:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = _trusting(authority)
            context.minimum_version = context.maximum_version = version
            with public.over_tls(context) as connection:
                connection.sendall(_LIVE)
                assert ended(connection).startswith(b"HTTP/1.1 200 ")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(old)
        old.set_ciphers("DEFAULT@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            public.over_tls(old)
        with public.connect() as plain:
            plain.sendall(_LIVE)
            assert not ended(plain).startswith(b"HTTP/")


def test_a_client_without_a_certificate_of_the_authority_is_not_let_in(tmp_path: Path, authority: trustme.CA) -> None:
    """Neither without any nor with another authority's; with one of it a client is served."""
    clients, others = trustme.CA(), trustme.CA()
    tls = _opened(issued(tmp_path, authority), tls_client_ca_file=_pem(tmp_path, clients))
    with public_listener(tls=tls) as public:
        for shown in (None, others.issue_cert("client.test")):
            with pytest.raises((httpx.TransportError, ssl.SSLError)):
                httpx.get(f"https://127.0.0.1:{public.port}/livez", verify=_trusting(authority, shown))
        _serial(public, _trusting(authority, clients.issue_cert("client.test")))


def test_renewed_certificates_are_served_without_a_restart(tmp_path: Path, authority: trustme.CA) -> None:
    """Connections that begin after the look have the new one, and one that is there goes on; clients' authorities change too."""
    before, after = trustme.CA(), trustme.CA()
    counted: list[bool] = []
    tls = _opened(issued(tmp_path, authority), counted.append, tls_client_ca_file=_pem(tmp_path, before))
    old, new = (_trusting(authority, each.issue_cert("client.test")) for each in (before, after))
    with public_listener(tls=tls) as public, httpx.Client(verify=old) as kept:
        url = f"https://127.0.0.1:{public.port}/livez"
        kept.get(url)
        first, expires = _serial(public, old), tls.expires
        tls.look()
        issued(tmp_path, authority, days=30)
        _pem(tmp_path, after)
        tls.look()
        second = _serial(public, new)
        with pytest.raises((httpx.TransportError, ssl.SSLError)):
            httpx.get(url, verify=old)
        assert kept.get(url).status_code == 200
    assert (first != second, tls.expires < expires, counted) == (True, True, [True])


def _spoil(tmp_path: Path, how: str, authority: trustme.CA) -> None:
    match how:
        case "expired":
            issued(tmp_path, authority, days=-1, begins_in_days=-2)
        case "not yet valid":
            issued(tmp_path, authority, begins_in_days=1)
        case "of another key":
            (tmp_path / "tls.key").write_bytes(authority.issue_cert("127.0.0.1").private_key_pem.bytes())
        case "cut off":
            path = tmp_path / "tls.crt"
            path.write_bytes(path.read_bytes()[:200])
        case "no certificate":
            (tmp_path / "tls.crt").write_text("a certificate", encoding="utf-8")
        case "no key":
            (tmp_path / "tls.key").write_text("a key", encoding="utf-8")
        case "away":
            (tmp_path / "tls.key").unlink()
        case "encrypted":
            encrypted(Files(tmp_path / "tls.crt", tmp_path / "tls.key"), b"secret")
        case _:
            raise AssertionError(how)


_FAULTS = {
    "expired": "tls_certificate_file {folder}/tls.crt: has expired",
    "not yet valid": "tls_certificate_file {folder}/tls.crt: is not valid yet",
    "of another key": "tls_key_file {folder}/tls.key: is not the key of tls_certificate_file {folder}/tls.crt",
    "cut off": "tls_certificate_file {folder}/tls.crt, tls_key_file {folder}/tls.key: cannot be used: ",
    "no certificate": "tls_certificate_file {folder}/tls.crt: holds no certificate in PEM",
    "no key": "tls_key_file {folder}/tls.key: holds no private key in PEM",
    "away": "tls_key_file {folder}/tls.key: cannot be read: FileNotFoundError",
    "encrypted": "tls_key_file {folder}/tls.key: is encrypted, and no password is named",
}


@pytest.mark.parametrize("how", _FAULTS)
def test_files_that_cannot_be_used_are_an_error_at_the_start_and_kept_out_later(
    tmp_path: Path, authority: trustme.CA, how: str
) -> None:
    """The message says which file and why; a listener that serves goes on with what it has, counts it, and logs it once."""
    files = issued(tmp_path, authority)
    counted: list[bool] = []
    tls = _opened(files, counted.append)
    _spoil(tmp_path, how, authority)
    told = re.escape(_FAULTS[how].format(folder=tmp_path))
    with pytest.raises(ConfigError, match=f"^{told}"):
        check_tls(_settings(files))
    with captured_log() as log:
        tls.look()
        tls.look()
        with public_listener(tls=tls) as public:
            _serial(public, _trusting(authority))
        issued(tmp_path, authority)
        tls.look()
    assert counted == [False, False, True]
    told_of = [line for line in map(json.loads, log.getvalue().splitlines()) if "certificates" in line["event"]]
    assert [line["event"] for line in told_of] == [
        "certificates not read again: the last good ones count",
        "certificates read again",
    ]
    assert re.match(told, told_of[0]["why"])


def test_a_key_with_a_password_is_opened_by_the_one_in_its_file(tmp_path: Path, authority: trustme.CA) -> None:
    """A line end behind it does not count; a wrong one is an error that does not repeat it."""
    files = issued(tmp_path, authority)
    encrypted(files, b"pass word")
    password = tmp_path / "password"
    password.write_bytes(b"pass word\n")
    with public_listener(tls=_opened(files, tls_key_password_file=password)) as public:
        _serial(public, _trusting(authority))
    password.write_bytes(b"another canary")
    with pytest.raises(ConfigError, match=r"tls\.key: is not opened by its password$"):
        _opened(files, tls_key_password_file=password)


@pytest.mark.parametrize("content", [b"", b"no PEM", None], ids=["empty", "no PEM", "away"])
def test_authorities_of_clients_that_cannot_be_used_are_an_error(
    tmp_path: Path, authority: trustme.CA, content: bytes | None
) -> None:
    """Without them nobody could be told from anybody: there is no listener then."""
    path = tmp_path / "clients.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^tls_client_ca_file {path}: (holds no certificate|cannot be read)"):
        check_tls(_settings(issued(tmp_path, authority), tls_client_ca_file=path))


def test_a_certificate_of_no_authority_is_none_of_clients(tmp_path: Path, authority: trustme.CA) -> None:
    """Alone or beside one that is: who holds a client's own certificate would sign for nobody. The listener's settings name it."""
    files = issued(tmp_path / "server", authority)
    leaf = authority.issue_cert("client.test").cert_chain_pems[0].bytes()
    path = tmp_path / "clients.pem"
    for content in (leaf, authority.cert_pem.bytes() + leaf):
        path.write_bytes(content)
        with pytest.raises(
            ConfigError, match=rf"^tls_client_ca_file {path}: holds a certificate that is no authority's"
        ):
            check_tls(_settings(files, tls_client_ca_file=path))
    path.write_bytes(authority.cert_pem.bytes() + trustme.CA().cert_pem.bytes())
    check_tls(_settings(files, tls_client_ca_file=path))


def test_an_authority_of_the_first_version_is_one(tmp_path: Path, authority: trustme.CA) -> None:
    """An old root has no extensions that could say so; it signs itself."""
    path = tmp_path / "clients.pem"
    path.write_text(_V1_ROOT, encoding="ascii")
    check_tls(_settings(issued(tmp_path / "server", authority), tls_client_ca_file=path))


@pytest.mark.parametrize("given", ["tls_certificate_file", "tls_key_file", "tls_client_ca_file", "admin_tls_key_file"])
def test_half_of_what_tls_needs_is_an_error(given: str) -> None:
    """A listener that was meant to be closed is never open by a setting that was forgotten."""
    of = "admin_tls_" if given.startswith("admin") else "tls_"
    with pytest.raises(ConfigError, match=f"{of}certificate_file, {of}key_file: TLS needs both$"):
        load_settings({given: "/etc/file"}, environment={})


def test_a_connection_that_never_shakes_hands_ends(tmp_path: Path, authority: trustme.CA) -> None:
    """It has the time of a bound, and is no client's connection yet."""
    bounds = ConnectionBounds(handshake_seconds=0.3)
    with public_listener(bounds, _opened(issued(tmp_path, authority))) as public, public.connect() as silent:
        silent.sendall(b"\x16\x03\x01")
        assert ended(silent) == b""
        assert len(public.connections) == 0
