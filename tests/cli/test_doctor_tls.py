"""What ``cascade doctor`` tells of certificates."""

from __future__ import annotations

import json
from pathlib import Path

import trustme

from tests.certificates import Files, issued
from tests.cli.conftest import Command, WriteRelease


def _variables(files: Files, of: str = "") -> dict[str, str]:
    return {
        f"CASCADE__{of}TLS_CERTIFICATE_FILE": str(files.certificate),
        f"CASCADE__{of}TLS_KEY_FILE": str(files.key),
    }


def test_the_days_that_certificates_have_left_are_told(command: Command, release: WriteRelease, tmp_path: Path) -> None:
    """Of each listener; soon means something to do, and no exit status."""
    authority = trustme.CA()
    long, soon = issued(tmp_path / "a", authority, days=90.5), issued(tmp_path / "b", authority, days=13.5)
    variables = _variables(long) | _variables(soon, "ADMIN_")
    done = command("doctor", "--release", release(), variables=variables)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(
        "certificates\n"
        "  certificate of the public listener: 90 days left\n"
        "  certificate of the admin listener: 13 days left\n"
        "  change   renew the certificate of the admin listener before it ends\n"
        "cache\n"
    )
    found = json.loads(command("doctor", "--json", "--release", release(), variables=variables).out)
    assert [each["days"] for each in found["certificates"]] == [90, 13]


def test_a_certificate_that_cannot_be_served_with_is_exit_1(
    command: Command, release: WriteRelease, tmp_path: Path
) -> None:
    """With the reason that a start would give."""
    files = issued(tmp_path, trustme.CA(), days=-1, begins_in_days=-2)
    done = command("doctor", "--release", release(), variables=_variables(files))
    assert done.status == 1
    assert f"  change   tls_certificate_file {files.certificate}: has expired\n" in done.out


def test_the_certificate_that_a_stage_shows_is_told(command: Command, release: WriteRelease, tmp_path: Path) -> None:
    """Though its server is not there."""
    files = issued(tmp_path, trustme.CA(), "client.test", days=40.5)
    stage = {
        "adapter": "tei",
        "url": "https://127.0.0.1:9",
        "model": "m",
        "engine": "tei/1.9",
        "connect_ms": 50,
        "client_certificate": {"certificate": str(files.certificate), "key": str(files.key)},
    }
    variables = {"CASCADE__RELEASE_FILES": f"{tmp_path}/*"}
    done = command("doctor", "--release", release(stages={"small": stage}, depth=5), variables=variables)
    assert "  client certificate of small: 40 days left\n" in done.out
