"""The most nDCG that one order can have over another, against every judgement there could be."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.metrics import ideal_dcg, ndcg_rows
from cascade.metrics.med import most_ndcg_lost

_ORDERS = st.integers(1, 6).flatmap(
    lambda count: st.tuples(st.permutations(range(count)), st.permutations(range(count)))
)


def _difference(order: list[int], other: list[int], gains: np.ndarray, k: int) -> float:
    """Return nDCG@k of one order minus the other's."""
    ideal = ideal_dcg(gains, k)
    first, second = ndcg_rows(gains[np.array([order, other])], ideal, k).tolist()
    return float(first - second)


@given(_ORDERS, st.integers(1, 7))
def test_binary_judgements_reach_it_and_do_not_pass_it(orders: tuple[list[int], list[int]], k: int) -> None:
    """It is the greatest difference over all sets of relevant documents."""
    order, other = orders
    differences = [
        _difference(order, other, np.array(relevant), k) for relevant in product((0.0, 1.0), repeat=len(order))
    ]
    assert most_ndcg_lost(order, other, k) == pytest.approx(max(differences))


@given(_ORDERS, st.integers(1, 7), st.lists(st.integers(0, 15), min_size=9, max_size=9))
def test_graded_judgements_do_not_pass_it(orders: tuple[list[int], list[int]], k: int, grades: list[int]) -> None:
    """Whatever the grades, of documents that neither order holds too, the difference is within the two bounds."""
    order, other = orders
    gains = np.array(grades, dtype=np.float64)
    difference = _difference(order, other, gains, k)
    most = most_ndcg_lost(order, other, k)
    least = -most_ndcg_lost(other, order, k)
    assert least - 1e-9 <= difference <= most + 1e-9
    assert abs(difference) <= max(most, -least) + 1e-9


def test_a_swap_of_the_first_two() -> None:
    """One relevant document falls from rank 1 to rank 2: 1 - 1 / log2(3)."""
    assert most_ndcg_lost([0, 1, 2], [1, 0, 2], 3) == pytest.approx(1 - 1 / np.log2(3))


def test_equal_heads_lose_nothing() -> None:
    """What stands behind rank k does not count."""
    assert most_ndcg_lost([0, 1, 2, 3], [0, 1, 3, 2], 2) == 0.0


def test_heads_with_nothing_in_common_lose_everything() -> None:
    """The judgements may be the first order's head."""
    assert most_ndcg_lost([0, 1, 2, 3], [2, 3, 0, 1], 2) == 1.0
