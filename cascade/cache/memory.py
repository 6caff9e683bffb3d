"""Keep scores in the memory of the process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cascade.cache.store import Found, LostReason
from cascade.guard.deadline import Clock, Deadline

__all__ = ["ENTRY_BYTES", "MemoryStore"]

ENTRY_BYTES: Final = 336
"""The most that a score takes with its key, its time and its places in tables that have just grown, on CPython 3.11 to
3.13; in the mean it is two thirds of that."""
_KEPT_SHARE: Final = 0.8

_Entry = tuple[float, float]
_Segment = OrderedDict[bytes, _Entry]


class MemoryStore:
    """Keep as many scores as fit into ``most_bytes``, each for ``ttl_s`` at most.

    Two segments, each in the order of use (segmented LRU: Karedla, Love, Wherry 1994): what is new is in the first, and
    goes into the second, four fifths of the room, where it is used again; what that has no room for goes back to the
    head of the first. The end of the first is what is let go. So queries that never come again, which are most,
    push out no others. Every step is O(1) a score. ``lost`` is told of what is let go.
    """

    def __init__(
        self,
        most_bytes: int,
        ttl_s: float,
        clock: Clock,
        lost: Callable[[LostReason, int], None] = lambda why, count: None,
    ) -> None:
        self._most = most_bytes // ENTRY_BYTES
        self._most_used = int(self._most * _KEPT_SHARE)
        self._ttl_s = ttl_s
        self._clock = clock
        self._lost = lost
        self._new: _Segment = OrderedDict()
        self._used: _Segment = OrderedDict()

    def __len__(self) -> int:
        return len(self._new) + len(self._used)

    async def start(self) -> None:
        """Do nothing."""

    async def get(self, keys: Sequence[bytes], deadline: Deadline, *, use: bool = True) -> Found:
        now = self._clock()
        found: dict[bytes, float] = {}
        old = 0
        for key in keys:
            segment = self._used if key in self._used else self._new
            entry = segment.get(key)
            if entry is None:
                continue
            score, until = entry
            if until <= now:
                del segment[key]
                old += 1
                continue
            found[key] = score
            if use:
                self._use(segment, key, entry)
        if old:
            self._lost(LostReason.AGE, old)
        return Found(found)

    def _use(self, segment: _Segment, key: bytes, entry: _Entry) -> None:
        if segment is self._used:
            segment.move_to_end(key)
            return
        del segment[key]
        self._used[key] = entry
        if len(self._used) > self._most_used:
            key, entry = self._used.popitem(last=False)
            self._new[key] = entry

    def put(self, scores: Mapping[bytes, float]) -> None:
        until = self._clock() + self._ttl_s
        for key, score in scores.items():
            segment = self._used if key in self._used else self._new
            segment[key] = (score, until)
        over = len(self) - self._most
        for _ in range(over):
            (self._new or self._used).popitem(last=False)
        if over > 0:
            self._lost(LostReason.ROOM, over)

    def told(self) -> Mapping[str, Any]:
        return {"kind": "memory", "scores": len(self), "bytes": len(self) * ENTRY_BYTES}

    async def aclose(self) -> None:
        self._new.clear()
        self._used.clear()
