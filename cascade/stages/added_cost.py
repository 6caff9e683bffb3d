"""What several rounds cost together that were made one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from cascade.types import StageCost

__all__ = ["added"]

_FIELDS: Final = tuple(item.name for item in fields(StageCost))


def added(costs: Sequence[StageCost]) -> StageCost:
    """Return the cost of all: counts and times add up, and a time that one does not tell is not told of the whole."""
    if len(costs) == 1:
        return costs[0]
    told: dict[str, Any] = {name: [getattr(cost, name) for cost in costs] for name in _FIELDS}
    estimated = any(told.pop("tokens_estimated"))
    summed: dict[str, Any] = {name: None if None in values else sum(values) for name, values in told.items()}
    return StageCost(**summed, tokens_estimated=estimated)
