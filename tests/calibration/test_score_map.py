"""Maps from a raw score to a probability."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from cascade.calibration.score_map import Isotonic, Platt


def test_platt_is_a_sigmoid_of_a_line() -> None:
    """Half where slope x score + intercept is zero; also far out it is a number and rises."""
    platt = Platt(2.0, -1.0)
    assert platt(0.5) == 0.5
    assert platt(1.5) == pytest.approx(1.0 / (1.0 + math.exp(-2.0)))
    far = [platt(score) for score in (-1e308, -1e3, 0.0, 1e3, 1e308)]
    assert all(low <= high for low, high in pairwise(far))
    assert all(0.0 <= p <= 1.0 for p in far)


def test_isotonic_is_linear_between_its_points() -> None:
    """And constant outside them; one point is a constant."""
    isotonic = Isotonic(np.array([0.0, 1.0, 3.0]), np.array([0.1, 0.5, 0.6]))
    assert [isotonic(score) for score in (-9.0, 0.0, 0.5, 2.0, 9.0)] == pytest.approx([0.1, 0.1, 0.3, 0.55, 0.6])
    assert Isotonic(np.array([2.0]), np.array([0.3]))(7.0) == 0.3
