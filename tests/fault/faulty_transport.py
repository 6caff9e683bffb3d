"""The faults of a soak without sockets: what the serving transport would raise, on the time of the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

import httpx

from cascade.testing.upstream import FakeServer
from evals.soak.answers import answer_of, spoiled
from evals.soak.faults import Deck, Fault, FaultKind

__all__ = ["FaultyTransport"]

_LONGEST_S: Final = 0.6
_AWAY_S: Final = 0.15
_DRIPS: Final = 10


class FaultyTransport(httpx.AsyncBaseTransport):
    """Stand before a fake server. ``under_way`` counts calls and answers that nobody has ended yet."""

    def __init__(self, server: FakeServer, deck: Deck, canary: str) -> None:
        self._server = server
        self._deck = deck
        self._canary = canary
        self._away_until = 0.0
        self.whole = False
        self.under_way = 0
        self.met: Counter[FaultKind] = Counter()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request, or fail as the deck says."""
        self.under_way += 1
        try:
            return await self._answer(request)
        except BaseException:
            self.under_way -= 1
            raise

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        fault = self._deck.deal() if request.method == "POST" and not self.whole else None
        now = asyncio.get_running_loop().time()
        if fault is not None:
            self.met[fault.kind] += 1
            if fault.kind is FaultKind.REFUSE:
                self._away_until = now + _AWAY_S * fault.part
        if now < self._away_until:
            raise httpx.ConnectError(self._canary)
        answer = await answer_of(
            self._server, request.method, request.url.path, dict(request.headers), await request.aread()
        )
        if fault is not None:
            await self._fail_before(fault)
            answer = spoiled(fault, answer, self._canary.encode())
        return httpx.Response(answer.status, headers=dict(answer.headers), stream=_Body(self, answer.body, fault))

    async def _fail_before(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.STALL:
                await asyncio.Event().wait()
            case FaultKind.SLOW:
                await asyncio.sleep(_LONGEST_S * fault.part)
            case FaultKind.RESET_BEFORE:
                raise httpx.ReadError(self._canary) from ConnectionResetError(self._canary)
            case FaultKind.NOT_HTTP:
                raise httpx.RemoteProtocolError(self._canary)


class _Body(httpx.AsyncByteStream):
    """A body that may stop, or come in drops."""

    def __init__(self, transport: FaultyTransport, body: bytes, fault: Fault | None) -> None:
        self._transport = transport
        self._body = body
        self._fault = fault

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._fault is None:
            yield self._body
            return
        beginning = self._body[: int(len(self._body) * self._fault.part)]
        match self._fault.kind:
            case FaultKind.CLOSED_WITHIN:
                yield beginning
                raise httpx.ReadError("closed")
            case FaultKind.RESET_WITHIN:
                yield beginning
                raise httpx.ReadError("reset") from ConnectionResetError("reset")
            case FaultKind.STALL_WITHIN:
                yield beginning
                await asyncio.Event().wait()
            case FaultKind.DRIP:
                size = len(self._body) // _DRIPS + 1
                for start in range(0, len(self._body), size):
                    await asyncio.sleep(_LONGEST_S * self._fault.part / _DRIPS)
                    yield self._body[start : start + size]
            case _:
                yield self._body

    async def aclose(self) -> None:
        self._transport.under_way -= 1
