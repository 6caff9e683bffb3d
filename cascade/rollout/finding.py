"""Find the bundle that a digest or a name means."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.rollout.load import offline, release_from
from cascade.rollout.names import RELEASE_NAME
from cascade.rollout.source import open_source
from cascade.rollout.store import ReleaseStore, Stored

__all__ = ["find_release"]

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MOST: Final = 1000


def find_release(wanted: str, store: ReleaseStore, folder: Path | None) -> Stored:
    """Return the bundle of this digest or release name, of those in the folder or, by digest, those that are kept.

    What is found in the folder is put into the store. Raises ConfigError where none or several are meant, and for one
    that cannot be used.
    """
    by_digest = _DIGEST.fullmatch(wanted) is not None
    kept = store.stored(wanted) if by_digest else None
    if kept is not None:
        return kept
    found: dict[str, list[Path]] = {}
    unread = 0
    for path in _bundles(folder):
        try:
            loaded = release_from(open_source(path), offline(os.environ))
        except ConfigError:
            unread += 1
            continue
        if wanted == (loaded.digest if by_digest else loaded.release.release):
            found.setdefault(loaded.digest, []).append(path)
    if not found:
        place = "releases_folder is not set" if folder is None else f"none in {folder}"
        left = f"; {unread} there cannot be read" if unread else ""
        raise ConfigError(f"no release of this {'digest' if by_digest else 'name'}: {place}{left}")
    if len(found) > 1:
        raise ConfigError(f"several releases have this name; name one by its digest: {', '.join(sorted(found))}")
    return _put(store, next(iter(found.values())))


def _put(store: ReleaseStore, copies: list[Path]) -> Stored:
    """Put the first of several copies of a release into the store that can be used: one of them may not be signed."""
    for path in copies[:-1]:
        with suppress(ConfigError):
            return store.put(path)
    return store.put(copies[-1])


def _bundles(folder: Path | None) -> list[Path]:
    """Return the bundles of a folder: tars and folders with a release in them. A YAML file beside them is none."""
    if folder is None:
        return []
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"releases_folder {folder}: cannot be read: {type(error).__name__}") from None
    if len(paths) > _MOST:
        raise ConfigError(f"releases_folder {folder}: more than {_MOST} entries")
    return [path for path in paths if path.suffix == ".tar" or _is_folder_of_one(path)]


def _is_folder_of_one(path: Path) -> bool:
    """Tell whether a folder is a bundle; one that may not be looked into counts as one that cannot be read."""
    try:
        return (path / RELEASE_NAME).is_file()
    except OSError:
        return True
