"""A store over a Redis of one process that does as it is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from cascade.cache.redis import RedisEvents, RedisStore
from cascade.cache.store import Found, WriteDrop
from cascade.guard.deadline import Deadline
from cascade.types import BreakerState
from tests.cache.arrange import SECRET

__all__ = ["MOST_MS", "KeptInRedis", "ScriptedRedis"]

MOST_MS: Final = 5.0


class ScriptedRedis:
    """A Redis of one process, late or away where a test says so."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Any] = {}
        self.delay_s = 0.001
        self.fails: Exception | None = None
        self.answer: Any = None
        self.asked = 0
        self.closed = False
        self.ttl_ms: set[int] = set()

    async def execute_command(self, command: str, *arguments: Any) -> Any:
        """Do what MGET and the one script do."""
        self.asked += command == "MGET"
        await asyncio.sleep(self.delay_s)
        if self.fails is not None:
            raise self.fails
        if command == "MGET":
            return [self.kept.get(key) for key in arguments] if self.answer is None else self.answer
        assert command == "EVAL"
        count = arguments[1]
        self.ttl_ms.add(arguments[2 + count])
        self.kept |= dict(zip(arguments[2 : 2 + count], arguments[3 + count :], strict=True))
        return None

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Note that it was closed."""
        self.closed = bool(close_connection_pool)
        if self.fails is not None:
            raise self.fails


class KeptInRedis:
    """A store over such a client, and what it told."""

    def __init__(self, *, most_waiting: int = 1000) -> None:
        self.client: Any = ScriptedRedis()
        self.dropped: Counter[WriteDrop] = Counter()
        self.states: list[tuple[BreakerState, str | None]] = []
        self.reached: list[str | None] = []
        self.clock = asyncio.get_running_loop().time
        self.store = RedisStore(
            self.client,
            SECRET,
            ttl_s=60.0,
            most_ms=MOST_MS,
            most_waiting=most_waiting,
            clock=self.clock,
            draw=lambda: 0.5,
            events=RedisEvents(self._drop, lambda state, why: self.states.append((state, why)), self.reached.append),
        )

    def _drop(self, why: WriteDrop, count: int) -> None:
        self.dropped[why] += count

    async def get(self, keys: Sequence[bytes], within_ms: float = 100.0) -> Found:
        """Look keys up."""
        return await self.store.get(keys, Deadline.after_ms(within_ms, self.clock))
