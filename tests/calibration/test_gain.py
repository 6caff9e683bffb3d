"""What entry probabilities are worth, against sums over orders."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.calibration.gain import CUTOFFS, discounts, entropy, expected_loss, margin, value

_CUTOFFS = np.array(CUTOFFS)


def _certain(ranks: list[int]) -> np.ndarray:
    """Return p of candidates whose rank (1 best) in the large order is known."""
    return (np.array(ranks)[:, None] <= _CUTOFFS).astype(np.float64)


def _band_gains(k: int) -> list[float]:
    """Return the gain of each rank up to k, constant between cutoffs, from the words of the contract."""
    d = [1.0 / math.log2(rank + 1) for rank in range(1, k + 1)]
    edges = [0, *(c for c in CUTOFFS if c <= k)]
    gains: list[float] = []
    for low, high in pairwise(edges):
        gains += [sum(d[low:high]) / (high - low) / sum(d)] * (high - low)
    return gains


@pytest.mark.parametrize("k", CUTOFFS)
def test_where_ranks_are_known_values_are_those_of_their_bands(k: int) -> None:
    """Each of the first k carries the mean discount of its band, the others nothing, and all sum to one."""
    worth = value(_certain(list(range(1, 16))), k)
    assert worth.tolist() == pytest.approx(_band_gains(k) + [0.0] * (15 - k))
    assert worth.sum() == pytest.approx(1.0)


@given(st.integers(1, 40), st.sampled_from(CUTOFFS), st.integers(0, 2**32 - 1))
def test_values_sum_to_no_more_than_one_where_probabilities_are_consistent(count: int, k: int, seed: int) -> None:
    """Where p(c) sums to c at most, as of any mixture of orders, values sum to one at most."""
    random = np.random.default_rng(seed)
    orders = [random.permutation(count) + 1 for _ in range(5)]
    p = np.mean([_certain(order.tolist()) for order in orders], axis=0)
    worth = value(p, k)
    assert (worth >= 0.0).all()
    assert worth.sum() <= 1.0 + 1e-12
    if count >= k:
        assert worth.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("k", CUTOFFS)
@pytest.mark.parametrize("count", [1, 2, 5, 9, 10, 11, 20])
def test_the_expected_loss_is_that_of_the_order_served(k: int, count: int) -> None:
    """Where ranks are known it is one minus DCG of the order over that of the large order, of so many candidates."""
    random = np.random.default_rng(count)
    gains = [*_band_gains(k), *[0.0] * count]
    for _ in range(20):
        ranks = (random.permutation(count) + 1).tolist()
        order = random.permutation(count)
        places = min(k, count)
        got = sum(gains[ranks[index] - 1] * float(discounts(k)[place]) for place, index in enumerate(order[:places]))
        best = sum(gains[place] * float(discounts(k)[place]) for place in range(places))
        assert expected_loss(_certain(ranks), order, k) == pytest.approx(1.0 - got / best)


@pytest.mark.parametrize("count", [1, 2, 5, 9, 10, 30])
def test_the_large_order_itself_loses_nothing(count: int) -> None:
    """Also where there are fewer candidates than places."""
    assert expected_loss(_certain(list(range(1, count + 1))), np.arange(count), 10) == pytest.approx(0.0, abs=1e-12)


def test_the_expected_loss_is_linear_in_the_probabilities() -> None:
    """Of two orders that are equally likely it is the mean of both losses."""
    one, other, order = _certain([1, 2, 3, 4]), _certain([4, 3, 2, 1]), np.array([1, 0, 2, 3])
    mixed = expected_loss((one + other) / 2, order, 3)
    assert mixed == pytest.approx((expected_loss(one, order, 3) + expected_loss(other, order, 3)) / 2)


def test_of_no_candidates_nothing_is_lost() -> None:
    """An empty list is as good as any."""
    assert expected_loss(np.zeros((0, 4)), np.zeros(0, dtype=np.int64), 10) == 0.0


def test_impossible_probabilities_stay_in_range() -> None:
    """Where every candidate is sure to be first nothing can be lost; where none is, everything is."""
    assert expected_loss(np.ones((5, 4)), np.arange(5), 10) == 0.0
    assert expected_loss(np.zeros((5, 4)), np.arange(5), 10) == 1.0


@pytest.mark.parametrize(
    ("count", "k", "expected"), [(3, 3, 1.0), (2, 3, 1.0), (4, 3, 0.1), (4, 1, 0.2), (1, 10, 1.0), (10, 10, 1.0)]
)
def test_the_margin_is_the_fall_of_p_behind_rank_k(count: int, k: int, expected: float) -> None:
    """With the most likely candidates first, wherever they stand; one where nothing can enter."""
    p = np.array([0.3, 0.9, 0.4, 0.7, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1])[:count, None] * np.ones(4)
    assert margin(p, k) == pytest.approx(expected)


def test_the_entropy_counts_what_is_open() -> None:
    """It is ln 2 for each candidate that may as well be in as out, and nothing for certain ones."""
    p = np.array([0.5, 0.5, 0.0, 1.0])[:, None] * np.ones(4)
    assert entropy(p, 3) == pytest.approx(2 * math.log(2.0))
