"""Handshakes that fail on a real socket: counted by cause, and told in the log now and then."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import trustme

from cascade.server.handshakes import Handshakes
from cascade.server.settings import Settings
from cascade.server.tls import open_tls
from cascade.telemetry.listener_metrics import HandshakeFailure
from tests.certificates import issued
from tests.server.listeners import Public, ended, public_listener, until
from tests.telemetry.captured import captured_log

_LIVE = b"GET /livez HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
_Loop = Callable[[], asyncio.AbstractEventLoop]


def _loops() -> list[_Loop]:
    try:
        import uvloop
    except ImportError:
        return [asyncio.new_event_loop]
    return [asyncio.new_event_loop, uvloop.new_event_loop]


def _trusting(authority: trustme.CA, shown: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if shown is not None:
        shown.configure_cert(context)
    return context


def _refused(public: Public, trust: ssl.SSLContext) -> None:
    with pytest.raises((httpx.TransportError, ssl.SSLError)):
        httpx.get(f"https://127.0.0.1:{public.port}/livez", verify=trust)


@pytest.mark.parametrize("loop", _loops())
def test_a_refused_client_is_counted_by_cause_and_told_once_a_minute(tmp_path: Path, loop: _Loop) -> None:
    """On both loops that may serve; the first is told at once, the others with the next that is told, and no address."""
    authority, clients = trustme.CA(), trustme.CA()
    files = issued(tmp_path, authority)
    (tmp_path / "clients.pem").write_bytes(clients.cert_pem.bytes())
    counted: list[HandshakeFailure] = []
    now = [1000.0]
    settings = Settings(
        tls_certificate_file=files.certificate,
        tls_key_file=files.key,
        tls_client_ca_file=tmp_path / "clients.pem",
    )
    tls = open_tls(settings, "public", handshakes=Handshakes("public", counted.append, lambda: now[0]))
    known = _trusting(authority, clients.issue_cert("client.test"))
    expected = [HandshakeFailure.NO_CERTIFICATE]
    with captured_log() as log, public_listener(tls=tls, loop=loop) as public:
        _refused(public, _trusting(authority))
        until(lambda: counted == expected)
        _refused(public, _trusting(authority, trustme.CA().issue_cert("client.test")))
        expected.append(HandshakeFailure.UNTRUSTED)
        until(lambda: counted == expected)
        with public.connect() as plain:
            plain.sendall(_LIVE)
            assert not ended(plain).startswith(b"HTTP/")
        expected.append(HandshakeFailure.NOT_TLS)
        until(lambda: counted == expected)
        now[0] += 61.0
        _refused(public, ssl.create_default_context())
        expected.append(HandshakeFailure.BROKEN_OFF)
        until(lambda: counted == expected)
        with public.over_tls(known) as connection:
            connection.sendall(_LIVE)
            assert ended(connection).startswith(b"HTTP/1.1 200 ")
    assert counted == expected
    lines = [json.loads(line) for line in log.getvalue().splitlines() if b"handshakes failed" in line]
    told = [{name: line[name] for name in line if name in {*HandshakeFailure, "listener", "level"}} for line in lines]
    assert told == [
        {"level": "warning", "listener": "public", "no_certificate": 1},
        {"level": "warning", "listener": "public", "untrusted": 1, "not_tls": 1, "broken_off": 1},
    ]
    assert b"127.0.0.1" not in b"".join(line for line in log.getvalue().splitlines() if b"handshakes" in line)


def test_versions_that_do_not_meet_are_other_causes(tmp_path: Path) -> None:
    """A client of TLS 1.1 alone finds no version that the listener speaks too."""
    authority = trustme.CA()
    files = issued(tmp_path, authority)
    counted: list[HandshakeFailure] = []
    settings = Settings(tls_certificate_file=files.certificate, tls_key_file=files.key)
    tls = open_tls(settings, "public", handshakes=Handshakes("public", counted.append, lambda: 0.0))
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with public_listener(tls=tls) as public:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            public.over_tls(old)
        until(lambda: counted == [HandshakeFailure.OTHER])
