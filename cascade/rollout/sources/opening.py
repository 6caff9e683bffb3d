"""Open the source of a place."""

from __future__ import annotations

from pathlib import Path

from cascade.rollout.sources.folder import FolderSource
from cascade.rollout.sources.http import HttpSource
from cascade.rollout.sources.looking import Looking, ReleaseSource
from cascade.rollout.store import ReleaseStore

__all__ = ["release_source"]


def release_source(
    place: Path | str, store: ReleaseStore, looking: Looking, *, token_file: Path | None = None
) -> ReleaseSource:
    """Return what looks at a path, or at an address, which may ask for the token in a file."""
    if isinstance(place, Path):
        return FolderSource(place, store, looking)
    return HttpSource(place, store, looking, token_file=token_file)
