"""Secrets of hashes: text without what editors add, bytes as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.errors import ConfigError
from cascade.server.secret_file import secret_of

_TEXT = b"a secret of 24 characters"


@pytest.mark.parametrize("written", [_TEXT, _TEXT + b"\n", b" " + _TEXT + b"\r\n", _TEXT + b"\n\n"])
def test_white_space_around_text_does_not_count(tmp_path: Path, written: bytes) -> None:
    """The same secret, whatever wrote the file."""
    file = tmp_path / "secret"
    file.write_bytes(written)
    assert secret_of(file, "cache_key_file") == _TEXT


@pytest.mark.parametrize("edge", [b"\n", b" ", b"\t", b"\r", b"\x0b"])
def test_bytes_that_are_no_text_are_taken_whole(tmp_path: Path, edge: bytes) -> None:
    """One random key in five begins or ends with a byte that looks like white space; it is part of the key."""
    key = edge + bytes(range(200, 214)) + edge
    file = tmp_path / "secret"
    file.write_bytes(key)
    assert secret_of(file, "query_hash_key_file") == key
    file.write_bytes(key[:-1])
    with pytest.raises(ConfigError, match=r"^query_hash_key_file: a key has 16 to 64 bytes$"):
        secret_of(file, "query_hash_key_file")
