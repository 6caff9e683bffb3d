"""Certificates that stand behind a listener's own: what is amiss with them is told, and served all the same."""

from __future__ import annotations

import io
import json
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
from cryptography import x509

from cascade.errors import ConfigError
from cascade.server.building import built_service
from cascade.server.settings import Settings
from cascade.server.tls import check_tls, open_tls
from tests.certificates import Files, Signer, chained, issued, signer
from tests.server.listeners import ended, public_listener
from tests.server.releases import bundled
from tests.telemetry.captured import captured_log

_LIVE = b"GET /livez HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
_DAY: Final = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4} GMT"


def _told_in(log: io.BytesIO) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == "certificate chain"]


def _settings(files: Files) -> Settings:
    return Settings(tls_certificate_file=files.certificate, tls_key_file=files.key)


@dataclass(frozen=True, slots=True)
class _Chain:
    """A file of certificates: who signed the first, what stands behind it, and what is told of that."""

    by: Signer
    behind: tuple[x509.Certificate, ...]
    told: tuple[str, ...]


def _chains() -> dict[str, _Chain]:
    root, another = signer("root"), signer("another")
    between = signer("between", root)
    above = signer("above", signer("root"))
    old, new = signer("root", days=-1, begins_in_days=-2), signer("root", begins_in_days=1)
    below_old, below_new, below_above = signer("between", old), signer("between", new), signer("between", above)
    leaf = x509.load_pem_x509_certificate(trustme.CA().issue_cert("127.0.0.1").cert_chain_pems[0].bytes())
    return {
        "whole": _Chain(between, (between.certificate, root.certificate), ()),
        "without its root": _Chain(between, (between.certificate,), ()),
        "expired": _Chain(below_old, (below_old.certificate, old.certificate), (rf"3 \(root\) expired {_DAY}",)),
        "not yet valid": _Chain(
            below_new, (below_new.certificate, new.certificate), (rf"3 \(root\) is not valid before {_DAY}",)
        ),
        "in another order": _Chain(
            between,
            (root.certificate, between.certificate),
            (r"2 \(root\) has not issued the one before it", r"3 \(between\) has not issued the one before it"),
        ),
        "of another authority": _Chain(
            between, (another.certificate,), (r"2 \(another\) has not issued the one before it",)
        ),
        "of another key": _Chain(
            below_above,
            (below_above.certificate, signer("above", root).certificate),
            ("the first does not lead to the last: certificate signature failure",),
        ),
        "of no authority": _Chain(between, (leaf,), ("2 is no authority's",)),
    }


@pytest.mark.parametrize("how", _chains())
def test_what_is_amiss_behind_a_certificate_is_told_and_served_all_the_same(tmp_path: Path, how: str) -> None:
    """By the check of settings, and in one line of the log where it comes with a renewal: each by its place and name."""
    tls = open_tls(_settings(issued(tmp_path, trustme.CA())), "public")
    assert tls is not None
    assert tls.chain_faults == []
    chain = _chains()[how]
    told = check_tls(_settings(chained(tmp_path, chain.by, chain.behind)))
    with captured_log() as log:
        tls.look()
        tls.look()
    where = f"tls_certificate_file {tmp_path / 'tls.crt'}: "
    line = {"level": "warning", "setting": "tls_certificate_file", "faults": len(told)}
    line |= {"why": "; ".join(fault.removeprefix(where) for fault in told)}
    line |= {"first_ends": datetime.fromtimestamp(tls.expires, UTC).isoformat()}
    assert [{name: each[name] for name in line} for each in _told_in(log)] == ([line] if told else [])
    which = rf"{re.escape(where)}(certificate )?"
    assert len(told) == len(chain.told)
    assert all(re.fullmatch(which + pattern, fault) for pattern, fault in zip(chain.told, told, strict=True))
    with public_listener(tls=tls) as public:
        anyone = ssl.create_default_context()
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        with public.over_tls(anyone) as connection:
            connection.sendall(_LIVE)
            assert ended(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("dates", "same_key", "told"),
    [
        ({"days": -1, "begins_in_days": -2}, True, rf"has expired; certificate 2 \(between\) expired {_DAY}"),
        ({"begins_in_days": 1}, True, rf"is not valid yet; certificate 2 \(between\) is not valid before {_DAY}"),
        ({}, False, "certificate signature failure"),
    ],
)
def test_an_issuer_that_cannot_have_signed_a_certificate_now_is_an_error_that_names_it(
    tmp_path: Path, dates: dict[str, float], same_key: bool, told: str
) -> None:
    """By its place, name and date: the certificate itself is in order."""
    root = signer("root")
    between = signer("between", root, **dates)
    shown = between if same_key else signer("between", root, **dates)
    files = chained(tmp_path, between, [shown.certificate, root.certificate])
    with pytest.raises(ConfigError, match=rf"^tls_certificate_file {re.escape(str(files.certificate))}: {told}$"):
        check_tls(_settings(files))


async def test_a_start_tells_what_is_amiss_behind_the_certificate_of_a_listener(tmp_path: Path) -> None:
    """Before anything listens; the listener is there all the same."""
    chain = _chains()["expired"]
    settings = _settings(chained(tmp_path, chain.by, chain.behind))
    with captured_log() as log:
        async with built_service(settings, {}, bundle=bundled()) as service:
            assert set(service.tls) == {"public"}
    (line,) = _told_in(log)
    assert "certificate 3 (root) expired" in line["why"]


@pytest.mark.parametrize("days", [90, -2])
def test_a_hundred_authorities_behind_a_certificate_are_one_line_of_the_log(tmp_path: Path, days: float) -> None:
    """As where a bundle stands there: the first of what is amiss, how much it is, and which date comes first."""
    root = signer("root")
    strangers = [signer(f"ca {number}", days=5 + number % 7, begins_in_days=-9).certificate for number in range(100)]
    strangers[40] = signer("ca 40", days=min(days, 1), begins_in_days=-9).certificate
    files = chained(tmp_path, root, strangers)
    tls = open_tls(_settings(files), "public")
    assert tls is not None
    with captured_log() as log:
        tls.tell()
    (line,) = _told_in(log)
    assert line["faults"] == len(tls.chain_faults) == 100 + (days < 0)
    assert line["why"].startswith("certificate 2 (ca 0) has not issued the one before it; certificate 3 (ca 1)")
    assert line["why"].endswith(f"; and {line['faults'] - 3} more")
    assert datetime.fromisoformat(line["first_ends"]) == strangers[40].not_valid_after_utc


def test_an_error_of_a_certificate_tells_no_hundred_of_those_behind_it(tmp_path: Path) -> None:
    """The first few, and how many more."""
    old = signer("root", days=-1, begins_in_days=-2)
    behind = [old.certificate, *(signer(f"ca {number}").certificate for number in range(100))]
    with pytest.raises(ConfigError, match=r"; and 99 more$") as refused:
        check_tls(_settings(chained(tmp_path, old, behind)))
    assert "has expired; certificate 2 (root) expired" in str(refused.value)
