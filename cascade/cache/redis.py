"""Keep scores in a Redis that replicas share (extra ``redis``)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cascade.cache.packed import Packer
from cascade.cache.store import Found, WriteDrop
from cascade.cache.writes import Writes
from cascade.errors import ConfigError, lacks_extra
from cascade.guard.breaker import Breaker, Outcome
from cascade.guard.deadline import Clock, Deadline
from cascade.policy.stage_specs import BreakerRules
from cascade.types import BreakerState

__all__ = ["RedisClient", "RedisEvents", "RedisStore", "connect"]

_PREFIX: Final = b"cascade:1:"
_NO_KEY: Final = bytes(16)
"""Looked up to see whether the Redis answers: a user that may do what is needed may do that."""
_CONNECTIONS: Final = 16
_LOOKUPS: Final = 12
"""Lookups under way at a time: further ones are misses at once. The other connections are for writing."""
_ANSWER_SECONDS: Final = 1.0
"""When a connection is given up. Requests have gone on long before."""
_GRACE_SECONDS: Final = 0.001
"""Where the loop was late, an answer that is there is read off only after the timer."""
_RULES: Final = BreakerRules(window_s=10.0, min_calls=20, consecutive=3, open_s=0.5, max_open_s=10.0, probes=1)
_WRITE: Final = """
for i, key in ipairs(KEYS) do redis.call('SET', key, ARGV[i + 1], 'PX', ARGV[1]) end
"""
"""One command for many keys with a time to live: so many SETs in a pipeline take several times the CPU here."""


class RedisClient(Protocol):
    """What is used of the library's client."""

    async def execute_command(self, *arguments: Any) -> Any:
        """Send one command and return its answer. Raises what the library raises."""
        ...

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close its connections."""
        ...


def connect(url: str) -> RedisClient:
    """Return a client of a Redis, not yet connected. Raises ConfigError, which does not repeat the address."""
    try:
        from redis.asyncio import ConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise lacks_extra("cache: redis needs", "redis") from None
    try:
        pool = ConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            socket_timeout=_ANSWER_SECONDS,
            socket_connect_timeout=_ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
            lib_name=None,
            lib_version=None,
        )
    except ValueError:
        raise ConfigError("cache_redis_url: this is no address of a Redis: redis://, rediss:// or unix://") from None
    return Redis.from_pool(pool)


@dataclass(frozen=True, slots=True)
class RedisEvents:
    """Callbacks, each cheap and never failing.

    Told are scores that were not written, a change of the breaker and why, and once, after the start, why the Redis did
    not answer, None where it did.
    """

    dropped: Callable[[WriteDrop, int], None] = lambda why, count: None
    breaker: Callable[[BreakerState, str | None], None] = lambda state, why: None
    reached: Callable[[str | None], None] = lambda why: None


class RedisStore:
    """Keep scores in a Redis for ``ttl_s`` each; how much it holds, and what it lets go, is the Redis' own affair.

    A round asks once (MGET) and waits ``most_ms`` at most, within its deadline. An answer that comes later than that is
    read off all the same, so that a slow moment costs no connection. Where lookups fail again and again none is made for a
    while (`Breaker`), so that a Redis that hangs does not cost each request its wait. What is written waits in a queue,
    ``most_waiting`` scores at most, and is written beside the requests.
    """

    def __init__(
        self,
        redis: RedisClient,
        secret: bytes,
        *,
        ttl_s: float,
        most_ms: float,
        most_waiting: int,
        clock: Clock,
        draw: Callable[[], float] = random.random,
        events: RedisEvents | None = None,
    ) -> None:
        self._redis = redis
        self._packer = Packer(secret)
        self._clock = clock
        self._ttl_ms = max(1, round(ttl_s * 1000))
        self._most_ms = most_ms
        self._events = events or RedisEvents()
        self._why: str | None = None
        self._breaker = Breaker(_RULES, clock, draw, lambda state: self._events.breaker(state, self._why))
        self._lookups: set[asyncio.Task[list[Any]]] = set()
        self._reaching: asyncio.Task[None] | None = None
        self._writes = Writes(self._write, most_waiting, self._events.dropped)

    async def start(self) -> None:
        self._writes.start()
        self._reaching = asyncio.create_task(self._reach(), name="first look at the score cache")

    async def why_not(self) -> str | None:
        """Look a key up that nothing has, and return why that failed, None where it did not. It takes a second at most."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._ask([_NO_KEY])
        except Exception as error:  # noqa: BLE001 - the library raises types of its own; what goes wrong is told
            return type(error).__name__
        return None

    async def _reach(self) -> None:
        self._events.reached(await self.why_not())

    async def get(self, keys: Sequence[bytes], deadline: Deadline, *, use: bool = True) -> Found:
        nothing = Found({}, faults=len(keys))
        if len(self._lookups) >= _LOOKUPS or (entered := self._breaker.enter()) is None:
            return nothing
        outcome = Outcome.IGNORE
        within_ms = min(self._most_ms, deadline.remaining_ms())
        task = asyncio.create_task(self._ask(keys))
        self._lookups.add(task)
        task.add_done_callback(self._ended)
        try:
            is_late = await self._wait(task, within_ms)
            if task.done() and not task.cancelled() and task.exception() is None:
                outcome = Outcome.SUCCESS
                return self._found(keys, task.result())
            if within_ms == self._most_ms and not is_late:  # else it was the request, or this process, that had no time
                self._why = type(task.exception()).__name__ if task.done() and not task.cancelled() else "slow"
                outcome = Outcome.FAILURE
            return nothing
        finally:
            self._breaker.leave(entered, outcome)

    async def _wait(self, task: asyncio.Task[list[Any]], within_ms: float) -> bool:
        """Wait for an answer; tell whether the loop was so late that it says nothing of the Redis that none is there."""
        ends = self._clock() + 2 * within_ms / 1000
        await asyncio.wait((task,), timeout=within_ms / 1000)
        is_late = not task.done() and self._clock() > ends
        if is_late:
            await asyncio.wait((task,), timeout=_GRACE_SECONDS)
        return is_late

    async def _ask(self, keys: Sequence[bytes]) -> list[Any]:
        values: Any = await self._redis.execute_command("MGET", *[_PREFIX + key for key in keys])
        if not isinstance(values, list) or len(values) != len(keys):
            raise TypeError("MGET answers one value a key")
        return values

    def _ended(self, task: asyncio.Task[list[Any]]) -> None:
        self._lookups.discard(task)
        if not task.cancelled():
            task.exception()  # that it failed has been told, or nobody waits for it any more

    def _found(self, keys: Sequence[bytes], values: Sequence[Any]) -> Found:
        scores: dict[bytes, float] = {}
        faults = 0
        for key, value in zip(keys, values, strict=True):
            if value is None:
                continue
            score = self._packer.unpack(key, value) if isinstance(value, bytes) else None
            if score is None:
                faults += 1
            else:
                scores[key] = score
        return Found(scores, faults)

    def put(self, scores: Mapping[bytes, float]) -> None:
        if self._breaker.is_open:
            self._events.dropped(WriteDrop.FAULT, len(scores))
        else:
            self._writes.put(scores)

    async def _write(self, scores: Mapping[bytes, float]) -> None:
        """Write scores. Raises what the library raises."""
        keys = [_PREFIX + key for key in scores]
        values = [self._packer.pack(key, score) for key, score in scores.items()]
        await self._redis.execute_command("EVAL", _WRITE, len(keys), *keys, self._ttl_ms, *values)

    def told(self) -> Mapping[str, Any]:
        return {"kind": "redis", "breaker": self._breaker.state, "waiting_writes": len(self._writes)}

    async def aclose(self) -> None:
        await self._writes.aclose()
        begun = [*self._lookups, *([] if self._reaching is None else [self._reaching])]
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        with suppress(Exception):  # a connection that does not end well is given up, and stops nobody from stopping
            await self._redis.aclose(close_connection_pool=True)
