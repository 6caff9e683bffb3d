"""What live traffic is held against: how the training queries lie."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.calibration.artefact import CalibrationArtefact
from cascade.fit.reference import fit_reference
from cascade.fit.training import TrainingQuery


def _query(*small: float) -> TrainingQuery:
    scores = np.array(small)
    return TrainingQuery(scores, {}, scores)


def test_bins_have_the_shares_of_the_training_queries() -> None:
    """Ten queries whose best of two scores is 0 to 9: half of them below the middle edge."""
    reference = fit_reference([_query(float(n), -1.0) for n in range(10)], np.linspace(0, 1, 10))
    assert reference is not None
    assert reference.candidates == 2
    below = sum(
        share for edge, share in zip(reference.score.edges, reference.score.shares, strict=False) if edge <= 4.5
    )
    assert below == pytest.approx(0.5)
    assert sum(reference.margin.shares) == pytest.approx(1.0)


def test_the_best_is_of_twenty_candidates_and_of_queries_that_have_them_all() -> None:
    """A better one behind them does not count; a query with fewer, or with one that was not scored, is left out."""
    long = [_query(*([0.0] * 20), 50.0)] * 10
    reference = fit_reference([*long, _query(7.0), _query(*([0.0] * 19), np.nan)], np.zeros(12))
    assert reference is not None
    assert reference.candidates == 20
    assert max(reference.score.edges) == 0.0


def test_one_long_query_among_short_ones_is_no_reference() -> None:
    """The best of as many as most have: else all traffic would be held against that one."""
    short = [_query(float(n), -1.0) for n in range(19)]
    reference = fit_reference([*short, _query(*([50.0] * 20))], np.zeros(20))
    assert reference is not None
    assert reference.candidates == 2
    assert len(reference.score.shares) == 10


def test_where_most_queries_have_candidates_without_a_score_there_is_none() -> None:
    """Then nothing is shown."""
    assert fit_reference([_query(np.nan, 1.0)], np.zeros(1)) is None
    assert fit_reference([*[_query(np.nan, 1.0)] * 3, _query(2.0, 1.0), _query(1.0, 1.0)], np.zeros(5)) is None


def test_a_fitted_calibration_has_one(fitted: CalibrationArtefact) -> None:
    """Of its 110 queries, ten bins each."""
    assert fitted.reference is not None
    assert fitted.reference.candidates == 20
    assert len(fitted.reference.score.shares) == len(fitted.reference.margin.shares) == 10
