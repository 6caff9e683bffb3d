"""What a level may send at most."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cascade.errors import ConfigError
from cascade.policy.depth_rules import EXAMPLE
from cascade.policy.level_bounds import deepest, most_pairs
from cascade.policy.levels import at_level
from cascade.policy.release import parse_release
from tests.scenario import release_data

_GRID: Final[list[dict[str, Any]]] = [
    {"depth": depth, "intercept": 0.0, "weights": [], "missing": []} for depth in (0, 20, 300)
]


@pytest.mark.parametrize(
    ("depth", "expected"),
    [
        (50, 50),
        ({"kind": "skip", "default": 30}, 30),
        ({"kind": "greedy", "default": 50, "classes": {"other": 80}}, 80),
        ({"kind": "greedy", "default": 50, "most": 60, "classes": {"other": 80}}, 60),
        (EXAMPLE, 100),
        ({"kind": "gain", "default": 50, "price_per_candidate": 0, "signals": [], "depths": _GRID}, 200),
        ({"kind": "greedy", "default": 50, "least": 50, "classes": {"other": 10}}, 50),
    ],
)
def test_the_deepest_of_a_rule_is_within_its_bounds(depth: Any, expected: int) -> None:
    """Every kind has one."""
    assert deepest(parse_release(release_data(depth=depth))) == expected


def test_each_level_sends_no_more_than_its_rules_allow() -> None:
    """By depth, by the cut of candidates, and nothing to a stage that nothing reaches."""
    levels: list[dict[str, Any]] = [
        {"name": "normal"}, {"name": "few", "depth": 10}, {"name": "small", "escalation": "none"},
        {"name": "none", "stages": "none"},
    ]  # fmt: skip
    release = parse_release(release_data(levels=levels, limits={"max_candidates": 40}))
    found = [most_pairs(at_level(release, level["name"])) for level in levels]
    assert found == [(40, 20), (10, 10), (40, 0), (0, 0)]


def test_without_a_small_stage_depth_is_sent_to_the_large_one() -> None:
    """As far as the escalation goes."""
    stages = {"large": release_data()["stages"]["large"]}
    assert most_pairs(parse_release(release_data(stages=stages))) == (0, 20)


def test_mode_observe_sends_every_candidate_to_the_large_stage() -> None:
    """As before there was a cascade; what is scored beside answers is no part of them."""
    assert most_pairs(parse_release(release_data(mode="observe"))) == (0, 200)


def test_the_longest_hold_is_no_shorter_than_the_first() -> None:
    """It is what that is doubled up to."""
    with pytest.raises(ConfigError, match="overload: longest_hold_s must not be below hold_s"):
        parse_release(release_data(overload={"hold_s": 10, "longest_hold_s": 9}))
