"""The file of a certificate."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest

from cascade.calibration.certificate import certificate_bytes, certificate_digest, parse_certificate
from cascade.errors import ConfigError

from .made_certificate import made_certificate


def test_what_is_written_is_read_back() -> None:
    """And written again it has the same bytes: sorted keys, one line."""
    certificate = made_certificate()
    data = certificate_bytes(certificate)
    assert parse_certificate(data, "it") == certificate
    assert certificate_bytes(parse_certificate(data, "it")) == data
    assert data.startswith(b'{"as_served":null,"attempts":')
    assert data.endswith(b"}\n")
    assert certificate_digest(data) == f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"format": "cascade-certificate/2"}, "certificate it: format: "),
        ({"n": 0}, "certificate it: n: "),
        ({"unknown": 1}, "certificate it: unknown: "),
        ({"p": 1.5}, "certificate it: p: "),
        ({"large_share": None}, "certificate it: large_share: "),
        ({"contract": {}}, "certificate it: contract.kind: "),
    ],
)
def test_what_is_no_certificate_is_refused_by_key(changes: dict[str, Any], told: str) -> None:
    """The value at fault is not told."""
    data = orjson.loads(certificate_bytes(made_certificate())) | changes
    with pytest.raises(ConfigError) as refused:
        parse_certificate(orjson.dumps(data), "it")
    assert str(refused.value).startswith(told)
    assert "1.5" not in str(refused.value)


def test_what_is_no_json_is_refused() -> None:
    """It names the file."""
    with pytest.raises(ConfigError, match="certificate it: file: "):
        parse_certificate(b"nonsense", "it")
