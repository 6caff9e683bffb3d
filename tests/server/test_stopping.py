"""How long a stop takes, on virtual time, with the real servers and connections that never end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from cascade.server.listening import server
from cascade.server.stopping import ADMIN_STOP_SECONDS, end_public, stop_seconds
from cascade.testing.clock import run_virtual
from tests.server.sidecar import sidecar

_WRITING = 5
"""What the documentation says that leftovers have to be written."""
_TURNS = 0.5
"""A server looks ten times a second at whether it is to stop and at what is left."""


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("nobody asks")


class _Stuck:
    """A connection that does not end: a client that sends or reads no further."""

    def shutdown(self) -> None:
        """Be told to close, and stay."""


async def _stop(leftover_seconds: float, *, stuck: bool, stuck_admin: bool) -> tuple[float, float, bool]:
    """Stop both listeners as the process does; return the seconds of each, and whether leftovers were ended."""
    service = sidecar().service
    public = server(_application, stop_seconds(leftover_seconds))
    admin = server(_application, ADMIN_STOP_SECONDS)
    listeners = [asyncio.create_task(one.serve([])) for one in (public, admin)]
    await asyncio.sleep(1)
    for one, is_stuck in ((public, stuck), (admin, stuck_admin)):
        if is_stuck:
            connection: Any = _Stuck()
            one.server_state.connections.add(connection)
    clock = asyncio.get_running_loop().time
    began = clock()
    public.should_exit = True
    await end_public(service, listeners[0], leftover_seconds)
    after_public = clock()
    admin.should_exit = True
    await asyncio.gather(*listeners)
    return after_public - began, clock() - after_public, service.under_way.ended


@pytest.mark.parametrize("leftover_seconds", [0.0, 0.3, 20.0])
def test_h6_a_stop_ends_in_the_time_that_is_documented(leftover_seconds: float) -> None:
    """With clients that never end: the leftovers' time, five seconds to write, and a second for the admin listener."""
    public, admin, ended = run_virtual(_stop(leftover_seconds, stuck=True, stuck_admin=True))
    assert leftover_seconds + _WRITING <= public <= leftover_seconds + 1 + _WRITING + _TURNS
    assert admin <= 1 + _TURNS
    assert ended


def test_h6_a_stop_with_nothing_left_waits_for_nothing() -> None:
    """Nor are leftovers ended that there are not."""
    public, admin, ended = run_virtual(_stop(20.0, stuck=False, stuck_admin=False))
    assert public <= _TURNS
    assert admin <= _TURNS
    assert not ended
