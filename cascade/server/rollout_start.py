"""Choose what a start serves: what is desired, or where that cannot be, what was good last."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascade.errors import ConfigError
from cascade.rollout.bundle import Bundle, load_bundle
from cascade.rollout.history import Keeps, Remembered, StateFile
from cascade.rollout.load import default_release_path
from cascade.rollout.signing import ReleaseKeys, keys_in
from cascade.rollout.sources.looking import Looking, ReleaseSource
from cascade.rollout.sources.opening import release_source
from cascade.rollout.store import ReleaseStore, open_store
from cascade.server.settings import Settings
from cascade.telemetry.logs import note

__all__ = ["Begun", "StateWithStore", "begun"]


@dataclass(frozen=True, slots=True)
class Begun:
    """What a process starts with.

    ``bundle`` is what it serves, ``remembered`` what an earlier one left, ``source`` what names the desired release
    where that is watched.
    """

    bundle: Bundle
    store: ReleaseStore
    keys: Callable[[], ReleaseKeys | None]
    keeps: Keeps
    remembered: Remembered
    source: ReleaseSource | None


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
                raise OSError(str(error)) from None
            self._good = stable
        if self._file is not None:
            self._file.write(remembered)


@asynccontextmanager
async def begun(settings: Settings, environment: Mapping[str, str] = os.environ) -> AsyncIterator[Begun]:
    """Open the store and the source, and choose what is served first.

    That is the release that settings name. It is what decided all traffic before the last end of the process in its
    place where settings name a release that is watched, so that it comes in by its steps, or still the one they named
    then; and the last good one where theirs cannot be used. Raises ConfigError where nothing can be served.
    """
    keys = keys_in(settings.release_keys_file)
    with open_store(settings.state_folder, keys) as store:
        file = None if settings.state_folder is None else StateFile(settings.state_folder)
        keeps = StateWithStore(file, store)
        remembered = keeps.read() or Remembered()
        choice = _Choice(settings, environment, store, keys, remembered)
        place = settings.release or default_release_path()
        source = None
        if settings.watch_release or not isinstance(place, Path):
            looking = Looking(settings.release_seconds, _tell_fault)
            source = release_source(place, store, looking, token_file=settings.release_auth_file)
        bundle = await choice.made(place, source)
        yield Begun(bundle, store, keys, keeps, choice.remembered, source if settings.watch_release else None)


def _tell_fault(error: BaseException) -> None:
    note("error", "the release cannot be looked at", why=type(error).__name__)


class _Choice:
    """What is served first, of what there is."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        store: ReleaseStore,
        keys: Callable[[], ReleaseKeys | None],
        remembered: Remembered,
    ) -> None:
        self.remembered = remembered
        self._settings = settings
        self._environment = environment
        self._store = store
        self._keys = keys

    async def made(self, place: Path | str, source: ReleaseSource | None) -> Bundle:
        """Return what is served first."""
        named, fault = await self._named(place, source)
        before = self._before()
        if before is not None and named is not None and before.loaded.digest != named.loaded.digest:
            stays = self._settings.watch_release or self.remembered.seen == named.loaded.digest
            if not stays:
                before = None
        chosen = before or named
        if named is not None and (not self._settings.watch_release or chosen is named):
            self.remembered = self.remembered.model_copy(update={"seen": named.loaded.digest})
        if chosen is None:
            chosen = self._last_good(fault or "release: there is none")
        if fault is not None:
            served = {"release": chosen.loaded.release.release, "digest": chosen.loaded.digest}
            note("error", "the release that is desired cannot be used; the last good one serves", why=fault, **served)
        await asyncio.to_thread(self._keep, chosen)
        return chosen

    async def _named(self, place: Path | str, source: ReleaseSource | None) -> tuple[Bundle | None, str | None]:
        """Return the release that settings name, or why it cannot be used."""
        fault = None
        path = place if isinstance(place, Path) else None
        if source is not None:
            desired = await source.now()
            fault = desired.fault
            path = desired.path_in_store or path  # a file that the store cannot hold whole may serve all the same
        if path is None:
            return None, fault
        try:
            return load_bundle(path, self._environment, self._keys()), None
        except ConfigError as error:
            return None, fault or str(error)

    def _before(self) -> Bundle | None:
        """Return what decided all traffic before the last end of the process, where it is kept."""
        stable = self.remembered.stable
        return None if stable is None else self._stored(stable.digest)

    def _last_good(self, fault: str) -> Bundle:
        good = self._store.last_good()
        found = None if good is None else self._stored(good.digest)
        if found is None:
            raise ConfigError(fault)
        return found

    def _stored(self, digest: str) -> Bundle | None:
        try:
            path = self._store.path(digest)
            return None if path is None else load_bundle(path, self._environment, self._keys())
        except ConfigError as error:
            note("warning", "a kept release cannot be used", digest=digest, why=str(error))
            return None

    def _keep(self, chosen: Bundle) -> None:
        """Have what serves in the store: a later start may need it. What lacks an artefact cannot be kept."""
        if self._settings.state_folder is None:
            return
        try:
            self._store.put(chosen.source.path)
        except ConfigError as error:
            told: dict[str, Any] = {"release": chosen.loaded.release.release, "why": str(error)}
            note("warning", "what serves cannot be kept for a later start", **told)
