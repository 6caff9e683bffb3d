"""The names that files of a bundle have."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["RELEASE_NAME", "SIGNATURE_NAME", "is_digest", "is_of_bundle"]

RELEASE_NAME: Final = "release.yaml"
SIGNATURE_NAME: Final = "signature.json"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_ARTEFACT: Final = re.compile(r"artifacts/[0-9a-f]{64}\.json")


def is_digest(written: str) -> bool:
    """Tell whether it is a digest as releases and artefacts have them."""
    return _DIGEST.fullmatch(written) is not None


def is_of_bundle(name: str) -> bool:
    """Tell whether a bundle may have a file of this name, with ``/`` between folders."""
    return name in {RELEASE_NAME, SIGNATURE_NAME} or _ARTEFACT.fullmatch(name) is not None
