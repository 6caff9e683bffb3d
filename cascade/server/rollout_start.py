"""Say what a start may serve: what decided before, what was good before that, and what settings name."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep
from cascade.rollout.bundle import Bundle
from cascade.rollout.history import Keeps, Remembered, StateFile
from cascade.rollout.load import default_release_path
from cascade.rollout.signing import ReleaseKeys, keys_in
from cascade.rollout.sources.looking import Looking, ReleaseSource
from cascade.rollout.sources.opening import release_source
from cascade.rollout.store import ReleaseStore, open_store
from cascade.rollout.unsettled import MOST_UNSETTLED, SETTLES_S, UnsettledStarts
from cascade.server.reading import nameable
from cascade.server.rollout_stored import StoredReleases
from cascade.server.settings import Settings
from cascade.server.start_choices import PassedOver, Place, StartChoices
from cascade.telemetry.folders import why_not
from cascade.telemetry.logs import note
from cascade.telemetry.sole import sole

__all__ = ["Begun", "StateWithStore", "begun"]

_LOCK: Final = "lock"
_FIRST_LOOK_S: Final = 5.0
"""How long a start waits for a source that is looked at again, where what decided before can decide meanwhile."""
_CUT_OFF: Final = "the process was killed {} times in a row before it had served for {:.0f} s with it"


@dataclass(frozen=True, slots=True)
class Begun:
    """What a process starts with.

    ``choices`` are what it may serve, ``before`` is what an earlier process left, and ``source`` what names the desired
    release where that is watched. ``named`` is the digest of what settings name where that is not watched. ``starts`` counts
    those that do not settle.
    """

    choices: StartChoices
    store: ReleaseStore
    keys: Callable[[], ReleaseKeys | None]
    keeps: Keeps
    before: Remembered
    source: ReleaseSource | None
    named: str | None
    starts: UnsettledStarts

    @property
    def remembered(self) -> Remembered:
        """Return what is gone on from.

        What settings name counts as dealt with where it serves, and where it is not watched unless it could not.
        """
        serves = self.choices.bundle.loaded.digest if self.choices.is_named else None
        failed = any(one.digest == self.named for one in self.choices.passed_over)
        seen = serves or (None if failed else self.named) or self.before.seen
        return self.before.model_copy(update={"seen": seen})


class StateWithStore:
    """Keep what is remembered of rollouts, and have the store hold what that names."""

    def __init__(self, file: StateFile | None, store: ReleaseStore) -> None:
        self._file = file
        self._store = store
        self._good: str | None = None

    def read(self) -> Remembered | None:
        """Return what was kept; what cannot be read is told, and the process starts as if there were nothing."""
        try:
            return None if self._file is None else self._file.read()
        except ConfigError as error:
            note("error", "rollout state is lost", why=str(error))
            return None

    def write(self, remembered: Remembered) -> None:
        """Keep it whole or not at all. Raises OSError."""
        stable = None if remembered.stable is None else remembered.stable.digest
        candidate = None if remembered.candidate is None else remembered.candidate.digest
        self._store.hold([digest for digest in (stable, candidate) if digest is not None])
        if stable is not None and stable != self._good:
            try:
                self._store.good(stable)
            except ConfigError as error:
                raise OSError(errno.EIO, str(error)) from None
            self._good = stable
        if self._file is not None:
            self._file.write(remembered)


@asynccontextmanager
async def begun(
    settings: Settings, environment: Mapping[str, str] = os.environ, *, first_look_s: float = _FIRST_LOOK_S
) -> AsyncIterator[Begun]:
    """Open the store and the source, and say what may be served, in this order.

    What decided all traffic before the last end of the process; what did so before it, the latest first; the release
    that settings name. That one is the first where settings name it anew and it is not watched; where it is, it comes
    in by its steps. What a rollout took back is the last, and before it what starts did not settle with. A watched source
    has ``first_look_s`` to answer where what decided last can serve meanwhile. Raises ConfigError where none can be loaded.
    """
    keys = keys_in(settings.release_keys_file)
    if settings.releases_folder is not None and not settings.releases_folder.is_dir():
        note(
            "warning",
            "releases_folder is no folder: no release can be named by then",
            place=str(settings.releases_folder),
        )
    with _state_folder(settings.state_folder), open_store(settings.state_folder, keys) as store:
        file = None if settings.state_folder is None else StateFile(settings.state_folder)
        keeps = StateWithStore(file, store)
        before = keeps.read() or Remembered()
        place = settings.release or default_release_path()
        source = None
        if settings.watch_release or not isinstance(place, Path):
            looking = Looking(settings.release_seconds, _tell_fault)
            source = release_source(place, store, looking, token_file=settings.release_auth_file)
        stored = StoredReleases(
            store,
            nameable(settings, environment),
            keys,
            settings.releases_folder,
            keeps=settings.state_folder is not None,
        )
        before = _with_path(before, stored)
        is_kept = any(map(stored.path, _decided(before, store)[:1]))
        seconds = first_look_s if is_kept and settings.watch_release else None
        named, fault = await _named(place, source, stored, seconds)
        starts = UnsettledStarts(store.folder)
        if before.candidate is not None and before.candidate.is_given_up:
            starts.forgive(before.candidate.digest)
        places, unsettled = _places(settings, before, stored, named, starts)

        def keep(chosen: Bundle) -> None:
            stored.keep(chosen)
            starts.begin(chosen.loaded.digest)

        choices = StartChoices(
            places,
            keep=keep,
            taken_back=before.taken_back(),
            passed_over=unsettled,
            named=None if named is None else named.loaded.digest,
            fault=fault,
        )
        if fault is not None:
            loaded = choices.bundle.loaded
            served = {"release": loaded.release.release, "digest": loaded.digest}
            note("error", "the release that is desired cannot be used; the last good one serves", why=fault, **served)
        said = None if named is None or settings.watch_release else named.loaded.digest
        try:
            yield Begun(choices, store, keys, keeps, before, source if settings.watch_release else None, said, starts)
        finally:
            starts.settle()


@contextmanager
def _state_folder(folder: Path | None) -> Iterator[None]:
    """Make the state folder, and hold it against other processes. Raises ConfigError."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"state_folder {folder}: cannot be used: {why_not(error)}") from None
    with sole(folder / _LOCK, f"state_folder {folder}"):
        yield


def _tell_fault(error: BaseException) -> None:
    note("error", "the release cannot be looked at", why=type(error).__name__)


def _places(
    settings: Settings, before: Remembered, stored: StoredReleases, named: Bundle | None, starts: UnsettledStarts
) -> tuple[list[Place], list[PassedOver]]:
    """Return what may be served, in order, and what of it comes later since starts with it did not settle.

    That is so only where another one that was good before can take its place.
    """
    stable = None if before.stable is None else before.stable.digest
    digests = _decided(before, stored.store)
    kept = [Place(digest, before.name_of(digest), partial(_kept, digest, stored, named)) for digest in digests]
    if named is None:
        found = kept
    else:
        loaded = named.loaded
        held = Place(loaded.digest, loaded.release.release, lambda: named)
        anew = not settings.watch_release and before.seen != loaded.digest
        after = 0 if anew else 1 if loaded.digest == stable else len(kept)
        found = [*kept[:after], held, *kept[after:]]
    taken_back = before.taken_back()
    unsettled = {place.digest: place for place in found if starts.count(place.digest) >= MOST_UNSETTLED}
    if not any(digest not in unsettled and digest not in taken_back for digest in digests):
        unsettled = {}
    first = found[0] if found else None

    def late(place: Place) -> tuple[bool, bool]:
        return place.digest in taken_back and place is not first, place.digest in unsettled

    return sorted(found, key=late), [
        PassedOver(place.name, digest, ActivationStep.START, _CUT_OFF.format(starts.count(digest), SETTLES_S))
        for digest, place in unsettled.items()
    ]


def _with_path(before: Remembered, stored: StoredReleases) -> Remembered:
    """Return what is remembered with where the candidate's bundle lies by now: the folder may be mounted elsewhere."""
    candidate = before.candidate
    path = None if candidate is None else stored.path(candidate.digest)
    if candidate is None or path is None:
        return before
    return before.model_copy(update={"candidate": candidate.model_copy(update={"path": str(path)})})


def _decided(before: Remembered, store: ReleaseStore) -> list[str]:
    """Return the digests of what decided all traffic, the stable release of before first, then the latest."""
    stable = [] if before.stable is None else [before.stable.digest]
    return list(dict.fromkeys((*stable, *store.goods())))


def _kept(digest: str, stored: StoredReleases, named: Bundle | None) -> Bundle:
    """Return a bundle of the store, or where that is damaged the one that settings name, if it is the same."""
    try:
        return stored.load(digest)
    except ConfigError:
        if named is None or named.loaded.digest != digest:
            raise
        return named


async def _named(
    place: Path | str, source: ReleaseSource | None, stored: StoredReleases, seconds: float | None
) -> tuple[Bundle | None, str | None]:
    """Return the release that settings name, or why it cannot be used. A source that hangs is waited for so long."""
    fault = None
    path = place if isinstance(place, Path) else None
    if source is not None:
        try:
            async with asyncio.timeout(seconds):
                desired = await source.now()
        except TimeoutError:
            return None, f"it was not there after {seconds:g} seconds; it is looked at again"
        fault = desired.fault
        path = desired.path_in_store or path  # a file that the store cannot hold whole may serve all the same
    if path is None:
        return None, fault
    try:
        return stored.read(path), None
    except ConfigError as error:
        return None, fault or str(error)
