"""Write a bundle as a tar whose bytes follow from its contents, and read one that anybody may have written.

Headers are parsed by the standard library and walked here: its own reader takes a time that grows with the square of
an extended header's length.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.rollout.artefacts import ARTEFACTS_FOLDER, LARGEST_ARTEFACT, read_bounded
from cascade.rollout.names import is_of_bundle

__all__ = ["LARGEST_TAR", "parse_tar", "read_tar", "tar_bytes"]

LARGEST_TAR: Final = 64 * 2**20
_MOST_ENTRIES: Final = 64
"""With those that only extend others."""
_BLOCK: Final = tarfile.BLOCKSIZE
_UNREADABLE: Final = "not a tar, or damaged; it must not be compressed"
_PLAIN: Final = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE})
_EXTENDING: Final = frozenset({tarfile.XHDTYPE, tarfile.XGLTYPE})
"""Headers with more of the entry behind them: programs put times there."""
_CHANGING: Final = (b" path=", b" size=", b" GNU.sparse.")
"""What would make another entry of it, to the programs that read it."""


def tar_bytes(contents: Mapping[str, bytes]) -> bytes:
    """Return a tar of these files: names sorted, no time, owner or compression, so that equal files make equal bytes.

    Raises ConfigError where that is more than is read.
    """
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(contents):
            member = tarfile.TarInfo(name)
            member.size = len(contents[name])
            member.mode = 0o644
            tar.addfile(member, io.BytesIO(contents[name]))
    data = written.getvalue()
    if len(data) > LARGEST_TAR:
        raise ConfigError(f"larger than {LARGEST_TAR} bytes as a tar, which no bundle may be")
    return data


def read_tar(path: Path) -> dict[str, bytes]:
    """Return the files of a bundle's tar by name. Nothing is written anywhere.

    Raises ConfigError for a name that no bundle has, one given twice, a link or device, and what is too
    large or too many.
    """
    data = read_bounded(path, LARGEST_TAR, plain=True)
    try:
        return parse_tar(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_tar(data: bytes) -> dict[str, bytes]:
    """Return the files of a bundle's tar by name, as `read_tar` does of a file. Raises ConfigError."""
    if len(data) > LARGEST_TAR:
        raise ConfigError(f"larger than {LARGEST_TAR} bytes")
    files: dict[str, bytes] = {}
    for number, (entry, begin) in enumerate(_members(data)):
        name = entry.name.removeprefix("./")
        if (entry.isdir() and name in {".", ARTEFACTS_FOLDER}) or _is_aside(name):
            continue
        if not is_of_bundle(name):
            raise ConfigError(f"entry {number}: its name is none that a bundle has")
        if entry.type not in _PLAIN:
            raise ConfigError(f"{name}: not a plain file")
        if name in files:
            raise ConfigError(f"{name}: there twice")
        if entry.size > LARGEST_ARTEFACT:
            raise ConfigError(f"{name}: larger than {LARGEST_ARTEFACT} bytes")
        files[name] = data[begin : begin + entry.size]
    return files


def _is_aside(name: str) -> bool:
    """Tell whether it is what macOS puts beside a file, of its attributes. Of a folder, hidden files are passed over too."""
    return name.rpartition("/")[2].startswith("._")


def _members(data: bytes) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Yield the entries of a tar but those that only extend others. Raises ConfigError where it is damaged."""
    for number, (entry, begin) in enumerate(_entries(data)):
        if number >= _MOST_ENTRIES:
            raise ConfigError(f"more than {_MOST_ENTRIES} entries")
        if entry.type not in _EXTENDING:
            yield entry, begin
        elif any(change in data[begin : begin + entry.size] for change in _CHANGING):
            raise ConfigError(f"header {number}: it renames or resizes the entry behind it")


def _entries(data: bytes) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Yield what each header says, and where the content of its entry begins."""
    at = 0
    while any(header := data[at : at + _BLOCK]):
        begin = at + _BLOCK
        try:
            entry = tarfile.TarInfo.frombuf(header, "utf-8", "replace")
        except tarfile.HeaderError:
            entry = None
        if entry is None or entry.size < 0:
            raise ConfigError("damaged: there is more after its last readable entry" if at else _UNREADABLE)
        yield entry, begin
        at = begin if entry.isdir() else begin + -(-entry.size // _BLOCK) * _BLOCK
        if at > len(data):
            raise ConfigError(_UNREADABLE)
    if not data[at:]:  # it was cut off before its end
        raise ConfigError(_UNREADABLE)
    if data[at:].strip(b"\0"):
        raise ConfigError("damaged: there is more after its last readable entry")
