"""A percentile and its interval."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.replay.percentile import percentile


def test_the_percentile_is_a_value_between_two_order_statistics() -> None:
    """Of the numbers 1 to 400 the 95th percentile is 380; its interval reaches 1.96 sqrt(19) ranks either way."""
    found = percentile(np.arange(400.0, 0.0, -1.0), 0.95, "")
    assert (found.value, found.interval, found.reason) == (380.0, (371.0, 389.0), None)


def test_a_share_between_two_values_is_the_upper_one() -> None:
    """The least value that half of 11 do not exceed is the sixth: five are too few."""
    assert percentile(np.arange(1.0, 12.0), 0.5, "").value == 6.0


def test_the_interval_holds_what_it_says() -> None:
    """In 19 of 20 samples the true percentile is within."""
    random = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        found = percentile(random.random(200), 0.9, "")
        assert found.interval is not None
        low, high = found.interval
        assert low is not None
        assert high is not None
        held += low <= 0.9 <= high
    assert 0.93 <= held / 400 <= 0.99


def test_few_values_do_not_bound_an_extreme() -> None:
    """Of 40 values none is surely above the 95th percentile; of nine there is no interval at all."""
    found = percentile(np.arange(1.0, 41.0), 0.95, "")
    assert (found.value, found.interval) == (38.0, (35.0, None))
    assert found.reason == "too few queries to bound it on both sides"
    assert percentile(np.arange(9.0), 0.95, "").reason == "fewer than 10 queries"


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_an_end_beyond_the_values_is_open(share: float) -> None:
    """At either side."""
    found = percentile(np.arange(30.0), share, "")
    assert found.interval is not None
    assert None in found.interval


def test_a_value_that_is_not_told_leaves_nothing_to_tell() -> None:
    """One NaN is enough."""
    found = percentile(np.array([1.0, np.nan]), 0.5, "not told")
    assert (found.value, found.interval, found.reason) == (None, None, "not told")
