"""Ranking loss by the stable large stage: worked out by hand, and left out where it is not told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cascade.metrics import silver_gains
from cascade.rollout.shadow.parts import joined
from cascade.rollout.shadow.silver import gains_from, ranking_loss
from cascade.types import Exclusion, StageCost, StageScores

_SECOND = 1 / math.log2(3)
_THIRD = 0.5


def test_the_loss_of_two_documents_changed_is_worked_out_by_hand() -> None:
    """Gains 1, 1/2, 1/3: the best order has 1 + .5 d2 + .3333 d3, the other .5 + 1 d2 + .3333 d3."""
    gains = np.array([1.0, 0.5, 1 / 3])
    ideal = 1 + 0.5 * _SECOND + _THIRD / 3
    other = 0.5 + _SECOND + _THIRD / 3
    assert ranking_loss([0, 1, 2], [1, 0, 2], gains, 10) == pytest.approx((ideal - other) / ideal)
    assert ranking_loss([1, 0, 2], [0, 1, 2], gains, 10) == pytest.approx(-(ideal - other) / ideal)


def test_equal_orders_lose_nothing_at_all() -> None:
    """The difference is exactly 0, whatever the gains."""
    assert ranking_loss([2, 0, 1], [2, 0, 1], np.array([0.7, 0.1, 0.3]), 10) == 0.0


def test_only_the_head_counts() -> None:
    """At k = 1 what stands behind the first place changes nothing, and the ideal is the best single document."""
    gains = np.array([1.0, 0.5, 1 / 3])
    assert ranking_loss([0, 1, 2], [0, 2, 1], gains, 1) == 0.0
    assert ranking_loss([0, 1, 2], [1, 0, 2], gains, 1) == 0.5


def test_an_order_of_nothing_worth_loses_all() -> None:
    """The bounds of the loss are reached: judged documents on one side, none on the other."""
    gains = np.array([1.0, 0.0])
    assert ranking_loss([0, 1], [1, 0], gains, 1) == 1.0
    assert ranking_loss([1, 0], [0, 1], gains, 1) == -1.0


def test_gains_are_those_of_a_replay_without_judgements() -> None:
    """1 / rank by the large score, in the order of the candidates."""
    scores = [0.5, 3.0, -1.0, 2.0]
    gains = gains_from(scores, 10)
    assert gains is not None
    assert gains.tolist() == [1 / 3, 1.0, 1 / 4, 1 / 2]
    assert gains.tolist() == silver_gains(np.array(scores)).tolist()


def test_what_is_not_scored_gains_nothing_in_a_replay() -> None:
    """NaN is no score, and takes no rank."""
    assert silver_gains(np.array([np.nan, 1.0, 2.0])).tolist() == [0.0, 0.5, 1.0]


def test_a_tie_at_the_head_tells_nothing() -> None:
    """It does so whoever has its documents in which order: the loss of no order is made up, and none is left out alone."""
    assert gains_from([3.0, 2.0, 2.0, 1.0], 2) is None
    assert gains_from([3.0, 3.0], 10) is None


def test_a_tie_behind_the_head_shares_the_mean_of_its_ranks() -> None:
    """Ranks 3 and 4 gain (1/3 + 1/4) / 2 each; the tie begins behind the second place."""
    gains = gains_from([1.0, 4.0, 3.0, 1.0], 2)
    assert gains is not None
    assert gains.tolist() == [pytest.approx(7 / 24), 1.0, 0.5, pytest.approx(7 / 24)]


def _cost(**changes: Any) -> StageCost:
    return StageCost(1, 10, tokens_estimated=False, truncated=1, **changes)


def test_parts_join_in_order_with_their_costs() -> None:
    """Positions of what was left out move on, counts and times add up, an untold time is untold."""
    one = StageScores((1.0, None), {1: Exclusion.BLANK}, _cost(queue_ms=1.0, compute_ms=2.0))
    other = StageScores((None, 3.0), {0: Exclusion.REFUSED}, _cost(queue_ms=4.0), frozenset({1}))
    whole = joined([one, other])
    assert whole.scores == (1.0, None, None, 3.0)
    assert whole.excluded == {1: Exclusion.BLANK, 2: Exclusion.REFUSED}
    assert whole.shortened == {3}
    assert whole.cost == StageCost(2, 20, tokens_estimated=False, truncated=2, queue_ms=5.0)
    assert joined([one]) is one
