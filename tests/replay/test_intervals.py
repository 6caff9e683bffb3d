"""Figures with intervals from one set of resamples."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.replay.intervals import Figure, figure, minus, resampled, undefined


def test_the_first_resample_is_the_sample() -> None:
    """Means over it are plain means, exactly, and every resample draws as many queries."""
    drawn = resampled(7, 50, seed=3)
    assert drawn.queries == 7
    assert drawn.counts.sum(axis=1).tolist() == [7.0] * 51
    assert drawn.means(np.ones(7)).tolist() == [1.0] * 51
    assert drawn.means(np.arange(14.0).reshape(2, 7)).shape == (51, 2)


@pytest.mark.parametrize(("queries", "resamples"), [(1, 20), (7, 50), (3000, 2500)])
def test_resamples_are_those_of_one_drawing_and_means_the_plain_product(queries: int, resamples: int) -> None:
    """Drawn and weighed in blocks, they are what the whole matrix of counts gives, to 1e-12."""
    drawn = np.random.default_rng(4).multinomial(queries, np.full(queries, 1.0 / queries), size=resamples)
    plain = np.concatenate([np.ones((1, queries)), drawn])
    found = resampled(queries, resamples, seed=4)
    assert (found.counts == plain).all()
    values = np.random.default_rng(5).random((3, queries))
    assert found.means(values) == pytest.approx(plain @ values.T / queries, rel=1e-12)
    assert found.means(values[0]) == pytest.approx(plain @ values[0] / queries, rel=1e-12)
    assert found.means(values[0] > 0.5)[0] == pytest.approx((values[0] > 0.5).mean(), rel=1e-12)


def test_the_last_drawings_are_kept_and_nobody_can_change_them() -> None:
    """Asked for again, the same object comes back; its counts are read-only."""
    drawn = resampled(11, 30, seed=9)
    assert resampled(11, 30, seed=9) is drawn
    with pytest.raises(ValueError, match="read-only"):
        drawn.counts[0, 0] = 2


def test_a_seed_gives_the_same_resamples() -> None:
    """The same seed repeats them, another does not."""
    assert (resampled(20, 10, seed=1).counts == resampled(20, 10, seed=1).counts).all()
    assert (resampled(20, 10, seed=1).counts != resampled(20, 10, seed=2).counts).any()


def test_the_interval_of_a_mean_is_that_of_the_normal_law() -> None:
    """For 400 queries it is about 1.96 standard errors to either side."""
    values = np.random.default_rng(5).normal(size=400)
    found = figure(resampled(400, 4000, seed=0).means(values), 400, "")
    assert found.value == pytest.approx(values.mean())
    assert found.interval is not None
    error = values.std() / 20
    assert found.interval == pytest.approx(
        (values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.15 * error
    )


def test_an_end_beyond_every_number_is_none_with_a_reason() -> None:
    """Where a tenth of the resamples never got there, the upper end is open."""
    draws = np.array([0.5, *np.linspace(0.4, 0.6, 90), *[np.inf] * 10])
    found = figure(draws, 100, "not reached")
    assert (found.value, found.reason) == (0.5, "not reached in 10.0% of resamples")
    assert found.interval is not None
    assert found.interval[0] == pytest.approx(0.4, abs=0.01)
    assert found.interval[1] is None


def test_a_figure_that_is_not_there_keeps_its_reason_and_what_is_known_of_its_interval() -> None:
    """The sample did not get there; some resamples did."""
    assert figure(np.array([np.inf, 0.4, np.inf]), 100, "not reached") == Figure(None, (0.4, None), "not reached")
    assert figure(np.full(3, np.inf), 100, "not reached") == Figure(None, None, "not reached")
    assert undefined("why") == Figure(None, None, "why")


def test_few_queries_have_no_interval() -> None:
    """Below ten queries the bootstrap would look far too sure."""
    assert figure(np.ones(5), 9, "x") == Figure(1.0, None, "fewer than 10 queries")
    assert figure(np.array([np.inf, 1.0]), 9, "x") == Figure(None, None, "x")


def test_two_that_never_get_there_do_not_differ() -> None:
    """Infinity minus infinity is no difference; one of the two alone is an infinite one."""
    inf = np.inf
    assert minus(np.array([inf, inf, 1.0, 2.0]), np.array([inf, 1.0, inf, 0.5])).tolist() == [0.0, inf, -inf, 1.5]
