"""Find the bundle that a digest or a name means."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep, Refused
from cascade.rollout.load import LoadedRelease, offline, release_from
from cascade.rollout.names import RELEASE_NAME, is_digest
from cascade.rollout.source import open_source
from cascade.rollout.store import NotSigned, ReleaseStore, Stored

__all__ = ["find_release", "taken"]

Bundle = TypeVar("Bundle", bytes, Path)

_MOST: Final = 1000
_MOST_TOLD: Final = 20


def find_release(wanted: str, store: ReleaseStore, folder: Path | None, *, keep: bool = True) -> Stored:
    """Return the bundle of this digest or release name, of those in the folder or, by digest, those that are kept.

    What is found in the folder is put into the store; with ``keep`` false it is only held against what the store
    takes. Raises ConfigError where none or several are meant, and Refused where it may be one that cannot be read, or is
    one that cannot be used.
    """
    by_digest = is_digest(wanted)
    kept = store.stored(wanted) if by_digest else None
    if kept is not None:
        return kept
    read, unread = _looked_through(folder)
    found: dict[str, list[Path]] = {}
    for path, loaded in read.items():
        if wanted == (loaded.digest if by_digest else loaded.release.release):
            found.setdefault(loaded.digest, []).append(path)
    if not found:
        raise _none(wanted, folder, {loaded.release.release for loaded in read.values()}, unread)
    if len(found) > 1:
        raise ConfigError(f"several releases have this name; name one by its digest: {', '.join(sorted(found))}")
    return _first(store.put if keep else store.look, next(iter(found.values())))


def taken(take: Callable[[Bundle], Stored], bundle: Bundle) -> Stored:
    """Return a bundle as the store takes it. Raises Refused, at the step of an activation that it would fail."""
    try:
        return take(bundle)
    except ConfigError as error:
        step = ActivationStep.SIGNATURE if isinstance(error, NotSigned) else ActivationStep.READ
        raise Refused(step, (str(error),)) from None


def _looked_through(folder: Path | None) -> tuple[dict[Path, LoadedRelease], list[str]]:
    """Return the releases of a folder's bundles, and why others cannot be read, without what somebody wrote in them."""
    read: dict[Path, LoadedRelease] = {}
    unread: list[str] = []
    for path in _bundles(folder):
        try:
            source = open_source(path)
        except ConfigError as error:
            unread.append(str(error).removeprefix("release ").replace(f"{path.parent}{os.sep}", ""))
            continue
        try:
            read[path] = release_from(source, offline(os.environ))
        except ConfigError:
            unread.append(f"{path.name}: its release breaks a rule: `cascade release verify` tells which")
    return read, unread


def _none(wanted: str, folder: Path | None, names: Collection[str], unread: list[str]) -> ConfigError | Refused:
    """Return the error of what is not there: what is, by the names inside the bundles, and what cannot be read."""
    what = "digest" if is_digest(wanted) else "name"
    if folder is None:
        return ConfigError(f"no release of this {what}: releases_folder is not set")
    there = ", ".join(_few(sorted(names))) or "none"
    said = f"no release of this {what} in {folder}: there are, by the name inside the file: {there}"
    if not unread:
        return ConfigError(said)
    return Refused(ActivationStep.READ, (said, *_few([f"cannot be read: {each}" for each in unread])))


def _few(told: list[str]) -> list[str]:
    return told if len(told) <= _MOST_TOLD else [*told[:_MOST_TOLD], f"and {len(told) - _MOST_TOLD} more"]


def _first(take: Callable[[Path], Stored], copies: list[Path]) -> Stored:
    """Take the first of several copies of a release that can be used: one of them may not be signed."""
    for path in copies[:-1]:
        with suppress(ConfigError):
            return take(path)
    return taken(take, copies[-1])


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
