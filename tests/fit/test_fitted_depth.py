"""Fitting the depth of a release from score tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cascade.errors import ConfigError
from cascade.fit.fitted_depth import depth_grid, fitted_depth
from cascade.policy.depth_rules import FixedDepth, GreedyDepth
from cascade.types import QueryClass
from tests.fit.planted import ROLES, misled_by_class, planted_table


@pytest.mark.parametrize(
    ("deepest", "grid"),
    [
        (100, (10, 20, 30, 50, 75, 100)),
        (60, (10, 20, 30, 50, 60)),
        (11, (10, 11)),
        (200, (10, 20, 30, 50, 75, 100, 200)),
    ],
)
def test_depths_are_tried_as_far_as_there_are_candidates(deepest: int, grid: tuple[int, ...]) -> None:
    """The greatest there is is one of them."""
    assert depth_grid(deepest) == grid


@pytest.mark.parametrize("deepest", [1, 10])
def test_one_depth_is_no_choice(deepest: int) -> None:
    """That is said."""
    with pytest.raises(ConfigError, match="--fit-depth: depths from 10 on are compared"):
        depth_grid(deepest)


def test_a_table_where_the_class_tells_the_depth_gives_greedy() -> None:
    """The notes say what was compared, with intervals, and what does not count in it."""
    found = fitted_depth([misled_by_class()], ROLES, 10, 0.0001, 200, 0)
    rule = found.fit.rule
    assert isinstance(rule, GreedyDepth)
    assert rule.classes[QueryClass.IDENTIFIER] == 20  # deeper, the small order brings the large stage other candidates
    assert rule.classes[QueryClass.OTHER] > 20
    kept, curve, greedy, gain = found.notes
    assert kept == (
        "depth: greedy is kept at 0.0001 a candidate, by ndcg@10 of the small order with its first 20 in large order, by "
        "judgements, of 120 queries"
    )
    assert curve.startswith("depth: the small order with its first 20 in large order, mean ndcg@10 at 10: 0.")
    assert greedy.startswith("depth: greedy against fixed at a mean depth of ")
    assert greedy.endswith("], wins")
    assert gain.startswith("depth: gain against greedy at a mean depth of ")
    assert gain.endswith("], does not win")
    assert "does not count in it: its order of all has 10: 0." in found.deeper


def test_without_judgements_or_classes_that_is_said_loudly() -> None:
    """The large order judges, and greedy is no more than a fixed depth."""
    found = fitted_depth([planted_table(60, 24, rel=None, attributes={})], ROLES, 5, 0.0003, 200, 0)
    assert isinstance(found.fit.rule, FixedDepth)
    assert found.notes[0].startswith("DEPTH IS JUDGED BY THE LARGE ORDER, NOT BY JUDGEMENTS")
    assert f"fixed {found.fit.rule.depth} is kept" in found.notes[1]
    assert "silver, by the large order" in found.notes[1]
    assert found.notes[3] == "depth: no column q_class tells classes, so that greedy is a fixed depth"


def test_depth_stays_within_the_limit_and_what_rerankers_may_score() -> None:
    """Whichever is less."""
    tables = [planted_table(30, 60, seed=1), planted_table(30, 60, seed=2)]
    limited = fitted_depth(tables, ROLES, 10, 0.0, 25, 0)
    assert "20: " in limited.notes[1]
    assert "25: " in limited.notes[1]
    assert "30: " not in limited.notes[1]
    assert "of 60 queries" in limited.notes[0]
    bounded = fitted_depth(tables, replace(ROLES, depth=15), 10, 0.0, 200, 0)
    assert ", 15: " in bounded.notes[1]
    assert "20: " not in bounded.notes[1]


def test_fitting_twice_gives_the_same() -> None:
    """Folds and resamples are drawn from the seed."""
    table = misled_by_class(60, 30)
    assert fitted_depth([table], ROLES, 10, 0.001, 200, 3) == fitted_depth([table], ROLES, 10, 0.001, 200, 3)
