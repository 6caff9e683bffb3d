"""Write a bundle as a tar whose bytes follow from its contents, and read one that anybody may have written."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.rollout.artefacts import LARGEST_ARTEFACT, read_bounded
from cascade.rollout.names import is_of_bundle

__all__ = ["LARGEST_TAR", "parse_tar", "read_tar", "tar_bytes"]

LARGEST_TAR: Final = 64 * 2**20
_MOST_MEMBERS: Final = 64
_UNREADABLE: Final = (tarfile.TarError, ValueError, OverflowError, EOFError, KeyError, IndexError, RecursionError)
"""What Python's reader raises for bytes that are no tar."""


def tar_bytes(contents: Mapping[str, bytes]) -> bytes:
    """Return a tar of these files: names sorted, no time, owner or compression, so that equal files make equal bytes."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(contents):
            member = tarfile.TarInfo(name)
            member.size = len(contents[name])
            member.mode = 0o644
            tar.addfile(member, io.BytesIO(contents[name]))
    return written.getvalue()


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
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            files = _files(tar)
            rest = data[tar.offset :]
    except _UNREADABLE:
        raise ConfigError("not a tar, or damaged; it must not be compressed") from None
    if rest.strip(b"\0"):  # an entry that is damaged ends the reading as the end of the archive does
        raise ConfigError("damaged: there is more after its last readable entry")
    return files


def _files(tar: tarfile.TarFile) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for number, member in enumerate(tar):
        name = member.name.removeprefix("./")
        if number >= _MOST_MEMBERS:
            raise ConfigError(f"more than {_MOST_MEMBERS} entries")
        if member.isdir() and name in {".", "artifacts"}:
            continue
        if not is_of_bundle(name):
            raise ConfigError(f"entry {number}: its name is none that a bundle has")
        if member.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or member.sparse is not None:
            raise ConfigError(f"{name}: not a plain file")
        if name in files:
            raise ConfigError(f"{name}: there twice")
        if member.size > LARGEST_ARTEFACT:
            raise ConfigError(f"{name}: larger than {LARGEST_ARTEFACT} bytes")
        file = tar.extractfile(member)
        files[name] = b"" if file is None else file.read()
    return files
