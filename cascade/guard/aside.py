"""Calls that nobody waits for: they take room that is left over, and tell the guards of a server nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

__all__ = ["aside", "has_room_aside", "is_aside"]

_ASIDE: ContextVar[bool] = ContextVar("aside", default=False)


class _Room(Protocol):
    """Where the work of a server is bounded, in texts and in tokens."""

    @property
    def limit(self) -> int: ...

    @property
    def token_limit(self) -> int: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def tokens_in_flight(self) -> int: ...

    @property
    def waiting(self) -> int: ...


@contextmanager
def aside() -> Iterator[None]:
    """Make the calls inside the block, those of tasks begun in it too, as calls that nobody waits for."""
    token = _ASIDE.set(True)
    try:
        yield
    finally:
        _ASIDE.reset(token)


def is_aside() -> bool:
    """Tell whether nobody waits for what is being done."""
    return _ASIDE.get()


def has_room_aside(room: _Room, texts: int, tokens: int) -> bool:
    """Tell whether a call that nobody waits for may leave now.

    That is where nobody waits, and half of the room stays free of what is in flight with it; a call larger than half
    leaves where nothing else is in flight.
    """
    if room.waiting:
        return False
    if not room.in_flight:
        return True
    return (room.in_flight + texts) * 2 <= room.limit and (room.tokens_in_flight + tokens) * 2 <= room.token_limit
