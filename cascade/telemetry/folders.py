"""Have the disk keep the names in a folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["keep_names", "why_not"]


def keep_names(folder: Path) -> None:
    """Return once the disk has what was renamed, made and removed in a folder until now. Raises OSError.

    A file system that cannot be told so of a folder (some of networks) keeps names as it does.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def why_not(error: OSError) -> str:
    """Return what the system says of a failure, as "No space left on device": it holds no path and no content."""
    return error.strerror or type(error).__name__
