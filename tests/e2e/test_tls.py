"""The real sidecar over TLS: both listeners, clients' certificates, and certificates that are renewed while it serves."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
import trustme

from cascade.testing.upstream import FakeTei
from tests.certificates import NOW, issued
from tests.cli.conftest import BARE
from tests.e2e.processes import Process, listening, serving, write_yaml

_ROOMY = {"total_ms": 5000, "small_ms": 4000, "large_ms": 100, "reserve_ms": 20}
_BODY = {"query": "why do boats float", "documents": ["Bread is baked.", "Boats float on water."]}


def _serving(folder: Path, url: str, variables: Mapping[str, str]) -> AbstractContextManager[Process]:
    small = {"adapter": "tei", "url": url, "model": "m", "engine": "tei/1.9"}
    release = BARE | {"stages": {"small": small}, "depth": 5, "budgets": _ROOMY}
    return serving(folder, "--release", str(write_yaml(folder / "release.yaml", release)), **variables)


def _shown(url: str, trust: ssl.SSLContext) -> str:
    with (
        httpx.Client(verify=trust) as client,
        client.stream("GET", f"{url}/livez") as response,
    ):
        assert response.status_code == 200
        stream = response.extensions["network_stream"]
        return str(stream.get_extra_info("ssl_object").getpeercert()["serialNumber"])


def _trusting(authority: trustme.CA, shown: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if shown is not None:
        shown.configure_cert(context)
    return context


def test_both_listeners_speak_tls_and_take_renewed_certificates(tmp_path: Path) -> None:
    """The public one lets in who shows a certificate; the admin one is asked by probes without; a bad file changes nothing."""
    authority, clients = trustme.CA(), trustme.CA()
    folder = tmp_path / "tls"
    files = issued(folder, authority)
    (tmp_path / "clients.pem").write_bytes(clients.cert_pem.bytes())
    of_tls = {"CERTIFICATE_FILE": str(files.certificate), "KEY_FILE": str(files.key)}
    variables = {f"CASCADE__{of}TLS_{name}": value for of in ("", "ADMIN_") for name, value in of_tls.items()}
    variables |= {"CASCADE__TLS_CLIENT_CA_FILE": str(tmp_path / "clients.pem"), "CASCADE__KEYS_SECONDS": "0.1"}
    known, unknown = _trusting(authority, clients.issue_cert("client.test")), _trusting(authority)
    with listening(FakeTei()) as url, _serving(tmp_path, url, variables) as process:
        assert process.public.startswith("https://")
        assert process.admin.startswith("https://")
        answered = httpx.post(f"{process.public}/v1/rerank", json=_BODY, verify=known, timeout=20)
        assert [each["index"] for each in answered.json()["results"]] == [1, 0]
        with pytest.raises((httpx.TransportError, ssl.SSLError)):
            httpx.get(f"{process.public}/livez", verify=unknown)
        assert httpx.get(f"{process.admin}/readyz", verify=unknown).status_code == 200
        first = _shown(process.public, known)
        issued(folder, authority, days=40)
        end = time.monotonic() + 20
        while (second := _shown(process.public, known)) == first:
            assert time.monotonic() < end
        files.key.write_text("no key", encoding="utf-8")
        while not any("not read again" in event["event"] for event in process.events()):
            assert time.monotonic() < end
        assert _shown(process.public, known) == second
        metrics = httpx.get(f"{process.admin}/metrics", verify=unknown).text
        (line,) = [
            each
            for each in metrics.splitlines()
            if each.startswith('cascade_tls_expiry_timestamp_seconds{listener="public"}')
        ]
        assert float(line.split()[1]) == pytest.approx(NOW.timestamp() + 40 * 86_400, abs=2)
        assert 'cascade_tls_read_total{listener="admin",result="ok"} 0.0' not in metrics
        assert 'cascade_tls_handshakes_failed_total{listener="public",why="no_certificate"} 1.0' in metrics
        assert [event for event in process.events() if event["event"] == "handshakes failed"]
        assert process.stop() == 0
