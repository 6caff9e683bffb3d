"""Look at a server beside the rounds: what it is, what it takes, and how busy it says it is."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from cascade.guard.deadline import Clock
from cascade.stages.base import Congestion, Observed
from cascade.stages.congestion import is_failing, joined, read_load
from cascade.stages.upstream import Lost, Reply, Upstream
from cascade.stages.wire import Fault, FaultKind, Wire
from cascade.telemetry.logs import note

__all__ = ["Looks"]

_FIRST_LOOK_SECONDS: Final = 2.0
_LOAD_SECONDS: Final = 5.0


class Looks:
    """What a server said of itself, asked for in the background.

    ``learned`` is called with what it says for the first time, and with each change. ``lost`` and ``answered`` tell
    how calls went: a server that answers after it was lost has returned, maybe as another. ``is_sure`` tells whether it
    was looked at since.
    """

    def __init__(
        self,
        name: str,
        wire: Wire,
        upstream: Upstream,
        clock: Clock,
        learned: Callable[[Observed], None],
        count_fault: Callable[[BaseException], None],
    ) -> None:
        self._name = name
        self._wire = wire
        self._upstream = upstream
        self._clock = clock
        self._learned = learned
        self._count_fault = count_fault
        self.observed: Observed | None = None
        self.unusable: str | None = None
        self._polled: Congestion | None = None
        self._told: Congestion | None = None
        self._asking: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._is_lost = False
        self._losses = 0
        self.is_sure = False
        self._is_silent = False
        self._returned = asyncio.Event()

    @property
    def congestion(self) -> Congestion | None:
        """Return what the server last told of its load, in metrics and in answers."""
        return joined(self._polled, self._told, self._clock())

    async def start(self) -> None:
        """Begin to look, and wait for the first answer a little."""
        self._asking = asyncio.create_task(self._watch(), name=f"limits and load of {self._name}")
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_SECONDS):
                await self._asked.wait()

    async def aclose(self) -> None:
        """End all looks."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def again(self) -> bool:
        """Ask once more what the server is; tell whether it said."""
        if self.observed is None:
            return False  # the first look goes on by itself
        losses = self._losses
        try:
            found = await self._wire.discover(self._get)
        except Lost:
            return False
        if not isinstance(found, Observed) or (found == Observed() != self.observed):
            return False  # a gateway's answer while the server is away; rounds tell by themselves whether it scores
        if found != self.observed:
            self._learn(found)
        self.is_sure = losses == self._losses
        return True

    def lost(self) -> None:
        """Note that a call got no answer from the server."""
        self._is_lost = True
        self._losses += 1
        self.is_sure = False

    def answered(self, queue_ms: float | None) -> None:
        """Note that a call was answered, and what it told of the server's queue."""
        if self._is_lost:
            self._is_lost = False
            self._returned.set()
        if queue_ms is not None:
            self._told = Congestion(self._clock(), queue_ms=queue_ms)

    async def returned(self) -> None:
        """Wait until the server answers after it was lost, if it has not since the last call of this."""
        await self._returned.wait()
        self._returned.clear()

    async def _watch(self) -> None:
        await self._ask_until_answered()
        route = self._wire.load_route
        offered = route is not None
        while route is not None and offered:
            try:
                offered = await self._look_at_load(route)
            except Lost:
                self._tell_of_silence()  # what is known grows stale, and says so
            except Exception as error:  # noqa: BLE001 - the boundary of a background task: it goes on asking
                self._count_fault(error)
            await asyncio.sleep(_LOAD_SECONDS)

    async def _look_at_load(self, route: str) -> bool:
        """Read the server's load; tell whether to look again. A route that told of load once is not given up."""
        reply = await self._get(route)
        told = read_load(reply, self._clock())
        self._polled = told or self._polled
        self._tell_of_silence()
        return self._polled is not None or is_failing(reply)

    def _tell_of_silence(self) -> None:
        """Write down when a server that told of its load has fallen silent, and when it tells again."""
        silent = self._polled is not None and self._polled.is_silent(self._clock())
        if silent != self._is_silent:
            self._is_silent = silent
            said = (
                "tells nothing of its load any more: it counts as a server that never did"
                if silent
                else "tells of its load again"
            )
            note("warning" if silent else "info", "load signal", stage=self._name, said=said)

    async def _ask_until_answered(self) -> None:
        waits = wait_random_exponential(multiplier=0.2, max=30)
        async for attempt in AsyncRetrying(wait=waits, retry=retry_if_exception_type(Exception)):
            with attempt:
                try:
                    self._learn(await self._wire.discover(self._get))
                except Lost:
                    raise
                except Exception as error:
                    self._count_fault(error)
                    raise
                finally:
                    self._asked.set()

    async def _get(self, path: str) -> Reply:
        """Get a document within the time of a look. Raises Lost."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_SECONDS):
                return await self._upstream.get(path, request_id=f"{self._name}-look-{uuid.uuid4().hex}")
        raise Lost("timeout")

    def _learn(self, found: Observed | Fault) -> None:
        if isinstance(found, Fault):
            self.unusable = found.code if found.kind is FaultKind.UNUSABLE else None
            raise Lost(found.code)  # and ask again later: a key or a model can be put right over there
        self.unusable = None
        self.observed = found
        self.is_sure = True
        self._learned(found)
