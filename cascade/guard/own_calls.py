"""Calls that a sidecar makes to find out about a server: they are none of those that its traffic will bring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cascade.guard.aside import is_aside

__all__ = ["is_of_traffic", "is_own_call", "own_calls"]

_OWN: ContextVar[bool] = ContextVar("own", default=False)


@contextmanager
def own_calls() -> Iterator[None]:
    """Have the calls inside the block, those of tasks begun in it too, say nothing of how large a call usually is.

    Nor do those that fail count for a breaker.
    """
    token = _OWN.set(True)
    try:
        yield
    finally:
        _OWN.reset(token)


def is_own_call() -> bool:
    """Tell whether what is being done is for the sidecar's own sake."""
    return _OWN.get()


def is_of_traffic() -> bool:
    """Tell whether what is being done is for a request that somebody waits for."""
    return not (_OWN.get() or is_aside())
