"""What ties decide of a stage's quality."""

from __future__ import annotations

import pytest

from cascade.replay.sections import ties
from tests.replay.made import made_query

_NAN = float("nan")


def test_ties_in_the_top_are_counted_and_averaged() -> None:
    """Of two queries one has its relevant document tied with another for the first place."""
    clear = made_query([2.0, 1.0], [2.0, 1.0], [1.0, 0.0])
    even = made_query([1.0, 1.0], [1.0, 1.0], [1.0, 0.0])
    found = ties.told(ties.columns([clear, even], 1))["small"]
    assert found == {"ndcg_over_ties": 0.75, "queries_tied": 0.5}


def test_what_was_not_scored_is_behind_and_not_tied() -> None:
    """Unscored candidates keep first-stage order behind the others."""
    query = made_query([_NAN, 1.0, _NAN], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0])
    found = ties.told(ties.columns([query], 2))["small"]
    assert found["ndcg_over_ties"] == pytest.approx(0.6309297535714575)
    assert found["queries_tied"] == 0.0
