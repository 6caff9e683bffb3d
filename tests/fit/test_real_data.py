"""Calibrations of real rerankers, where the shared collections are there. Signs are asserted, not figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cascade.calibration.artefact import artefact_bytes, artefact_digest
from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.fit.benefit import shown_benefit
from cascade.fit.calibrate import Asked, calibrate
from cascade.metrics import Gain
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import CalibratedEscalation
from cascade.policy.release import Limits
from cascade.replay.evaluate import Question, evaluate
from cascade.replay.policy import Policy
from cascade.replay.queries import Roles, replayed
from cascade.replay.table import ScoreTable, read_table
from evals.first_stage import shared_data

pytestmark = [pytest.mark.data, pytest.mark.long]


def _table(name: str) -> ScoreTable:
    path: Path = shared_data() / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"{name}.parquet is not in the shared data")
    return read_table(path)


def _policy(calibration: Calibration, depth: int) -> Policy:
    rule = CalibratedEscalation.model_validate(
        {"kind": "calibrated", "calibration": calibration.sha256, "k": 10, "price_per_pair": 0.002}
    )
    return Policy(rule, FixedDepth(depth=depth), Limits(max_candidates=depth), calibration)


def _areas(train: Sequence[ScoreTable], test: ScoreTable, asked: Asked) -> tuple[float, float]:
    """Return the areas of the policy and of static on queries that were not fitted on."""
    artefact = calibrate(train, asked)
    calibration = Calibration(artefact, artefact_digest(artefact_bytes(artefact)))
    question = Question(asked.roles, resamples=1000)
    areas = evaluate({"t": test}, question, calibration, _policy(calibration, 100)).measured.area_10_50
    policy, static = areas["policy"].value, areas["static"].value
    assert policy is not None
    assert static is not None
    return policy, static


def test_a_policy_fitted_on_one_quiz_source_beats_static_on_another() -> None:
    """JQaRA, fitted on the first 120 queries of one source; a large reranker that is shown to help."""
    table = _table("jqara")
    train = table.where("source", "QA20CAPR").take(range(120))
    roles = Roles(("bm25", "me5_small", "bge_m3_dense"), "ce_ja_xsmall", "ce_ja_large")
    policy, static = _areas([train], table.where("source", "QA20QBIK"), Asked(roles))
    assert policy >= static


@pytest.mark.parametrize("large", ["rankgpt35_rank_1", "rankvicuna7b_rank_1"])
def test_larger_rerankers_that_harm_show_no_benefit(large: str) -> None:
    """TREC DL 2019 and 2020: judgements do not show that a language model beats the cross-encoder of 33M parameters.

    With 97 queries the artefact is made all the same, to say so.
    """
    tables = [_table("trec-dl-19"), _table("trec-dl-20")]
    roles = Roles(("bm25",), "minilm_l12", large)
    found = shown_benefit(replayed(tables, roles, 10, Gain.LINEAR).queries, 10, 0)
    assert (found.status, found.queries) == ("none-found", 97)
    artefact = calibrate(tables, Asked(roles))
    assert artefact.benefit.status == "none-found"
    assert artefact.benefit.mean == pytest.approx(found.mean)
    assert artefact.notes[0].startswith("ONLY 97 QUERIES")
    assert artefact.large.space == "logit"


def test_an_english_pair_with_a_gap_is_fitted_on_few_queries() -> None:
    """bge_small to minilm_l12 with SPLADE as a channel: shown to help, so 97 queries need --allow-few."""
    tables = [_table("trec-dl-19"), _table("trec-dl-20")]
    roles = Roles(("bm25", "splade_pp_ed"), "bge_small", "minilm_l12")
    with pytest.raises(ConfigError, match="97 queries have scores of both stages"):
        calibrate(tables, Asked(roles))
    artefact = calibrate(tables, Asked(roles, allow_few=True))
    assert artefact.benefit.status == "shown"
    assert [point.target for point in artefact.prices][-1] >= 0.95
    policy, static = _areas(tables[:1], tables[1], Asked(roles, allow_few=True))
    assert np.isfinite([policy, static]).all()
    assert policy >= static
