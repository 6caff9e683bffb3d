"""Looking artefacts up by digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.calibration.artefact import artefact_digest
from cascade.errors import ConfigError
from cascade.rollout.artefacts import Artefacts, artefact_name, read_bounded

_DATA = b'{"a":1}\n'
_DIGEST = artefact_digest(_DATA)


def test_a_held_artefact_is_given_by_its_digest() -> None:
    """What a tar held is found under the digest of its bytes."""
    assert Artefacts(held={artefact_name(_DIGEST): _DATA}).read(_DIGEST) == _DATA


def test_a_named_artefact_is_found_in_its_folder(tmp_path: Path) -> None:
    """A bundle's folder has files by digest."""
    (tmp_path / artefact_name(_DIGEST)).write_bytes(_DATA)
    assert Artefacts(named=tmp_path).read(_DIGEST) == _DATA


def test_an_indexed_artefact_is_found_under_any_name(tmp_path: Path) -> None:
    """Folders are looked through in order; only JSON files that can be read count."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (first / "other.json").write_bytes(b"{}")
    (first / "folder.json").mkdir()
    (first / "same.txt").write_bytes(_DATA)
    (second / "any.json").write_bytes(_DATA)
    assert Artefacts(indexed=(first, second)).read(_DIGEST) == _DATA


@pytest.mark.parametrize("held", [True, False])
def test_an_altered_artefact_is_refused_with_both_digests(tmp_path: Path, *, held: bool) -> None:
    """Bytes under another digest's name are never given."""
    altered = _DATA.replace(b"1", b"2")
    (tmp_path / artefact_name(_DIGEST)).write_bytes(altered)
    artefacts = Artefacts(held={artefact_name(_DIGEST): altered}) if held else Artefacts(named=tmp_path)
    with pytest.raises(ConfigError) as refused:
        artefacts.read(_DIGEST)
    assert str(refused.value) == (
        f"artefact {_DIGEST}: it was altered: its bytes have the digest {artefact_digest(altered)}"
    )


def test_a_missing_artefact_is_told_with_the_places_looked_in(tmp_path: Path) -> None:
    """Folders are named; those that are not there hold nothing."""
    with pytest.raises(ConfigError) as refused:
        Artefacts(named=tmp_path / "a", indexed=(tmp_path / "b",)).read(_DIGEST)
    told = f"artefact {_DIGEST}: no file has this digest; looked in {tmp_path / 'a'}, {tmp_path / 'b'}"
    assert str(refused.value) == told
    with pytest.raises(ConfigError, match=r"no file has this digest in the bundle$"):
        Artefacts().read(_DIGEST)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    """A file of the most bytes is read; one byte more, or no file, is an error that says so."""
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_bounded(path, 4) == b"1234"
    with pytest.raises(ConfigError, match="larger than 3 bytes"):
        read_bounded(path, 3)
    with pytest.raises(ConfigError, match="cannot be read: FileNotFoundError"):
        read_bounded(tmp_path / "none", 3)
