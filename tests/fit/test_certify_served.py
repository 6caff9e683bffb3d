"""What levels and fallbacks make of a promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.fit.certify.served import Mix, as_served, left_for_normal


def test_the_loss_as_served_weighs_every_level_and_the_fallbacks() -> None:
    """.99 x (.9 x .005 + .1 x .03) + .01 x .2."""
    bounds = {"normal": 0.005, "degraded-1": 0.03}
    mix = {"normal": 0.9, "degraded-1": 0.1}
    assert as_served(bounds, mix) == pytest.approx(0.0075)
    assert as_served(bounds, mix, 0.01, 0.2) == pytest.approx(0.99 * 0.0075 + 0.002)


def test_what_is_left_for_the_policy_is_what_as_served_then_adds_up_to() -> None:
    """A policy that keeps it keeps epsilon as served, to the last digit but one."""
    mix = Mix("normal", {"normal": 0.9, "degraded-1": 0.1, "degraded-2": 0.0}, fallback_rate=0.01)
    others = {"degraded-1": 0.03}
    left = left_for_normal(0.01, others, mix, 0.01, 0.2)
    assert left == pytest.approx(((0.01 - 0.002) / 0.99 - 0.003) / 0.9)
    assert as_served({**others, "normal": left}, mix.levels, 0.01, 0.2) == pytest.approx(0.01)
    assert mix.others == ("degraded-1",)
    assert mix.bounds == 2


def test_a_counted_rate_is_a_bound_of_its_own() -> None:
    """Clopper and Pearson's: none of a hundred may still be 3%. A rate that is told is taken as told."""
    counted = Mix("normal", {"normal": 1.0}, fallbacks=(0, 100))
    assert counted.rate(0.05) == pytest.approx(0.0295, abs=1e-4)
    assert (counted.bounds, counted.falls_back) == (2, True)
    told = Mix("normal", {"normal": 1.0}, fallback_rate=0.002)
    assert (told.rate(0.05), told.bounds) == (0.002, 1)
    assert Mix("normal", {"normal": 1.0}).rate(0.05) == 0.0


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"levels": {"normal": 0.9}}, "sum to 1"),
        ({"levels": {"normal": 1.2, "degraded-1": -0.2}}, "sum to 1"),
        ({"levels": {"degraded-1": 1.0}}, "the share of normal, which is to be certified"),
        ({"levels": {"normal": 1.0}, "fallback_rate": 1.0}, "--fallback-rate"),
        (
            {"levels": {"normal": 1.0}, "fallback_rate": 0.1, "fallbacks": (1, 10)},
            "either --fallback-rate or --fallbacks",
        ),
    ],
)
def test_mixes_that_cannot_be_are_refused(fields: Mapping[str, Any], told: str) -> None:
    """Each says which option."""
    with pytest.raises(ConfigError, match=told):
        Mix("normal", **fields)
