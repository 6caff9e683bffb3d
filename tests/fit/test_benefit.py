"""Whether the large stage helps at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.fit.benefit import quality_of_ends, shown_benefit
from cascade.metrics import Gain
from cascade.replay.queries import ReplayedQuery, replayed
from cascade.replay.table import ScoreTable
from tests.fit.planted import ERRORS, ROLES, planted_table
from tests.replay.made import made_query


def _queries(table: ScoreTable, k: int = 5) -> tuple[ReplayedQuery, ...]:
    return replayed([table], ROLES, k, Gain.LINEAR).queries


def test_the_ends_are_the_small_and_the_large_order() -> None:
    """One relevant document that the small order has second and the large order first."""
    query = made_query([2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 1.0, 0.0])
    assert quality_of_ends(query, 3) == pytest.approx((1.0 / np.log2(3.0), 1.0))


@pytest.mark.parametrize("k", [10, 3, 1])
def test_a_better_large_stage_is_shown(k: int) -> None:
    """The interval lies above zero and around the mean, at every length."""
    found = shown_benefit(_queries(planted_table(), k), k, 0)
    assert (found.status, found.metric, found.queries) == ("shown", f"ndcg@{k}", 110)
    assert found.mean is not None
    assert found.low is not None
    assert found.high is not None
    assert 0.0 < found.low < found.mean < found.high


@pytest.mark.parametrize("errors", [{"small": 0.3, "large": 2.0}, {"small": 1.0, "large": 1.0}])
def test_a_worse_large_stage_or_one_as_good_shows_no_benefit(errors: dict[str, float]) -> None:
    """Harm is, and so is a difference whose interval holds zero."""
    found = shown_benefit(_queries(planted_table(errors={**ERRORS, **errors})), 5, 0)
    assert found.status == "none-found"
    assert found.low is not None
    assert found.low <= 0.0


def test_without_judgements_nothing_is_shown() -> None:
    """No figure is made up of the large stage's own order."""
    found = shown_benefit(_queries(replace(planted_table(), rel=None)), 5, 0)
    assert (found.status, found.mean, found.low, found.high, found.queries) == ("not-shown", None, None, None, 0)


def test_a_handful_of_queries_shows_nothing() -> None:
    """Below ten there is no interval, and without one the large stage is not shown to help."""
    found = shown_benefit(_queries(planted_table(9)), 5, 0)
    assert (found.status, found.low) == ("none-found", None)
    assert found.mean is not None
