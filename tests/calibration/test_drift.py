"""The last answers held against the queries that a calibration was fitted on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from cascade.calibration.artefact import Reference, ReferenceBins, artefact_digest, parse_artefact
from cascade.calibration.calibrated import Calibration
from cascade.calibration.drift import LEAST_ANSWERS, MOST_ANSWERS, CalibrationDrift
from cascade.decision import Estimates
from cascade.statistics.drift import bin_edges, bin_shares, stability_index
from cascade.testing.calibration import scripted_artefact
from cascade.types import ScoreSpace
from tests.telemetry.decisions import decision

_FITTED = np.random.default_rng(3).normal(size=500)


def _bins(values: np.ndarray[tuple[int], np.dtype[np.float64]] = _FITTED) -> ReferenceBins:
    edges = bin_edges(values)
    return ReferenceBins(edges=tuple(edges.tolist()), shares=tuple(bin_shares(edges, values).tolist()))


def _reference(candidates: int = 3) -> Reference:
    return Reference(candidates=candidates, score=_bins(), margin=_bins())


def _watched(scores: list[float]) -> CalibrationDrift:
    drift = CalibrationDrift(_reference(), k=5)
    for score in scores:
        drift.add(replace(decision(estimates=None), best_small=score))
    return drift


def test_the_index_is_that_of_the_answers_against_the_training_queries() -> None:
    """The same number as of both samples at once."""
    live = np.random.default_rng(4).normal(0.5, 1.0, 400).tolist()
    psi, answers = _watched(live).told()["score"]
    assert psi == pytest.approx(stability_index(_FITTED, live))
    assert answers == 400


def test_traffic_like_the_training_queries_is_below_what_is_acted_upon_and_moved_traffic_is_above() -> None:
    """0.25 by custom: noise of a thousand answers stays far below it, a shift by a spread far above."""
    rng = np.random.default_rng(5)
    assert _watched(rng.normal(size=1000).tolist()).told()["score"][0] < 0.1
    assert _watched(rng.normal(1.0, 1.0, 1000).tolist()).told()["score"][0] > 0.5


def test_the_window_holds_the_last_thousand() -> None:
    """What was before them counts no more."""
    rng = np.random.default_rng(6)
    last = rng.normal(size=MOST_ANSWERS).tolist()
    psi, answers = _watched([99.0] * 700 + last).told()["score"]
    assert psi == pytest.approx(stability_index(_FITTED, last))
    assert answers == MOST_ANSWERS


def test_few_answers_have_no_index() -> None:
    """One fewer than 200 is too few, 200 are enough."""
    values = [0.0] * LEAST_ANSWERS
    few, count = _watched(values[1:]).told()["score"]
    assert math.isnan(few)
    assert count == LEAST_ANSWERS - 1
    assert _watched(values).told()["score"][0] > 1.0


def test_margins_count_at_the_calibrations_k_alone() -> None:
    """A margin of another length is another thing; an answer without an estimate has none."""
    drift = CalibrationDrift(_reference(), k=5)
    at_k = Estimates(k=5, p_first=0.9, margin=0.25, entropy=1.5, expected_loss=0.1)
    for estimates in (at_k, replace(at_k, k=10), None):
        drift.add(decision(estimates=estimates))
    assert [answers for _, answers in drift.told().values()] == [0, 1]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({0: 1.0, 1: 4.0, 2: 2.0, 3: 9.0}, 4.0),
        ({0: 1.0, 1: 4.0}, None),
        ({0: 1.0, 2: 2.0, 3: 9.0}, None),
        ({}, None),
    ],
    ids=["of the first three", "too few", "one is missing", "none"],
)
def test_the_best_small_score_is_of_as_many_candidates_as_the_reference_has(
    scores: dict[int, float], best: float | None
) -> None:
    """The best of more would be better, and the best of fewer worse."""
    calibration = Calibration(scripted_artefact(reference=_reference()), "sha256:0")
    assert calibration.best_small(scores) == best
    assert Calibration(scripted_artefact(), "sha256:0").best_small(scores) is None


def test_probabilities_are_compared_as_logits() -> None:
    """As they were when it was fitted."""
    artefact = scripted_artefact(reference=_reference(1), small_space=ScoreSpace.PROBABILITY)
    assert Calibration(artefact, "sha256:0").best_small({0: 0.75}) == pytest.approx(math.log(3))


def test_a_reference_goes_with_the_file_and_one_without_is_read() -> None:
    """What was fitted before there was one is a calibration all the same, and its bytes and digest stay."""
    artefact = scripted_artefact(reference=_reference())
    data = artefact.model_dump_json().encode()
    assert parse_artefact(data, "a.json").reference == _reference()
    before = scripted_artefact().model_dump_json(exclude={"reference"}).encode()
    assert parse_artefact(before, "a.json").reference is None
    assert artefact_digest(before) != artefact_digest(data)


@pytest.mark.parametrize(
    "bins",
    [{"edges": (1.0,), "shares": (1.0,)}, {"edges": (2.0, 1.0), "shares": (0.3, 0.3, 0.4)}, {"edges": (), "shares": (0.0,)}],
    ids=["as many", "falling", "nothing in it"],
)  # fmt: skip
def test_bins_that_do_not_fit_together_are_refused(bins: dict[str, tuple[float, ...]]) -> None:
    """A share of 0 would make the index infinite."""
    with pytest.raises(ValidationError):
        ReferenceBins.model_validate(bins)
