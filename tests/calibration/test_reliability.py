"""Judging probabilities: known answers, the decomposition, and the floor of noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.calibration.reliability import reliability


def test_known_answers() -> None:
    """Two bins of two: predictions .1 and .9 of which one each came true."""
    found = reliability(np.array([0.9, 0.1, 0.1, 0.9]), np.array([True, False, True, False]), bins=2)
    assert found.brier == pytest.approx((0.01 + 0.01 + 0.81 + 0.81) / 4)
    assert (found.ece, found.reliability, found.resolution) == pytest.approx((0.4, 0.16, 0.0))
    assert (found.uncertainty, found.predicted, found.observed) == pytest.approx((0.25, 0.5, 0.5))
    assert [(bin_.count, bin_.predicted, bin_.observed) for bin_ in found.bins] == [(2, 0.1, 0.5), (2, 0.9, 0.5)]
    assert found.ece_floor == pytest.approx(0.8 * np.sqrt(2 * 0.09 / 4))


def test_perfect_foresight() -> None:
    """Certain and right: no error, and as much resolution as there is uncertainty."""
    came_true = np.array([True, False] * 20)
    found = reliability(came_true.astype(np.float64), came_true, bins=4)
    assert (found.brier, found.ece, found.ece_floor) == (0.0, 0.0, 0.0)
    assert found.resolution == pytest.approx(found.uncertainty)


def test_fewer_predictions_than_bins_have_a_bin_each() -> None:
    """No bin is empty; one prediction is enough."""
    assert len(reliability(np.array([0.2, 0.4]), np.array([True, False])).bins) == 2
    assert reliability(np.array([0.25]), np.array([True])).ece == 0.75


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), min_size=1, max_size=60), st.integers(1, 15))
def test_murphys_decomposition_adds_up(rows: list[tuple[float, bool]], bins: int) -> None:
    """Their reliability - resolution + uncertainty is the Brier score of predictions set to their bin's mean."""
    p = np.array([row[0] for row in rows])
    came_true = np.array([row[1] for row in rows])
    found = reliability(p, came_true, bins)
    binned = sum(
        bin_.count * (bin_.predicted**2 - 2.0 * bin_.predicted * bin_.observed + bin_.observed) for bin_ in found.bins
    )
    assert found.reliability - found.resolution + found.uncertainty == pytest.approx(binned / len(p), abs=1e-9)
    assert sum(bin_.count for bin_ in found.bins) == found.count == len(p)


@pytest.mark.parametrize("skewed", [False, True])
def test_a_calibrated_stream_shows_its_floor(skewed: bool) -> None:
    """Of 200 streams the mean error is the floor, and nine in ten stay within 1.4 of it.

    The floor is what 15 bins show on average: each |N(0, s)| has mean .80 s and deviation .60 s, so the mean over
    the bins strays by .60 / .80 / sqrt(15) = 19%, and 1.28 of that is 25%; skewed streams have fewer bins that count.
    """
    errors = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        p = random.beta(0.3, 2.0, 1500) if skewed else random.random(1500)
        found = reliability(p, random.random(1500) < p)
        errors.append(found.ece / found.ece_floor)
    assert 0.7 < np.mean(errors) < 1.02
    assert np.mean(np.array(errors) <= 1.4) >= 0.9


def test_a_stream_that_is_off_shows_it() -> None:
    """Predictions that are 10 points too high in the middle stand well above the floor."""
    random = np.random.default_rng(0)
    p = random.uniform(0.2, 0.8, 4000)
    found = reliability(p, random.random(4000) < p - 0.1)
    assert found.ece == pytest.approx(0.1, abs=0.03)
    assert found.ece > 2 * found.ece_floor
