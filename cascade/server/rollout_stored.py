"""Read what a start may serve from the store or elsewhere, and keep what it serves there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cascade.errors import ConfigError
from cascade.rollout.activation import Refused
from cascade.rollout.bundle import Bundle, load_bundle
from cascade.rollout.finding import find_release
from cascade.rollout.signing import ReleaseKeys
from cascade.rollout.store import ReleaseStore
from cascade.telemetry.logs import note

__all__ = ["StoredReleases"]


@dataclass(frozen=True, slots=True)
class StoredReleases:
    """Read what is to serve, from the store or elsewhere, and put it there for a later start where ``keeps`` says so.

    ``folder`` is that of bundles which may be started by name.
    """

    store: ReleaseStore
    environment: Mapping[str, str]
    keys: Callable[[], ReleaseKeys | None]
    folder: Path | None
    keeps: bool

    def read(self, path: Path) -> Bundle:
        """Return the bundle at a path. Raises ConfigError."""
        return load_bundle(path, self.environment, self.keys())

    def load(self, digest: str) -> Bundle:
        """Return a bundle of the store. Raises ConfigError."""
        path = self.path(digest)
        if path is None:
            raise ConfigError("it is not kept any more, was damaged, or is not signed by now")
        return self.read(path)

    def path(self, digest: str) -> Path | None:
        """Return where a bundle lies in the store; one that is damaged there is taken anew from the folder of releases."""
        try:
            return find_release(digest, self.store, self.folder).path
        except (ConfigError, Refused):
            return None

    def keep(self, chosen: Bundle) -> None:
        """Have what serves in the store. What lacks an artefact cannot be kept."""
        if not self.keeps:
            return
        try:
            self.store.put(chosen.source.path)
        except ConfigError as error:
            name = chosen.loaded.release.release
            note("warning", "what serves cannot be kept for a later start", release=name, why=str(error))
