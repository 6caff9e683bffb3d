"""Fitting an order for the scored block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cascade.calibration.artefact import FinalOrder
from cascade.calibration.features import pair_feature_names
from cascade.fit.final_order import fit_final_order
from cascade.fit.training import training_query
from cascade.metrics import Gain
from cascade.replay.queries import replayed
from cascade.replay.table import ScoreTable
from cascade.types import ScoreSpace
from tests.fit.planted import ERRORS, ROLES, planted_table


def _fitted(table: ScoreTable, channels: Sequence[str] = ROLES.first_stage) -> tuple[FinalOrder | None, str]:
    queries = replayed([table], replace(ROLES, first_stage=tuple(channels)), 5, Gain.LINEAR).queries
    training = [training_query(query, ScoreSpace.LOGIT, ScoreSpace.LOGIT) for query in queries]
    return fit_final_order(queries, training, tuple(channels), 5, 0)


def test_an_order_that_adds_what_the_large_stage_does_not_know_is_kept() -> None:
    """A channel as good as the large stage and independent of it: the sum of both is better, beyond its interval."""
    order, told = _fitted(planted_table(errors={**ERRORS, "large": 0.7, "dense": 0.7}))
    assert order is not None
    assert 0.0 < order.low < order.gain < order.high
    assert order.large > 0.0
    assert set(order.features) == set(pair_feature_names(ROLES.first_stage))
    assert order.features["dense.z"] > 0.0
    assert told.endswith("kept in the artefact, off unless the release asks for it")


def test_an_order_that_adds_nothing_is_not_kept(planted: ScoreTable) -> None:
    """Beside a large stage that knows nearly everything, and beside channels that know nothing."""
    order, told = _fitted(planted)
    assert order is None
    assert told.startswith("final order: ")
    assert told.endswith("; not kept")
    assert _fitted(planted_table(errors={**ERRORS, "large": 0.7, "small": 9.0, "dense": 9.0, "bm25": 9.0}))[0] is None


def test_an_order_that_turns_the_large_scores_round_is_not_kept() -> None:
    """It would be better than the large order, but an order of the large stage's block is led by its scores."""
    table = planted_table()
    turned = {**table.scores, "large": -table.scores["large"]}
    order, told = _fitted(replace(table, scores=turned))
    assert order is None
    assert told.endswith("; not kept")


def test_without_enough_judgements_none_is_tried(planted: ScoreTable) -> None:
    """Nor without any; both are told."""
    assert _fitted(replace(planted, rel=None)) == (None, "final order: not tried without judgements")
    assert planted.rel is not None
    rel = np.where(np.arange(len(planted.doc_ids)) < 300, planted.rel, -1)
    order, told = _fitted(replace(planted, rel=rel))
    assert order is None
    assert told == f"final order: not tried on {int((rel > 0).sum())} relevant of 300 judged pairs"


@pytest.mark.parametrize("value", [np.nan, 0.5])
def test_a_channel_that_says_nothing_weighs_nothing(value: float) -> None:
    """Missing throughout or constant."""
    table = planted_table(errors={**ERRORS, "large": 0.7, "dense": 0.7})
    scores = {**table.scores, "bm25": np.full(len(table.doc_ids), value)}
    order, _ = _fitted(replace(table, scores=scores))
    assert order is not None
    assert order.features["bm25.z"] == 0.0
    assert all(np.isfinite(weight) for weight in order.features.values())
