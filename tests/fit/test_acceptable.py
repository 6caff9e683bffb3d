"""Fitting how likely the small order is acceptable."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.fit.acceptable import TOLERANCE, fit_acceptable


def _drawn(count: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return summaries, losses of queries that are acceptable by a known law of them, and the law's probabilities."""
    random = np.random.default_rng(seed)
    summaries = np.column_stack([random.random(count) * 4, random.random(count) * 4, random.random(count) * 4])
    p = 1.0 / (1.0 + np.exp(-(1.0 - 2.0 * summaries[:, 0] + 1.0 * summaries[:, 1])))
    return summaries, np.where(random.random(count) < p, 0.0, 0.1), p


def test_a_known_law_is_found() -> None:
    """Weights of expected loss, margin and entropy within .35 of it, three standard errors at 2000 queries."""
    summaries, loss, p = _drawn()
    model = fit_acceptable(summaries, loss, "nDCG@5")
    assert model is not None
    assert model.weights == pytest.approx((-2.0, 1.0, 0.0), abs=0.35)
    assert model.intercept == pytest.approx(1.0, abs=0.5)
    assert model.share == pytest.approx(float((loss <= TOLERANCE).mean()))
    assert model.brier == pytest.approx(float((p * (1.0 - p)).mean()), abs=0.02)
    assert model.target == "nDCG@5 loss at most 0.02"


@pytest.mark.parametrize("good", [0, 9, 91, 100])
def test_too_few_of_one_kind_are_not_fitted(good: int) -> None:
    """Ten of each are needed."""
    summaries = np.random.default_rng(0).random((100, 3))
    assert fit_acceptable(summaries, np.where(np.arange(100) < good, 0.0, 0.5), "x") is None


def test_a_loss_of_just_the_tolerance_is_acceptable() -> None:
    """And a gain is, too."""
    summaries = np.random.default_rng(0).random((40, 3))
    loss = np.where(np.arange(40) % 4 == 0, TOLERANCE, np.where(np.arange(40) % 4 == 1, -0.5, 0.5))
    model = fit_acceptable(summaries, loss, "x")
    assert model is not None
    assert model.share == 0.5
