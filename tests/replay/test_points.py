"""The setting at which a policy is reported."""

from __future__ import annotations

import pytest

from cascade.replay.points import at_pairs, at_price, at_setting
from tests.replay.sweeps import sweep

_SWEEP = sweep("p", [[0.9, 0.7], [0.6, 0.6], [0.1, 0.3]], [[10, 10], [4, 4], [0, 0]])


def test_at_a_setting_only_that_one_counts() -> None:
    """The query's own values are told."""
    point = at_setting(_SWEEP, 1, "why")
    assert (point.settings(), point.chosen) == ([(1.0, 1.0)], "why")
    assert point.mean(_SWEEP.quality).tolist() == [0.6, 0.6]


@pytest.mark.parametrize(
    ("pairs", "settings"),
    [
        (7.0, [(0.0, 0.5), (1.0, 0.5)]),
        (1.0, [(1.0, 0.25), (2.0, 0.75)]),
        (4.0, [(1.0, 1.0)]),
        (0.0, [(2.0, 1.0)]),
        (99.0, [(0.0, 1.0)]),
    ],
)
def test_at_a_cost_a_coin_chooses_between_the_settings_around_it(
    pairs: float, settings: list[tuple[float, float]]
) -> None:
    """The mean cost is the one asked for, or the nearest that the policy has."""
    point = at_pairs(_SWEEP, pairs, "equal cost")
    assert point.settings() == settings
    assert point.mean(_SWEEP.pairs).mean() == min(pairs, 10.0)


@pytest.mark.parametrize(("price", "setting"), [(0.0, 0.0), (0.05, 1.0), (1.0, 2.0), (0.1, 2.0)])
def test_at_a_price_the_greatest_mean_utility_decides(price: float, setting: float) -> None:
    """Free pairs buy the best quality, dear ones nothing; of equals the cheapest is taken."""
    assert at_price(_SWEEP, price).settings() == [(setting, 1.0)]
