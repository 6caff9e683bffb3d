"""Starts that began and never settled: what a release leaves that kills the process which serves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import orjson

from cascade.errors import ConfigError
from cascade.rollout.artefacts import read_bounded
from cascade.rollout.names import is_digest
from cascade.rollout.sources.looking import OffLoop
from cascade.rollout.whole_file import write_whole

__all__ = ["MOST_UNSETTLED", "SETTLES_S", "UnsettledStarts"]

MOST_UNSETTLED: Final = 3
"""A release of which so many starts in a row did not settle comes behind those that were good before."""
SETTLES_S: Final = 60.0
"""How long a process serves until its start has settled."""
_NAME: Final = "starts.json"
_LARGEST: Final = 65_536


class UnsettledStarts:
    """Count by release the starts of which nobody heard the end: the process was killed before they had settled.

    The counts are in a file of ``folder``. Where that cannot be read or written nothing is counted, and the start goes on.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._before = self._read()

    def count(self, digest: str) -> int:
        """Return how many starts with a release did not settle, before this one."""
        return self._before.get(digest, 0)

    def begin(self, digest: str) -> None:
        """Count this start as one with a release, in place of the one that it was told before."""
        with suppress(ConfigError):
            write_whole(self._path, orjson.dumps({**self._before, digest: self.count(digest) + 1}))

    def forgive(self, candidate: str) -> None:
        """Forget all starts, as a candidate that is to be given up may have ended them; those that begin from now on count."""
        if not self.count(candidate):  # it is noted as a start of its own, so that they are forgotten once
            self._before = {candidate: 1}

    def settle(self) -> None:
        """Forget all starts: this one serves, or ends in good order."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    @asynccontextmanager
    async def settling(
        self, stopping: asyncio.Event, seconds: float = SETTLES_S, *, off_loop: OffLoop = asyncio.to_thread
    ) -> AsyncIterator[None]:
        """Settle once so much time has gone by from now, or it is told to stop, unless the block is left before.

        Who told it to stop may not wait for its end: a slow one is killed.
        """
        task = asyncio.create_task(self._settle_after(stopping, seconds, off_loop), name="settles the start")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _settle_after(self, stopping: asyncio.Event, seconds: float, off_loop: OffLoop) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), seconds)
        await off_loop(self.settle)

    def _read(self) -> dict[str, int]:
        try:
            kept = orjson.loads(read_bounded(self._path, _LARGEST, plain=True))
        except (ConfigError, orjson.JSONDecodeError):
            return {}
        if not isinstance(kept, dict):
            return {}
        return {digest: count for digest, count in kept.items() if is_digest(digest) and type(count) is int}
