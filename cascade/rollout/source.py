"""Open what a release is read from: a YAML file, a bundle's folder or a bundle's tar."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.rollout.artefacts import ARTEFACTS_FOLDER, Artefacts, read_bounded
from cascade.rollout.mount import mounted
from cascade.rollout.names import RELEASE_NAME, SIGNATURE_NAME, is_of_bundle
from cascade.rollout.supplied import supplied_folder
from cascade.rollout.tar import parse_tar, read_tar

__all__ = ["Source", "SourceKind", "open_source", "opened_tar"]

_LARGEST_RELEASE: Final = 2**20
_LARGEST_SIGNATURE: Final = 4096
_CALIBRATION: Final = "calibration"


class SourceKind(StrEnum):
    """What a release is read from."""

    FILE = "file"
    FOLDER = "folder"
    TAR = "tar"


@dataclass(frozen=True, slots=True)
class Source:
    """A release as written, and where its artefacts lie.

    ``strays`` are files that no bundle has. ``signature`` is what the bundle has as one, unread.
    """

    path: Path
    kind: SourceKind
    text: bytes
    artefacts: Artefacts
    strays: tuple[str, ...] = ()
    signature: bytes | None = None


def open_source(path: Path) -> Source:
    """Read the release at ``path``. Raises ConfigError.

    A bundle has its own artefacts and no others. A YAML file finds them in ``artifacts`` and
    ``calibration`` beside it, in ``calibration`` beside its folder, and among those of the package. Of a folder that
    is mounted and swapped as one (Kubernetes), all of it is read in the state of one moment.
    """
    try:
        return _open(path)
    except ConfigError as error:
        raise ConfigError(f"release {error}") from None
    except OSError as error:  # a folder that may not be looked into
        raise ConfigError(f"release {path}: cannot be read: {type(error).__name__}") from None


def opened_tar(path: Path, data: bytes) -> Source:
    """Read a bundle's tar from memory; ``path`` is what it is called in errors. Raises ConfigError."""
    try:
        return _of_files(path, parse_tar(data))
    except ConfigError as error:
        raise ConfigError(f"release {path}: {error}") from None


def _open(path: Path) -> Source:
    if path.is_dir():
        return _folder(path, mounted(path))
    if path.suffix == ".tar":
        files = read_tar(path)
        try:
            return _of_files(path, files)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
    folder = path.parent
    here = mounted(folder)
    beside = (here / _CALIBRATION, Path(os.path.realpath(folder)).parent / _CALIBRATION, supplied_folder(_CALIBRATION))
    artefacts = Artefacts(named=here / ARTEFACTS_FOLDER, indexed=tuple(dict.fromkeys(beside)))
    return Source(path, SourceKind.FILE, read_bounded(here / path.name, _LARGEST_RELEASE), artefacts)


def _of_files(path: Path, files: dict[str, bytes]) -> Source:
    if RELEASE_NAME not in files:
        raise ConfigError(f"no {RELEASE_NAME} in it")
    for name, most in ((RELEASE_NAME, _LARGEST_RELEASE), (SIGNATURE_NAME, _LARGEST_SIGNATURE)):
        if len(files.get(name, b"")) > most:
            raise ConfigError(f"{name}: larger than {most} bytes")
    held = {name.removeprefix(f"{ARTEFACTS_FOLDER}/"): data for name, data in files.items()}
    text, signature = held.pop(RELEASE_NAME), held.pop(SIGNATURE_NAME, None)
    return Source(path, SourceKind.TAR, text, Artefacts(held=held), signature=signature)


def _folder(path: Path, here: Path) -> Source:
    text = read_bounded(here / RELEASE_NAME, _LARGEST_RELEASE, plain=True)
    signature = here / SIGNATURE_NAME
    signed = read_bounded(signature, _LARGEST_SIGNATURE, plain=True) if signature.exists() else None
    artefacts = Artefacts(named=here / ARTEFACTS_FOLDER)
    return Source(path, SourceKind.FOLDER, text, artefacts, tuple(_strays(here)), signed)


def _strays(folder: Path) -> list[str]:
    """Return what lies in a bundle's folder and does not belong there; hidden files are a mount's own."""
    try:
        names = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    except OSError as error:  # it is being swapped or taken away
        raise ConfigError(f"{folder}: cannot be read: {type(error).__name__}") from None
    return [
        name.as_posix()
        for name in names
        if not is_of_bundle(name.as_posix()) and not any(part.startswith(".") for part in name.parts)
    ]
