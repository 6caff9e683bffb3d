"""A release as it is named on the command line: one that the sidecar knows, or a bundle from here."""

from __future__ import annotations

import os
from pathlib import Path

from cascade.errors import ConfigError
from cascade.rollout.bundle import contents_of
from cascade.rollout.load import offline, release_from
from cascade.rollout.source import SourceKind, open_source
from cascade.rollout.tar import LARGEST_TAR, tar_bytes

__all__ = ["bundle_from_here", "hint_of_path"]


def bundle_from_here(release: str) -> bytes | None:
    """Return the tar of a bundle that is named by a path, None for a digest or the name of a release.

    A path has a slash in it or ends in ``.tar``: what a name means does not hang on the folder one stands in. Raises
    ConfigError for what is no bundle, or not a whole one.
    """
    if not (release.endswith(".tar") or "/" in release or os.sep in release):
        return None
    path = Path(release)
    source = open_source(path)
    if source.kind is SourceKind.FILE:
        raise ConfigError(f"{path}: no bundle; make one with cascade release build")
    loaded = release_from(source, offline(os.environ))
    try:
        data = tar_bytes(contents_of(source, loaded))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if len(data) > LARGEST_TAR:
        raise ConfigError(f"{path}: larger than the {LARGEST_TAR} bytes that a sidecar takes")
    return data


def hint_of_path(release: str) -> tuple[str, ...]:
    """Return how a path is written, where something of that name is here that may be meant."""
    if not Path(release).exists():
        return ()
    how = f"a path has a slash in it, as ./{release}, or ends in .tar"
    return (f"if what lies here is meant: {how}; a release in YAML is built first, with cascade release build",)
