"""Share what becomes free between flows by weight; within a flow, first class first, then the earliest deadline."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

__all__ = ["FairQueue", "Rank"]

Item = TypeVar("Item")


class Rank(NamedTuple):
    """What comes first in a flow: the lower class, then the earlier moment ``until`` which it is of use."""

    priority: int
    until: float


_Key = tuple[int, float, int]


@dataclass(slots=True)
class _Flow(Generic[Item]):
    """One flow. ``waiting`` is sorted, worst first; ``start`` is the tag that its next item is served at."""

    name: str | None
    start: float = 0.0
    weight: float = 1.0
    place: tuple[float, int, _Flow[Item]] | None = None
    waiting: list[tuple[_Key, float, Item]] = field(default_factory=list)


class FairQueue(Generic[Item]):
    """Hand out waiting items by start-time fair queueing (Goyal, Vin, Cheng 1996) over flows of any weights.

    Over a time in which flows f and g always have something waiting, the costs served of them, each divided
    by its weight, differ by at most c_f / w_f + c_g / w_g, where c is a flow's largest cost. A flow that
    comes back after a pause gets nothing for the time that it was away.
    A flow is remembered while anything waits, so there should not be more of them than can be remembered.
    Every operation costs O(log n) comparisons; ``outranked`` looks at every flow that has something waiting.
    """

    def __init__(self) -> None:
        self._flows: dict[str | None, _Flow[Item]] = {}
        self._active: list[tuple[float, int, _Flow[Item]]] = []
        self._virtual = 0.0
        self._number = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, item: Item, flow: str | None, rank: Rank, *, weight: float, cost: float) -> _Key:
        """Add an item; return the key to remove it by. A flow's newest weight counts."""
        self._number += 1
        found = self._flows.get(flow)
        if found is None:
            found = self._flows[flow] = _Flow(flow)
        found.weight = weight
        if found.place is None:
            found.start = max(found.start, self._virtual)
            self._activate(found)
        key = (-rank.priority, -rank.until, -self._number)
        insort(found.waiting, (key, cost, item), key=_key)
        self._length += 1
        return key

    def pop(self) -> Item | None:
        """Take the best item of the flow that is furthest behind its share; None where nothing waits."""
        if not self._active:
            return None
        _, _, flow = self._active.pop(0)
        flow.place = None
        _, cost, item = flow.waiting.pop()
        self._length -= 1
        self._virtual = flow.start
        flow.start += cost / flow.weight
        if flow.waiting:
            self._activate(flow)
        elif not self._active:  # nobody waits: what was owed is forgotten
            self._flows.clear()
            self._virtual = 0.0
        return item

    def remove(self, flow: str | None, key: _Key) -> None:
        """Take an item out of its place; the flow is not charged for it."""
        found = self._flows[flow]
        del found.waiting[bisect_left(found.waiting, key, key=_key)]
        self._length -= 1
        if not found.waiting and found.place is not None:
            del self._active[bisect_left(self._active, found.place[:2], key=_tag)]
            found.place = None

    def outranked(self, flow: str | None, rank: Rank, weight: float) -> Item | None:
        """Return the waiting item that gives way to a newcomer where there is no room; None: the newcomer does.

        It is the worst of the flow that has most waiting for its weight, the newcomer counted.
        """
        own = self._flows.get(flow)
        waiting = 0 if own is None else len(own.waiting)
        fullest, crowd = own, (waiting + 1) / weight
        for _, _, other in self._active:
            if other is not own and len(other.waiting) / other.weight > crowd:
                fullest, crowd = other, len(other.waiting) / other.weight
        if fullest is None or not fullest.waiting:
            return None
        (priority, until, _), _, worst = fullest.waiting[0]
        if fullest is own and (rank.priority, rank.until) >= (-priority, -until):
            return None
        return worst

    def _activate(self, flow: _Flow[Item]) -> None:
        self._number += 1
        flow.place = (flow.start, self._number, flow)
        insort(self._active, flow.place, key=_tag)


def _key(entry: tuple[_Key, float, object]) -> _Key:
    return entry[0]


def _tag(place: tuple[float, int, object]) -> tuple[float, int]:
    return place[:2]
