"""Whose request is being scored, for what must not be shared between tenants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["Asker", "asker", "asking_for"]


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks. ``tenant`` is None for requests that name none."""

    tenant: str | None


_ASKER: ContextVar[Asker | None] = ContextVar("asker", default=None)


@contextmanager
def asking_for(tenant: str | None) -> Iterator[None]:
    """Make the calls inside the block, those of tasks begun in it too, for a tenant."""
    token = _ASKER.set(Asker(tenant))
    try:
        yield
    finally:
        _ASKER.reset(token)


def asker() -> Asker | None:
    """Return who asks, None where nobody has said: then nothing may be shared."""
    return _ASKER.get()
