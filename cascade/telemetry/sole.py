"""Let one process alone write what two would spoil for each other."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.telemetry.folders import why_not
from cascade.telemetry.logs import note

__all__ = ["sole"]

_NO_LOCKS: Final = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK})


@contextmanager
def sole(lock: Path, what: str) -> Iterator[None]:
    """Hold an advisory lock on a file inside the block. Raises ConfigError where another process holds it.

    The lock ends with the process, however that ends; the file stays. ``what`` says what is held. Where the file
    system knows no locks that is told, and nothing is held.
    """
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"{what}: cannot be used: {why_not(error)}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{what} is in use by another process; give each its own") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise ConfigError(f"{what}: {lock.name} cannot be locked: {why_not(error)}") from None
            note("warning", "no lock can be held: nothing else may write here", what=what, why=why_not(error))
        yield
    finally:
        os.close(descriptor)
