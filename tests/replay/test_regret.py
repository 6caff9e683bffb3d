"""Regret against judgements."""

from __future__ import annotations

import pytest

from cascade.replay.regret import best_utility, regrets
from tests.replay.sweeps import sweep


def test_the_best_action_of_each_query_is_the_measure() -> None:
    """At .01 a pair the first query is best left in first-stage order, the second sent whole."""
    first = sweep("first-stage", [[0.8, 0.1]], [[0, 0]])
    static = sweep("static", [[0.7, 0.9], [0.5, 0.2]], [[10, 10], [0, 0]])
    best = best_utility(first, static, 0.01)
    assert best.tolist() == pytest.approx([0.8, 0.8])
    assert regrets(static, best, 0.01).tolist() == [pytest.approx([0.2, 0.0]), pytest.approx([0.3, 0.6])]
    assert regrets(first, best, 0.01)[0].tolist() == pytest.approx([0.0, 0.7])


def test_a_policy_may_beat_every_action() -> None:
    """Regret below zero is told as it is."""
    static = sweep("static", [[0.5]], [[10]])
    assert regrets(sweep("policy", [[0.6]], [[2]]), best_utility(static, static, 0.01), 0.01)[0, 0] == pytest.approx(
        -0.18
    )
