"""Entry probabilities as serving evaluates them, against scikit-learn's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from cascade.calibration.build import entry_of
from cascade.calibration.calibrated import Estimate, estimate_from
from cascade.calibration.features import Described, pair_feature_names
from cascade.fit.entry import FittedEntry, fit_entry
from cascade.fit.training import Examples, examples, training_query
from cascade.metrics import Gain
from cascade.replay.queries import replayed
from cascade.types import ScoreSpace
from tests.fit.planted import ROLES, planted_table

FloatArray = npt.NDArray[np.float64]

_CHANNELS = ("bm25", "dense")


def _data(candidates: int = 24, queries: int = 60) -> Examples:
    """Return the examples of a planted table in which the channel dense is missing here and there."""
    table = planted_table(queries, candidates)
    gaps = np.where(np.arange(len(table.doc_ids)) % 5 == 0, np.nan, table.scores["dense"])
    found = replayed([replace(table, scores={**table.scores, "dense": gaps})], ROLES, 5, Gain.LINEAR)
    return examples([training_query(query, ScoreSpace.LOGIT, ScoreSpace.LOGIT) for query in found.queries])


def _estimates(fitted: FittedEntry, data: Examples) -> list[Estimate]:
    """Evaluate every row as serving does, a query of its own."""
    model = entry_of(fitted.to_model(), fitted.channels)
    effects = np.zeros((1, len(fitted.channels) + 2))
    return [
        estimate_from(model, Described(data.pair[[row]], data.query[row], data.missing[[row]], effects))
        for row in range(len(data.pair))
    ]


def _assert_equal(fitted: FittedEntry, data: Examples) -> None:
    found = _estimates(fitted, data)
    assert np.abs(np.concatenate([one.p for one in found]) - fitted.probabilities(data)).max() < 1e-9
    mu = fitted.expected_large.predict(fitted.design(data))
    assert np.abs(np.concatenate([one.mu for one in found]) - mu).max() < 1e-9


@pytest.fixture(scope="module")
def data() -> Examples:
    """Give examples."""
    return _data()


@pytest.fixture(scope="module")
def fitted(data: Examples) -> FittedEntry:
    """Give the models fitted on them."""
    return fit_entry(data, _CHANNELS, data.large / data.large.std())


def test_serving_equals_scikit_learn_on_what_was_fitted(fitted: FittedEntry, data: Examples) -> None:
    """All four probabilities to 1e-9, and the expected large score too."""
    _assert_equal(fitted, data)


def test_serving_equals_scikit_learn_beyond_the_knots(fitted: FittedEntry, data: Examples) -> None:
    """Values below the first knot or above the last one count as it, in both."""
    rows = np.arange(0, len(data.pair), 7)
    part = Examples(data.pair[rows], data.query[rows], data.missing[rows], data.large[rows], data.in_top[rows])
    for stretched in (
        replace(part, pair=part.pair * 50.0, query=part.query * 50.0),
        replace(part, pair=part.pair - 1e6),
        replace(part, pair=part.pair + 1e6, query=part.query + 1e6),
    ):
        _assert_equal(fitted, stretched)


def test_serving_equals_scikit_learn_at_the_knots(fitted: FittedEntry, data: Examples) -> None:
    """On a knot, where two pieces meet, and a last bit to either side of it."""
    rows = []
    for spline in fitted.pair:
        for knot in spline.knots:
            for value in (knot, np.nextafter(knot, np.inf), np.nextafter(knot, -np.inf)):
                row = data.pair[0].copy()
                row[spline.column] = value
                rows.append(row)
    count = len(rows)
    at_knots = Examples(
        np.stack(rows),
        np.repeat(data.query[:1], count, axis=0),
        np.repeat(data.missing[:1], count, axis=0),
        np.zeros(count),
        np.zeros((count, 4), dtype=np.bool_),
    )
    _assert_equal(fitted, at_knots)


@pytest.mark.parametrize("values", [(0.0,), (0.0, 1.0), (0.0, 1e-5, 2.0), (0.0, 1e-12, 1.0), (-8.0, 0.0, 12.0)])
def test_serving_equals_scikit_learn_where_a_feature_has_few_values(data: Examples, values: tuple[float, ...]) -> None:
    """One value is no feature, two are a line's ends, and some that rounding cannot tell apart are one."""
    pair = data.pair.copy()
    pair[:, 0] = np.array(values)[np.arange(len(pair)) % len(values)]
    few = replace(data, pair=pair)
    fitted = fit_entry(few, _CHANNELS, few.large)
    _assert_equal(fitted, few)
    name = pair_feature_names(_CHANNELS)[0]
    assert (name in fitted.to_model().pair.features) == (len(values) > 1)


def test_a_cutoff_that_is_always_or_never_true_is_a_constant() -> None:
    """Of lists of three, all are in the top three; where nothing ever is first nothing will be."""
    data = _data(3, 30)
    fitted = fit_entry(data, _CHANNELS, data.large)
    _assert_equal(fitted, data)
    assert fitted.probabilities(data)[:, 1:] == pytest.approx(1.0)
    never = replace(data, in_top=data.in_top & np.array([False, True, True, True]))
    assert fit_entry(never, _CHANNELS, data.large).probabilities(never)[:, 0] == pytest.approx(0.0)


def test_p_rises_with_what_is_informative(fitted: FittedEntry, data: Examples) -> None:
    """The candidates that the models find likelier are in the top more often."""
    p = fitted.probabilities(data)
    likely = p[:, 2] > np.quantile(p[:, 2], 0.8)
    assert data.in_top[likely, 2].mean() > 0.4
    assert data.in_top[~likely, 2].mean() < 0.2
