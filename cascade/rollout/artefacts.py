"""Look artefacts up by the digest of their bytes."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cascade.calibration.artefact import artefact_digest
from cascade.errors import ConfigError

__all__ = ["ARTEFACTS_FOLDER", "LARGEST_ARTEFACT", "Artefacts", "artefact_name", "read_bounded"]

ARTEFACTS_FOLDER: Final = "artifacts"
LARGEST_ARTEFACT: Final = 32 * 2**20
"""Bytes. A calibration has about 200 kB."""


@dataclass(frozen=True, slots=True)
class Artefacts:
    """Where the artefacts of a release lie.

    ``held`` are those of a tar, by name; ``named`` is a folder of ``<sha256>.json``; ``indexed`` are folders
    of JSON files under any name, looked through in order. What is found is held against the digest.
    """

    held: Mapping[str, bytes] = field(default_factory=dict)
    named: Path | None = None
    indexed: tuple[Path, ...] = ()

    def read(self, digest: str) -> bytes:
        """Return the bytes of a digest. Raises ConfigError where they are missing or were altered."""
        name = artefact_name(digest)
        data = self.held.get(name)
        if data is None and self.named is not None and (path := self.named / name).is_file():
            data = read_bounded(path, LARGEST_ARTEFACT, plain=True)
        if data is None:
            return self._search(digest)
        found = artefact_digest(data)
        if found != digest:
            raise ConfigError(f"artefact {digest}: it was altered: its bytes have the digest {found}")
        return data

    def _search(self, digest: str) -> bytes:
        for path in (path for folder in self.indexed for path in sorted(folder.glob("*.json"))):
            try:
                data = read_bounded(path, LARGEST_ARTEFACT, plain=True)
            except ConfigError:
                continue  # what cannot be read, or is no artefact by its size, is not the one
            if artefact_digest(data) == digest:
                return data
        raise ConfigError(f"artefact {digest}: no file has this digest{self._where()}")

    def _where(self) -> str:
        folders = [str(folder) for folder in (self.named, *self.indexed) if folder is not None]
        return f"; looked in {', '.join(folders)}" if folders else " in the bundle"


def artefact_name(digest: str) -> str:
    """Return the name of the file of a digest in a bundle."""
    return f"{digest.removeprefix('sha256:')}.json"


def read_bounded(path: Path, most: int, *, plain: bool = False) -> bytes:
    """Return a file's bytes. Raises ConfigError where it cannot be read or is larger than ``most``.

    With ``plain`` it must be a regular file: a pipe that nobody writes to would be waited for without end.
    """
    try:
        with open(path, "rb", opener=_opened_at_once if plain else None) as file:
            if plain and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: not a regular file")
            data = file.read(most + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {type(error).__name__}") from None
    if len(data) > most:
        raise ConfigError(f"{path}: larger than {most} bytes")
    return data


def _opened_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
