"""The paired sign-flip test: exact where it can be, level where it should be, and able to see a difference."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from cascade.errors import ConfigError
from cascade.statistics.permutation import Alternative, sign_flip_test

_Law = Callable[[np.random.Generator], npt.NDArray[np.float64]]


def _symmetric(generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return differences as nDCG has them: two thirds zero, the others of very different size, 60 queries."""
    sizes = generator.exponential(size=60) ** 2 * generator.choice([-1.0, 1.0], size=60)
    return np.asarray(sizes * (generator.random(60) < 1 / 3))


def _skewed(generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return differences of mean zero that are small one way and large the other, 400 queries."""
    return generator.exponential(size=400) * (generator.random(400) < 0.5) - 0.5


@pytest.mark.parametrize("law", [_symmetric, _skewed])
@pytest.mark.parametrize("alternative", [Alternative.TWO_SIDED, Alternative.GREATER])
def test_p_is_uniform_where_there_is_no_difference(law: _Law, alternative: Alternative) -> None:
    """Over 600 samples of mean zero no distance from uniform shows (Kolmogorov-Smirnov)."""
    generator = np.random.default_rng(11)
    found = [sign_flip_test(law(generator), alternative=alternative, flips=2000, seed=seed).p for seed in range(600)]
    assert stats.kstest(found, "uniform").pvalue > 0.01
    assert np.mean(np.array(found) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)


def test_a_test_of_the_wrong_spread_fails_the_same_check() -> None:
    """The check has teeth: p from a normal law with the spread taken a fifth too small is not uniform."""
    generator = np.random.default_rng(11)
    samples = [_symmetric(generator) for _ in range(600)]
    found = [2 * stats.norm.sf(abs(each.sum()) / (0.8 * np.sqrt((each**2).sum()))) for each in samples]
    assert stats.kstest(found, "uniform").pvalue < 0.01


def test_a_planted_difference_is_found_about_as_often_as_by_the_t_test() -> None:
    """A mean of a quarter of the spread, 100 queries: power about 0.70 at level 0.05."""
    generator = np.random.default_rng(3)
    samples = [generator.normal(0.25, 1.0, size=100) for _ in range(300)]
    found = np.mean([sign_flip_test(each, flips=1000, seed=1).p <= 0.05 for each in samples])
    by_t = np.mean([stats.ttest_1samp(each, 0.0).pvalue <= 0.05 for each in samples])
    assert found == pytest.approx(by_t, abs=0.03)
    assert 0.6 < found < 0.8


@pytest.mark.parametrize("alternative", list(Alternative))
def test_few_differences_are_enumerated(alternative: Alternative) -> None:
    """All 2^m assignments of signs to the m that are not zero, counted one by one."""
    values = np.array([0.3, 0.0, -0.1, 0.25, 0.5, -0.2, 0.1, 0.0])
    sums = [sum(signs) for signs in product(*[(-abs(value), abs(value)) for value in values if value])]
    total = values.sum()
    extreme = {
        Alternative.TWO_SIDED: [abs(each) >= total - 1e-9 for each in sums],
        Alternative.GREATER: [each >= total - 1e-9 for each in sums],
        Alternative.LESS: [each <= total + 1e-9 for each in sums],
    }[alternative]
    found = sign_flip_test(values, alternative=alternative)
    assert (found.p, found.flips, found.exact) == (np.mean(extreme), 64, True)
    assert found.mean == pytest.approx(total / 8)


def test_drawing_comes_near_to_enumerating() -> None:
    """Thirteen differences are few enough for 10,000 flips, and 5,000 of them must be drawn."""
    values = np.random.default_rng(2).normal(0.4, 1.0, size=13)
    exact, drawn = sign_flip_test(values), sign_flip_test(values, flips=5000)
    assert (exact.exact, drawn.exact) == (True, False)
    assert (exact.flips, drawn.flips) == (8192, 5000)
    assert drawn.p == pytest.approx(exact.p, abs=3 * np.sqrt(exact.p / 5000))


@pytest.mark.parametrize("alternative", list(Alternative))
@pytest.mark.parametrize("size", [9, 60])
def test_it_agrees_with_scipy(alternative: Alternative, size: int) -> None:
    """Exactly where both enumerate, within what drawing does where both draw."""
    values = np.random.default_rng(size).normal(0.1, 1.0, size=size)
    theirs = stats.permutation_test(
        (values,), np.sum, permutation_type="samples", alternative=alternative.value, n_resamples=9999, rng=1
    ).pvalue
    ours = sign_flip_test(values, alternative=alternative)
    assert ours.p == pytest.approx(theirs, abs=1e-12 if ours.exact else 0.02)


def test_no_difference_at_all_is_no_evidence() -> None:
    """Two equal policies have p = 1, and never less."""
    assert sign_flip_test(np.zeros(500)).p == 1.0


def test_zeros_are_in_the_mean_and_leave_p_as_it_is() -> None:
    """A query on which nothing differs tells nothing of the sign."""
    values = np.random.default_rng(4).normal(0.1, 1.0, size=50)
    diluted = np.concatenate([values, np.zeros(50)])
    assert sign_flip_test(diluted).p == sign_flip_test(values).p
    assert sign_flip_test(diluted).mean == pytest.approx(values.mean() / 2)


def test_a_p_that_was_drawn_is_never_zero() -> None:
    """The assignment that was seen counts among those tried."""
    found = sign_flip_test(np.ones(1000), flips=999)
    assert found.p == 0.001


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_the_unit_does_not_matter(scale: float) -> None:
    """Neither tiny nor huge differences under- or overflow."""
    values = np.random.default_rng(5).normal(0.2, 1.0, size=40)
    assert sign_flip_test(values * scale).p == sign_flip_test(values).p


def test_a_seed_repeats_the_flips() -> None:
    """Same seed, same p; another seed, another draw."""
    values = np.random.default_rng(6).normal(size=200)
    assert sign_flip_test(values, seed=1) == sign_flip_test(values, seed=1)
    assert sign_flip_test(values, seed=1) != sign_flip_test(values, seed=2)


def test_a_hundred_thousand_queries_are_tested_in_little_memory() -> None:
    """Of 200 million signs only a row of sums is kept; the mean of three standard errors is found."""
    values = np.random.default_rng(7).normal(size=100_000)
    found = sign_flip_test(values - values.mean() + 3 / np.sqrt(100_000), flips=2000)
    assert found.p == pytest.approx(0.0027, abs=0.0035)


def test_what_cannot_be_tested_is_refused() -> None:
    """NaN by its place, and a test without flips."""
    with pytest.raises(ConfigError, match="differences: 1 of 2 are not finite, the first is number 1"):
        sign_flip_test([0.0, np.nan])
    with pytest.raises(ConfigError, match="flips: 0 is not at least 1"):
        sign_flip_test([0.1], flips=0)
