"""The served order, against the one that the sidecar merges."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cascade.policy.merge import merge
from cascade.replay.serving import ranks_by_score, served_orders

_SCORES = st.sampled_from((-1.0, 0.0, 0.5, 2.0, float("nan")))


@given(st.integers(1, 9), st.data())
def test_the_served_order_is_the_merged_one(count: int, data: st.DataObject) -> None:
    """Ties, missing scores of either stage and every set sent: the order is what merge gives."""
    small, large = (np.array(data.draw(st.lists(_SCORES, min_size=count, max_size=count))) for _ in range(2))
    sent = np.array(
        data.draw(st.lists(st.lists(st.booleans(), min_size=count, max_size=count), min_size=1, max_size=3)),
        dtype=np.bool_,
    )
    for order, chosen in zip(served_orders(sent, small, large), sent, strict=True):
        scored_small = {index: score for index, score in enumerate(small.tolist()) if not math.isnan(score)}
        scored_large = {
            index: score for index, score in enumerate(large.tolist()) if chosen[index] and not math.isnan(score)
        }
        assert order.tolist() == merge(count, scored_small, scored_large)[0]


def test_many_candidates_do_not_overflow_their_ranks() -> None:
    """Beyond what 16 bits count, the order is still whole."""
    count = 11_000
    scores = np.arange(count, dtype=np.float64)
    order = served_orders(np.zeros((1, count), dtype=np.bool_), scores, scores)[0]
    assert order.tolist() == list(range(count))[::-1]


def test_ranks_fall_with_scores_and_missing_ones_come_last() -> None:
    """The highest has rank 0; ties keep the order given."""
    assert ranks_by_score(np.array([1.0, np.nan, 3.0, 1.0])).tolist() == [1, 3, 0, 2]
