"""The path, the sequence of tests along it, and that the whole of it promises what it keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cascade.fit.certify.path import choose_path
from cascade.fit.certify.sequence import fixed_sequence, informed
from cascade.statistics.betting import Bets

_EPSILON = 0.02
_LOSS = 0.03
"""What recalibrations promise of the pool."""
_DELTA = 0.1


def _steady(*means: float, queries: int = 400, sd: float = 0.02) -> np.ndarray:
    """Return losses (S, Q) of these means, half above and half below by ``sd``."""
    return np.array(means)[:, None] + sd * np.where(np.arange(queries) % 2, 1.0, -1.0)


def test_the_path_goes_from_safe_to_cheap() -> None:
    """By falling cost, and rising loss."""
    losses = _steady(0.0, 0.005, 0.01, 0.03)
    assert choose_path(losses, np.array([0.5, 0.3, 0.2, 0.1]), _EPSILON) == [0, 1, 2, 3]


def test_what_a_cheaper_policy_beats_is_left_out() -> None:
    """It costs more and is harder to certify; and always-large itself is never tested."""
    losses = _steady(0.0, 0.012, 0.005, 0.01)
    assert choose_path(losses, np.array([1.0, 0.5, 0.4, 0.2]), _EPSILON) == [2, 3]


def test_spread_counts_beside_the_mean() -> None:
    """A cheaper policy of a slightly greater mean loss and half the spread is easier to certify."""
    losses = np.concatenate([_steady(0.001, sd=0.2), _steady(0.002, sd=0.05)])
    assert choose_path(losses, np.array([0.4, 0.3]), _EPSILON) == [1]


def test_policies_that_cost_the_same_are_no_further_tests() -> None:
    """Half a percent of the pairs is the least step."""
    losses = _steady(0.0, 0.001, 0.002)
    assert choose_path(losses, np.array([0.302, 0.301, 0.2]), _EPSILON) == [0, 2]


def test_testing_stops_at_the_first_failure() -> None:
    """Though the policy behind it would pass: the order was fixed, and nothing behind it is looked at."""
    losses = _steady(0.0, 0.04, 0.0)
    tested = fixed_sequence(losses, [0, 1, 2], _EPSILON, _DELTA)
    assert (tested.accepted, tested.count, len(tested.p)) == (0, 1, 2)
    assert tested.p[0] <= _DELTA < tested.p[1]
    assert fixed_sequence(losses, [0, 2], _EPSILON, _DELTA).accepted == 2
    assert fixed_sequence(losses, [1, 0], _EPSILON, _DELTA).accepted is None


def test_an_empty_path_certifies_nothing() -> None:
    """There was nothing to test."""
    assert fixed_sequence(_steady(0.0), [], _EPSILON, _DELTA).p == ()


def test_bets_begin_with_what_the_choosing_queries_lost() -> None:
    """Mean and variance of each policy, as of thirty losses; one without any spread is not taken to have none."""
    prior = informed(np.array([[0.1, -0.1], [0.02, 0.02]]))
    assert np.asarray(prior.mean).tolist() == pytest.approx([0.0, 0.02])
    assert np.asarray(prior.variance).tolist() == pytest.approx([0.01001, 0.00001])
    assert prior.weight == 30.0
    alone = fixed_sequence(_steady(0.0, 0.001), [1], _EPSILON, _DELTA, Bets.STAR, informed(_steady(0.001)))
    both = fixed_sequence(_steady(0.0, 0.001), [0, 1], _EPSILON, _DELTA, Bets.STAR, informed(_steady(0.0, 0.001)))
    assert both.p[1] == pytest.approx(alone.p[0])


class _Pool:
    """Queries whose losses under every policy are known: 12 policies of falling cost, the ninth about at what is promised.

    A query's losses under neighbouring policies go together, a policy that sends less loses on more queries,
    and most lose nothing: as on real scores.
    """

    def __init__(self, queries: int = 30_000) -> None:
        random = np.random.default_rng(0)
        hardness = random.random(queries)
        swing = 0.35 * random.standard_normal(queries) + 0.06
        shares = np.linspace(0.05, 0.6, 12)
        self.losses = np.clip(np.where(hardness < shares[:, None], swing * (0.5 + shares[:, None]), 0.0), -1.0, 1.0)
        self.costs = 1.0 - shares
        self.true = self.losses.mean(axis=1)

    def draw(self, queries: int, seed: int) -> np.ndarray:
        """Return the losses of so many queries."""
        chosen = np.random.default_rng(seed).integers(0, self.losses.shape[1], queries)
        return self.losses[:, chosen]


@pytest.fixture(scope="module")
def pool() -> _Pool:
    """Give one pool for all recalibrations."""
    return _Pool()


def _violations(pool: _Pool, bets: Bets | None) -> tuple[int, float]:
    """Recalibrate 400 times: return how often what was certified loses more than epsilon, and its mean cost."""
    violated, costs = 0, []
    for number in range(400):
        chosen, certify = pool.draw(150, 2 * number), pool.draw(250, 2 * number + 1)
        path = choose_path(chosen, pool.costs, _LOSS)
        if bets is None:
            below = np.flatnonzero(certify.mean(axis=1) <= _LOSS)
            at = int(below[np.argmin(pool.costs[below])]) if below.size else None
        else:
            at = fixed_sequence(certify, path, _LOSS, _DELTA, bets, informed(chosen[path])).accepted
        violated += at is not None and bool(pool.true[at] > _LOSS)
        costs.append(1.0 if at is None else float(pool.costs[at]))
    return violated, float(np.mean(costs))


_ALLOWED = 400 * (_DELTA + 3.0 * math.sqrt(_DELTA * (1.0 - _DELTA) / 400))
"""58 of 400."""


@pytest.mark.parametrize("bets", list(Bets))
def test_of_400_recalibrations_at_most_delta_promise_too_much(pool: _Pool, bets: Bets) -> None:
    """And three standard errors; what they certify is cheaper than always-large."""
    violated, cost = _violations(pool, bets)
    assert violated <= _ALLOWED
    assert cost < 0.97


def test_picking_by_the_mean_fails_the_same_test(pool: _Pool) -> None:
    """The cheapest that loses less than epsilon on the same queries is too cheap far more often than that."""
    violated, _ = _violations(pool, None)
    assert violated > 1.5 * _ALLOWED
