"""Metrics of many orders at once, against those of one list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.metrics import (
    Gain,
    discounts,
    gains_of,
    hit,
    hit_rows,
    ideal_dcg,
    ndcg,
    ndcg_rows,
    recall,
    recall_rows,
    reciprocal_rank,
    reciprocal_rank_rows,
)


@given(st.lists(st.integers(-1, 3), max_size=9), st.integers(0, 12), st.sampled_from(Gain), st.data())
def test_rows_equal_the_metrics_of_each_list(grades: list[int], k: int, gain: Gain, data: st.DataObject) -> None:
    """Whatever the order, the array forms say what the list forms say."""
    orders = np.array([data.draw(st.permutations(range(len(grades)))) for _ in range(3)], dtype=np.intp).reshape(3, -1)
    by_id = {str(index): grade for index, grade in enumerate(grades)}
    lists = [[str(index) for index in order] for order in orders]
    judged = np.array(grades, dtype=np.int64)
    gains, relevant = gains_of(judged, gain)[orders], (judged > 0)[orders]
    ideal = ideal_dcg(gains_of(judged, gain), k)
    assert ndcg_rows(gains, ideal, k) == pytest.approx([ndcg(one, by_id, k, gain) for one in lists])
    assert reciprocal_rank_rows(relevant).tolist() == [reciprocal_rank(one, by_id) for one in lists]
    assert reciprocal_rank_rows(relevant, k).tolist() == [reciprocal_rank(one, by_id, k=k) for one in lists]
    total = int((judged > 0).sum())
    assert recall_rows(relevant, total, k) == pytest.approx([recall(one, by_id, k) for one in lists])
    assert hit_rows(relevant, k).tolist() == [hit(one, by_id, k) for one in lists]


def test_discounts_fall_with_the_logarithm_of_the_rank() -> None:
    """Rank 1 counts whole, rank 3 half."""
    assert discounts(3) == pytest.approx([1.0, 0.6309297535714575, 0.5])
