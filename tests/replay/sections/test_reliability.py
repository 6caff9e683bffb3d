"""Whether a calibration's probabilities hold on other queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.calibration.gain import CUTOFFS
from cascade.calibration.reliability import reliability as judge
from cascade.replay.baselines import within_depth
from cascade.replay.sections import reliability
from cascade.replay.serving import ranks_by_score
from tests.replay.made import made_queries
from tests.replay.made_calibration import made_calibration

_CALIBRATION = made_calibration()


def test_rows_are_what_the_calibration_says_against_what_the_large_stage_did() -> None:
    """To the step that probabilities are kept in, each figure is that of the pairs themselves."""
    queries = made_queries()
    told = reliability.told(reliability.columns(queries, _CALIBRATION, 20), ("",) * 40, 20)
    assert (told["queries"], told["left_out"], told["reasons"]) == (40, 0, {})
    assert [(row["query_class"], row["cutoff"], row["prefix"]) for row in told["rows"]] == [
        ("all", cutoff, 20) for cutoff in CUTOFFS
    ]
    p = np.concatenate([_CALIBRATION.entry(*within_depth(query)) for query in queries])
    ranks = np.concatenate([ranks_by_score(query.large) for query in queries])
    for column, row in enumerate(told["rows"]):
        found = judge(p[:, column], ranks < CUTOFFS[column])
        for name in ("brier", "ece", "ece_floor", "predicted"):
            assert row[name] == pytest.approx(getattr(found, name), abs=2e-5)
        assert (row["pairs"], row["observed"]) == (800, pytest.approx(CUTOFFS[column] / 20))
        assert sum(count for count, _, _ in row["bins"]) == 800
        assert len(row["bins"]) == 15


def test_classes_have_rows_of_their_own_without_bins() -> None:
    """Together they are all pairs."""
    told = reliability.told(reliability.columns(made_queries(), _CALIBRATION, 20), ("a",) * 30 + ("b",) * 10, 20)
    pairs = {(row["query_class"], row["cutoff"]): row["pairs"] for row in told["rows"]}
    assert (pairs["all", 5], pairs["a", 5], pairs["b", 5]) == (800, 600, 200)
    assert all(bool(row["bins"]) == (row["query_class"] == "all") for row in told["rows"])


def test_what_a_stage_did_not_score_is_no_pair() -> None:
    """Candidates without a large score, or beyond a shorter list, count nowhere."""
    (first, second) = made_queries(2)
    large = first.large.copy()
    large[:3] = np.nan
    queries = (replace(first, large=large), replace(second, small=second.small[:15], large=second.large[:15], pairs=15))
    columns = reliability.columns(queries, _CALIBRATION, 20)
    assert {row["pairs"] for row in reliability.told(columns, ("", ""), 20)["rows"]} == {32}


def test_queries_for_which_the_calibration_does_not_hold_are_counted() -> None:
    """Where it holds for none there are no rows, and a reason."""
    queries = made_queries(3)
    short = replace(queries[0], small=queries[0].small[:1], large=queries[0].large[:1], pairs=1)
    told = reliability.told(reliability.columns((*queries, short), _CALIBRATION, 20), ("",) * 4, 20)
    assert (told["queries"], told["left_out"]) == (3, 1)
    nowhere = reliability.told(reliability.columns((short,), _CALIBRATION, 20), ("",), 20)
    assert (nowhere["rows"], nowhere["left_out"]) == ([], 1)
    assert nowhere["reasons"] == {"rows": "the calibration holds for the candidates of no query"}


def test_without_a_calibration_there_is_nothing_to_judge() -> None:
    """And the report says why."""
    assert reliability.told(reliability.columns(made_queries(2), None, 20), ("", ""), 20) == {
        "rows": [],
        "reasons": {"rows": "no calibration was given"},
    }
