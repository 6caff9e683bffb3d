"""Fitting the map from a raw score to relevance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cascade.calibration.artefact import IsotonicMap, PlattMap
from cascade.calibration.build import score_map_of
from cascade.fit.score_maps import fit_score_map

FloatArray = npt.NDArray[np.float64]
Drawn = tuple[FloatArray, npt.NDArray[np.bool_], npt.NDArray[np.int64]]


def _drawn(p_of: object, count: int = 4000, seed: int = 0) -> Drawn:
    """Draw scores, whether each is relevant, and of which of 100 queries it is."""
    random = np.random.default_rng(seed)
    scores = random.normal(0.0, 2.0, count)
    return scores, random.random(count) < p_of(scores), np.arange(count) % 100  # type: ignore[operator]


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("slope", "intercept"), [(1.5, -2.0), (0.4, 0.5)])
def test_platt_recovers_slope_and_intercept(slope: float, intercept: float, seed: int) -> None:
    """Within three standard errors, by the Fisher information of the logistic model; isotonic does not win."""
    scores, relevant, of_query = _drawn(lambda s: _sigmoid(slope * s + intercept), seed=seed)
    fitted = fit_score_map(scores, relevant, of_query, 0)
    assert fitted is not None
    platt, losses = fitted
    assert isinstance(platt, PlattMap)
    assert losses["platt"] < losses["isotonic"]
    design = np.column_stack([scores, np.ones_like(scores)])
    p = _sigmoid(design @ [slope, intercept])
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ (design * (p * (1.0 - p))[:, None]))))
    assert abs(platt.slope - slope) < 3 * errors[0]
    assert abs(platt.intercept - intercept) < 3 * errors[1]


def test_isotonic_is_kept_where_it_predicts_better() -> None:
    """A step is no sigmoid; the map kept is close to it, rises, and has no more than 64 points."""
    scores, relevant, of_query = _drawn(lambda s: np.where(s > 1.0, 0.7, 0.1))
    fitted = fit_score_map(scores, relevant, of_query, 0)
    assert fitted is not None
    isotonic, losses = fitted
    assert isinstance(isotonic, IsotonicMap)
    assert losses["isotonic"] < losses["platt"]
    assert len(isotonic.scores) <= 64
    at = score_map_of(isotonic)
    assert (at(-2.0), at(0.0), at(2.0)) == pytest.approx((0.1, 0.1, 0.7), abs=0.06)


def test_a_curve_of_many_points_is_thinned() -> None:
    """The first and the last stay, and what lies between is still the curve."""
    scores, relevant, of_query = _drawn(lambda s: np.clip(0.5 + s / 8.0 + 0.2 * np.sign(s), 0.0, 1.0), count=60_000)
    fitted = fit_score_map(scores, relevant, of_query, 0)
    assert fitted is not None
    assert isinstance(fitted[0], IsotonicMap)
    assert len(fitted[0].scores) == 64
    assert score_map_of(fitted[0])(2.0) == pytest.approx(0.95, abs=0.03)


def test_a_shift_of_the_scores_shifts_the_map() -> None:
    """Scores far from zero are fitted as well."""
    scores, relevant, of_query = _drawn(lambda s: _sigmoid(1.5 * s - 2.0))
    near, far = (fit_score_map(scores + shift, relevant, of_query, 0) for shift in (0.0, 1e6))
    assert near is not None
    assert far is not None
    assert score_map_of(far[0])(1e6 + 1.0) == pytest.approx(score_map_of(near[0])(1.0), abs=1e-6)


def test_too_few_of_one_kind_are_not_fitted() -> None:
    """Fifty of each are needed."""
    scores, _, of_query = _drawn(_sigmoid)
    for count in (0, 49):
        relevant = np.arange(len(scores)) < count
        assert fit_score_map(scores, relevant, of_query, 0) is None
        assert fit_score_map(scores, ~relevant, of_query, 0) is None


def test_relevant_pairs_that_are_all_of_one_query_are_not_fitted() -> None:
    """The fold without them would have nothing to learn from."""
    scores, _, of_query = _drawn(_sigmoid, count=10_000)
    assert fit_score_map(scores, of_query == 7, of_query, 0) is None


@pytest.mark.parametrize("slope", [-2.0, -0.3])
def test_a_score_that_falls_with_relevance_has_no_map(slope: float) -> None:
    """Neither a flat sigmoid nor a flat curve is kept."""
    scores, relevant, of_query = _drawn(lambda s: _sigmoid(slope * s))
    assert fit_score_map(scores, relevant, of_query, 0) is None


def test_a_constant_score_has_no_map() -> None:
    """It says nothing of relevance."""
    _, relevant, of_query = _drawn(lambda s: np.full_like(s, 0.5))
    assert fit_score_map(np.full(len(relevant), 3.0), relevant, of_query, 0) is None
