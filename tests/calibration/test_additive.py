"""Smooth functions of long lists."""

from __future__ import annotations

import numpy as np

from cascade.calibration.additive import Smooths


def test_a_list_of_any_length_is_evaluated_like_its_candidates_one_by_one() -> None:
    """Long lists are cut into parts, and how they are cut changes no value."""
    draw = np.random.default_rng(0)
    features, pieces, outputs = 18, 5, 5
    knots = np.sort(draw.normal(size=(features, pieces + 1)), axis=1)
    smooths = Smooths(np.arange(features), knots, draw.normal(size=(features, pieces, 4, outputs)))
    columns = draw.normal(size=(500, features))
    each = np.concatenate([smooths(columns[row : row + 1]) for row in range(500)])
    assert smooths(columns).shape == (500, outputs)
    np.testing.assert_allclose(smooths(columns), each, rtol=0, atol=1e-12)
