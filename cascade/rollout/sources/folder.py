"""The desired release as files: a YAML file, a bundle's folder or a bundle's tar, also as Kubernetes mounts them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.rollout.artefacts import ARTEFACTS_FOLDER
from cascade.rollout.load import offline, release_from
from cascade.rollout.mount import SWAPPED
from cascade.rollout.source import open_source
from cascade.rollout.sources.looking import Looking, ReleaseSource
from cascade.rollout.store import ReleaseStore, Stored

__all__ = ["Events", "FolderSource", "concerns", "file_events"]

_SETTLE_S: Final = 0.3
"""Files that somebody copies file by file must stand still so long before they are taken."""
_LOOKS: Final = 5
_DEBOUNCE_MS: Final = 200
_STEP_MS: Final = 50

Events = Callable[[Path], AsyncIterator[None]]
"""Gives a hint each time that something at a path may have changed."""


async def file_events(path: Path) -> AsyncIterator[None]:
    """Give a hint for each change of a file, of a folder and what is in it, or of the link that Kubernetes renames.

    Raises OSError or RuntimeError where the system does not tell of changes.
    """
    import watchfiles

    stop = asyncio.Event()
    changes = watchfiles.awatch(
        *(each for each in (path.parent, path, path / ARTEFACTS_FOLDER) if each.is_dir()),
        watch_filter=lambda change, changed: concerns(path, Path(changed)),
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        stop_event=stop,
        recursive=False,
    )
    try:
        async with aclosing(changes):
            async for _ in changes:
                yield
    finally:
        stop.set()


def concerns(path: Path, changed: Path) -> bool:
    """Tell whether a change may be one of the release at ``path``: what else lies beside it may change all the time."""
    return changed.name in {path.name, SWAPPED} or changed.parent in {path, path / ARTEFACTS_FOLDER}


class FolderSource(ReleaseSource):
    """Look at files. What is there is taken where it stands still and holds all that its release names.

    ``events`` are hints alone: a change that none of them tells of is found at the next look.
    """

    def __init__(
        self, path: Path, store: ReleaseStore, looking: Looking | None = None, *, events: Events = file_events
    ) -> None:
        super().__init__(store, looking or Looking())
        self._path = path
        self._events = events

    async def _look(self) -> Stored:
        off_loop = self._looking.off_loop
        for _ in range(_LOOKS):
            before = await off_loop(self._digest)
            if before != self._known.digest:
                await asyncio.sleep(_SETTLE_S)
            found = await off_loop(lambda: self._store.put(self._path))
            if found.digest == before:
                return found
        raise ConfigError(f"release {self._path}: it is being written; it is taken when it stands still")

    def _digest(self) -> str:
        return release_from(open_source(self._path), offline(os.environ)).digest

    async def _hints(self, hint: Callable[[], None]) -> None:
        async for _ in self._events(self._path):
            hint()
