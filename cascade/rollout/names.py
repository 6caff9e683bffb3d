"""The names that files of a bundle have."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["RELEASE_NAME", "is_of_bundle"]

RELEASE_NAME: Final = "release.yaml"
_ARTEFACT: Final = re.compile(r"artifacts/[0-9a-f]{64}\.json")


def is_of_bundle(name: str) -> bool:
    """Tell whether a bundle may have a file of this name, with ``/`` between folders."""
    return name == RELEASE_NAME or _ARTEFACT.fullmatch(name) is not None
