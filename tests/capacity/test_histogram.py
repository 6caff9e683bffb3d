"""What a histogram of Prometheus tells of a distribution."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cascade.capacity.histogram import Histogram
from cascade.errors import ConfigError

_BOUNDS = (10.0, 20.0, 50.0, 100.0)


def _of(values: list[float]) -> Histogram:
    below = tuple(float(sum(value <= bound for value in values)) for bound in _BOUNDS)
    return Histogram(_BOUNDS, below, float(len(values)), float(sum(values)))


@given(st.lists(st.integers(1, 100), min_size=1, max_size=50))
@example([1, 21])
def test_the_mean_is_that_of_all_values_and_none_leaves_its_bucket(values: list[float]) -> None:
    """Whatever lies in the buckets: what is above a bound is above it afterwards."""
    told = _of(values).distribution()
    assert told.mean == pytest.approx(sum(values) / len(values))
    for bound in _BOUNDS:
        share = sum(value > bound for value in values) / len(values)
        assert told.share_above(bound + 1e-9) == pytest.approx(share)


def test_a_count_that_is_always_a_bound_is_told_exactly() -> None:
    """Fifty candidates each time are fifty, not what lies in the middle of a bucket."""
    told = _of([50.0] * 7).distribution()
    assert (told.values, told.shares) == ((50.0,), (1.0,))


def test_what_lies_beyond_the_last_bound_has_the_mean_that_is_left() -> None:
    """Of two values at 15 and one at 1000: 15 is the middle of its bucket."""
    told = _of([15.0, 15.0, 1000.0]).distribution()
    assert told.values == (15.0, 1000.0)
    assert _of([15.0, 15.0, 1000.0]).share_beyond == pytest.approx(1 / 3)


def test_what_came_since_is_what_was_added() -> None:
    """Counts and sums of a process only rise."""
    early, late = _of([5.0, 15.0]), _of([5.0, 15.0, 60.0])
    assert late.since(early) == _of([60.0])
    assert not early.since(late).is_possible
    with pytest.raises(ConfigError, match="of different versions"):
        late.since(Histogram((1.0,), (0.0,), 0.0, 0.0))
