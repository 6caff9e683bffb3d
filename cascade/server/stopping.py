"""How long a stop may take: what each part of it has, and the end of what is left."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

from cascade.server.service import Service
from cascade.telemetry.logs import note

__all__ = ["ADMIN_STOP_SECONDS", "end_public", "stop_seconds"]

_WRITE_SECONDS: Final = 5
"""Time that leftovers' answers have to be written, and bodies that have not arrived to arrive; then they are cut off."""
ADMIN_STOP_SECONDS: Final = 1
"""Time that an answer of the admin listener has: it ends last, so a slow reader of metrics would hold up the whole stop."""


def stop_seconds(leftover_seconds: float) -> int:
    """Return after how many seconds the public listener cuts off what is under way, once it is told to stop."""
    return math.ceil(leftover_seconds) + _WRITE_SECONDS


async def end_public(service: Service, listener: asyncio.Task[Any], leftover_seconds: float) -> None:
    """Wait until the public listener, told to stop, has; after some seconds have all that is left answered at once.

    That is everything that waits or is under way, with the best order so far.
    """
    await asyncio.wait([listener], timeout=leftover_seconds)
    if listener.done():
        return
    note("info", "leftovers are answered", requests=service.held)
    service.admission.close()
    service.under_way.end()
    await asyncio.wait([listener])
