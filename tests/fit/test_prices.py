"""Choosing prices from a sweep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cascade.fit.prices import chosen_prices
from cascade.replay.sweep import Metric, Sweep


def _sweep(quality: list[float], pairs: list[float]) -> Sweep:
    """Return a sweep of one query."""
    values = np.array(quality)[:, None]
    counts = np.array(pairs)[:, None]
    settings = tuple(0.001 * 2**place for place in range(len(quality)))
    return Sweep("policy", settings, values, counts, None, {Metric.NDCG: values}, np.ones_like(values), counts > 0)


def _ends(small: float, large: float) -> npt.NDArray[np.float64]:
    """Return the quality of always-small and always-large on that query."""
    return np.array([[small, large]])


def test_each_target_has_the_cheapest_price_that_reaches_it() -> None:
    """Of those that recover enough the one of least pairs, also where quality does not fall with the price."""
    sweep = _sweep([0.6, 0.59, 0.598, 0.582, 0.5], [100.0, 60.0, 50.0, 20.0, 0.0])
    points = chosen_prices(sweep, _ends(0.5, 0.6), 100.0, 0, judged=True)
    assert [(p.target, p.price, p.large_share) for p in points] == [
        (0.80, 0.008, 0.2),
        (0.90, 0.004, 0.5),
        (0.95, 0.004, 0.5),
        (0.98, 0.004, 0.5),
    ]
    assert [p.recovered for p in points] == pytest.approx([0.82, 0.98, 0.98, 0.98])
    assert {p.judged_by for p in points} == {"judgements"}


def test_a_target_that_no_price_reaches_has_none() -> None:
    """The others stay."""
    points = chosen_prices(_sweep([0.591, 0.5], [100.0, 0.0]), _ends(0.5, 0.6), 100.0, 0, judged=False)
    assert [(p.target, p.judged_by) for p in points] == [(0.80, "large-scores"), (0.90, "large-scores")]


@pytest.mark.parametrize("large", [0.5, 0.4])
def test_where_the_large_stage_is_no_better_there_is_no_price(large: float) -> None:
    """There is nothing to recover."""
    assert chosen_prices(_sweep([0.5, 0.5], [10.0, 0.0]), _ends(0.5, large), 10.0, 0, judged=True) == ()


def test_a_price_has_the_interval_of_what_it_recovers() -> None:
    """Half of the queries recover all and half 0.7 of the difference: the mean lies inside, neither end at it."""
    quality = np.tile([[0.6, 0.57], [0.5, 0.5]], (1, 20))
    counts = np.tile([[10.0, 10.0], [0.0, 0.0]], (1, 20))
    sweep = Sweep(
        "policy", (0.001, 0.1), quality, counts, None, {Metric.NDCG: quality}, np.ones_like(quality), counts > 0
    )
    (point,) = chosen_prices(sweep, np.tile([0.5, 0.6], (40, 1)), 20.0, 0, judged=True)
    assert point.recovered == pytest.approx(0.85)
    assert point.low is not None
    assert point.high is not None
    assert 0.75 < point.low < 0.85 < point.high < 0.95
