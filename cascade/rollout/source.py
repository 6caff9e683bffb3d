"""Open what a release is read from: a YAML file, a bundle's folder or a bundle's tar."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.rollout.artefacts import ARTEFACTS_FOLDER, Artefacts, read_bounded
from cascade.rollout.names import RELEASE_NAME, is_of_bundle
from cascade.rollout.supplied import supplied_folder
from cascade.rollout.tar import read_tar

__all__ = ["Source", "SourceKind", "open_source"]

_LARGEST_RELEASE: Final = 2**20
_CALIBRATION: Final = "calibration"


class SourceKind(StrEnum):
    """What a release is read from."""

    FILE = "file"
    FOLDER = "folder"
    TAR = "tar"


@dataclass(frozen=True, slots=True)
class Source:
    """A release as written, and where its artefacts lie. ``strays`` are files that no bundle has."""

    path: Path
    kind: SourceKind
    text: bytes
    artefacts: Artefacts
    strays: tuple[str, ...] = ()


def open_source(path: Path) -> Source:
    """Read the release at ``path``. Raises ConfigError.

    A bundle has its own artefacts and no others. A YAML file finds them in ``artifacts`` and
    ``calibration`` beside it, in ``calibration`` beside its folder, and among those of the package.
    """
    try:
        return _open(path)
    except ConfigError as error:
        raise ConfigError(f"release {error}") from None


def _open(path: Path) -> Source:
    if path.is_dir():
        text = read_bounded(path / RELEASE_NAME, _LARGEST_RELEASE)
        artefacts = Artefacts(named=path / ARTEFACTS_FOLDER)
        return Source(path, SourceKind.FOLDER, text, artefacts, tuple(_strays(path)))
    if path.suffix == ".tar":
        files = read_tar(path)
        if RELEASE_NAME not in files:
            raise ConfigError(f"{path}: no {RELEASE_NAME} in it")
        held = {name.removeprefix(f"{ARTEFACTS_FOLDER}/"): data for name, data in files.items()}
        return Source(path, SourceKind.TAR, held.pop(RELEASE_NAME), Artefacts(held=held))
    folder = path.parent
    beside = (folder / _CALIBRATION, folder.resolve().parent / _CALIBRATION, supplied_folder(_CALIBRATION))
    artefacts = Artefacts(named=folder / ARTEFACTS_FOLDER, indexed=tuple(dict.fromkeys(beside)))
    return Source(path, SourceKind.FILE, read_bounded(path, _LARGEST_RELEASE), artefacts)


def _strays(folder: Path) -> list[str]:
    """Return what lies in a bundle's folder and does not belong there; hidden files are a mount's own."""
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [
        name.as_posix()
        for name in names
        if not is_of_bundle(name.as_posix()) and not any(part.startswith(".") for part in name.parts)
    ]
