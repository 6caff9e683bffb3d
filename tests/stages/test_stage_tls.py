"""Certificates of a stage: what it shows to a server that asks for one, when they end, and that they are renewed."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from cascade.errors import ConfigError
from cascade.stages.certificates import KeyPair, Pem, client_context, expires_at
from cascade.stages.stage_tls import expiries, stage_context
from tests.certificates import NOW, Files, issued
from tests.fault.servers import raw_server
from tests.fault.test_transport import score, stage_at
from tests.stages.arrange import tei_spec


def _server(authority: trustme.CA, clients: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    clients.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _spec_fields(folder: Path, authority: trustme.CA, files: Files | None) -> dict[str, Any]:
    ca = folder / "ca.pem"
    ca.write_bytes(authority.cert_pem.bytes())
    shown = None if files is None else {"certificate": str(files.certificate), "key": str(files.key)}
    return {"ca_bundle": str(ca), "client_certificate": shown}


async def test_a_server_that_asks_for_a_certificate_is_shown_one(tmp_path: Path) -> None:
    """Scores come; without one, or with another authority's, the round fails and says that it is TLS, or that it was cut."""
    authority, clients = trustme.CA(), trustme.CA()
    async with raw_server(tls=_server(authority, clients)) as server:
        url = f"https://127.0.0.1:{server.port}"
        good = _spec_fields(tmp_path, authority, issued(tmp_path / "good", clients, "client.test"))
        async with stage_at(url, **good) as stage:
            assert len(await score(stage)) == 2
        for files in (None, issued(tmp_path / "bad", trustme.CA(), "client.test")):
            async with stage_at(url, **_spec_fields(tmp_path, authority, files)) as stage:
                with pytest.raises(Exception, match=r"large: (tls|reset|cut|refused) after"):
                    await score(stage)


async def test_a_renewed_client_certificate_is_shown_to_new_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute later or more; until then, and where the new one cannot be used, the one before."""
    authority, clients = trustme.CA(), trustme.CA()
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    files = issued(tmp_path / "shown", trustme.CA(), "client.test")
    context = stage_context(tei_spec(url="https://h.test", **_spec_fields(tmp_path, authority, files)))
    first = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="h.test").context
    issued(tmp_path / "shown", clients, "client.test")
    now += 59
    assert context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="h.test").context is first
    now += 2
    second = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="h.test").context
    assert second is not first
    files.key.write_text("no key", encoding="utf-8")
    now += 61
    assert context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="h.test").context is second


def test_certificates_that_cannot_be_used_are_an_error_before_anything_is_asked(tmp_path: Path) -> None:
    """Of a server alone, of another key, expired, or away."""
    authority = trustme.CA()
    for days, begins, told in ((-1, -2, "has expired"), (9, 1, "is not valid yet")):
        files = issued(tmp_path / "c", authority, "client.test", days=days, begins_in_days=begins)
        with pytest.raises(ConfigError, match=rf"^client_certificate.certificate {files.certificate}: {told}$"):
            stage_context(tei_spec(url="https://h.test", **_spec_fields(tmp_path, authority, files)))
    files.key.unlink()
    with pytest.raises(ConfigError, match=rf"^client_certificate.key {files.key}: cannot be read: FileNotFoundError$"):
        stage_context(tei_spec(url="https://h.test", **_spec_fields(tmp_path, authority, files)))


def test_servers_are_always_verified() -> None:
    """Whatever a release says: there is nothing that it could say to switch that off."""
    for context in (stage_context(tei_spec(url="https://h.test")), client_context(None, None)):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_the_end_of_every_certificate_is_told(tmp_path: Path) -> None:
    """Of the one that is shown, and of the server's; of a server that is not there nothing."""
    authority, clients = trustme.CA(), trustme.CA()
    files = issued(tmp_path / "shown", clients, "client.test", days=30)
    fields = _spec_fields(tmp_path, authority, files)
    end = (NOW + dt.timedelta(days=30)).timestamp()
    async with raw_server(tls=_server(authority, clients)) as server:
        told = await expiries(tei_spec(url=f"https://127.0.0.1:{server.port}", **fields))
    assert told["client certificate"] == pytest.approx(end, abs=2)
    assert told["server certificate"] > end
    assert set(await expiries(tei_spec(url="https://127.0.0.1:9", **fields))) == {"client certificate"}
    pair = KeyPair(Pem("c", files.certificate), Pem("k", files.key))
    assert expires_at(pair, for_server=True) == pytest.approx(end, abs=2)
