"""What several rounds cost together."""

from __future__ import annotations

from dataclasses import fields

from cascade.stages.added_cost import added
from cascade.types import StageCost


def test_counts_and_times_add_up() -> None:
    """And a count is estimated where one of them is."""
    one = StageCost(1, 10, tokens_estimated=False, truncated=1, queue_ms=2.0, compute_ms=3.0, cached=4)
    other = StageCost(2, 20, tokens_estimated=True, truncated=0, queue_ms=5.0, cached=1)
    assert added([one, other]) == StageCost(3, 30, tokens_estimated=True, truncated=1, queue_ms=7.0, cached=5)
    assert added([one]) is one


def test_every_count_is_added() -> None:
    """One that is new is not forgotten."""
    ones = StageCost(**{item.name: 1 for item in fields(StageCost)})  # type: ignore[arg-type]
    told = added([ones, ones])
    assert {item.name: getattr(told, item.name) for item in fields(StageCost)} == {
        item.name: 1 if item.name == "tokens_estimated" else 2 for item in fields(StageCost)
    }
