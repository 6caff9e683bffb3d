"""How partitions are replayed: one after another here, or elsewhere. Results come in the order of the partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

__all__ = ["Run", "in_turn"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Run(Protocol):
    """Call a pure function on each item, and give the results in order; items are asked for as they are needed."""

    def __call__(self, function: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]: ...


def in_turn(function: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
    """Call the function on one item after another, in this process."""
    return map(function, items)
