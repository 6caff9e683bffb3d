"""Load levels, replayed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from cascade.metrics import Gain
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import EscalationSpec
from cascade.policy.release import Limits
from cascade.replay import baselines
from cascade.replay.intervals import resampled
from cascade.replay.policy import Policy, play
from cascade.replay.queries import Roles, replayed
from cascade.replay.question import Question
from cascade.replay.sections.levels import columns, told, work_of
from cascade.replay.sweep import Metric
from cascade.replay.table import read_table
from evals.first_stage import shared_data
from tests.replay.made import ROLES, made_table
from tests.replay.made_calibration import made_calibration

_CALIBRATION = made_calibration(second=True)
_QUESTION = Question(ROLES, k=5, resamples=1000)


def _policy(escalation: Any, depth: int) -> Policy:
    rule = TypeAdapter(EscalationSpec).validate_python(escalation)
    return Policy(rule, FixedDepth(depth=depth), Limits(), _CALIBRATION)


_RULE = {"kind": "calibrated", "calibration": _CALIBRATION.sha256, "k": 5, "price_per_pair": 0.02, "chunk": 4}
_LEVELS: dict[str, Policy | None] = {
    "normal": _policy(_RULE, 20),
    "degraded-1": _policy("none", 20),
    "degraded-2": _policy("none", 8),
    "degraded-3": None,
}
_TABLE = made_table(attributes={
    "ms_small": tuple(0.5 for _ in range(800)),
    "ms_large": tuple(4.0 + row % 20 for row in range(800)),
})  # fmt: skip
_QUERIES = replayed([_TABLE], ROLES, 5, Gain.LINEAR).queries
_FOUND = columns(_QUERIES, _LEVELS, _QUESTION)


def test_each_level_has_the_quality_that_its_replay_has() -> None:
    """The first is the policy, without escalation it is the small order, and without stages the first stage's."""
    played = play(_QUERIES, _LEVELS["normal"], 5, Metric.NDCG)  # type: ignore[arg-type]
    assert _FOUND["levels.normal.ndcg"].tolist() == played.sweep.quality[played.own].tolist()
    small, first = (make(_QUERIES, 5, Metric.NDCG) for make in (baselines.small, baselines.first_stage))
    assert _FOUND["levels.degraded-1.ndcg"].tolist() == small.quality[0].tolist()
    assert _FOUND["levels.degraded-3.ndcg"].tolist() == first.quality[0].tolist()
    assert _FOUND["levels.degraded-3.mrr"].tolist() == first.metrics[Metric.MRR][0].tolist()


def test_each_level_has_the_work_that_it_gives_the_stages() -> None:
    """Pairs, rounds, and the milliseconds that the table measured of just those pairs."""
    played = play(_QUERIES, _LEVELS["normal"], 5, Metric.NDCG, prices=())  # type: ignore[arg-type]
    work = work_of(_FOUND, "normal")
    assert set(work.pairs["small"].tolist()) == {20}
    assert work.pairs["large"].tolist() == [int(step.sent.sum()) for step in played.steps]
    assert work.calls["large"].tolist() == [step.rounds for step in played.steps]
    assert work.measured_ms["small"].tolist() == [10.0] * 40
    spent = [float(query.ms["large"][step.sent].sum()) for query, step in zip(_QUERIES, played.steps, strict=True)]
    assert work.measured_ms["large"].tolist() == spent
    shallow, nothing = work_of(_FOUND, "degraded-2"), work_of(_FOUND, "degraded-3")
    assert (set(shallow.pairs["small"].tolist()), shallow.pairs["large"].sum()) == ({8}, 0)
    assert nothing.pairs["small"].sum() + nothing.calls["small"].sum() + nothing.calls["large"].sum() == 0


def test_a_query_that_goes_past_the_small_stage_gives_it_no_work() -> None:
    """Where the direct rule holds for all, the small stage is never asked."""
    always = {"when": [{"signal": "bm25.gap", "at_least": -1e9}], "top_m": 6}
    found = columns(_QUERIES, {"a": _policy({**_RULE, "direct": always}, 20)}, _QUESTION)
    assert found["levels.a.small_pairs"].sum() == found["levels.a.small_calls"].sum() == 0
    assert set(found["levels.a.large_pairs"].tolist()) == {6}
    assert found["levels.a.small_ms"].sum() == 0


def test_what_was_replayed_already_is_not_replayed_again() -> None:
    """The first level takes what the policy's replay found, whatever prices it was tried at."""
    played = play(_QUERIES, _LEVELS["normal"], 5, Metric.NDCG)  # type: ignore[arg-type]
    again = columns(_QUERIES, _LEVELS, _QUESTION, played)
    assert again.keys() == _FOUND.keys()
    for name, values in _FOUND.items():
        assert again[name].tolist() == values.tolist()


def test_any_split_of_the_queries_gives_the_same_columns() -> None:
    """A query's numbers do not depend on the others."""
    parts = [columns(_QUERIES[start:end], _LEVELS, _QUESTION) for start, end in ((0, 7), (7, 40))]
    for name, values in _FOUND.items():
        assert np.concatenate([part[name] for part in parts]).tolist() == values.tolist()


def test_the_rows_tell_means_differences_and_shares() -> None:
    """Best first, with intervals, and a reason where a figure cannot be."""
    large = baselines.large(_QUERIES, 5, Metric.NDCG)
    rows = told(_FOUND, [*_LEVELS], large, resampled(40, 1000, 0))
    assert [row["name"] for row in rows] == [*_LEVELS]
    normal, second, _, last = rows
    assert normal["ndcg"] == pytest.approx(_FOUND["levels.normal.ndcg"].mean())
    assert normal["minus_normal"] is None
    assert normal["reasons"]["minus_normal"] == "it is the release as it stands"
    assert second["minus_normal"] == pytest.approx(second["ndcg"] - normal["ndcg"])
    assert last["minus_always_large"] == pytest.approx(last["ndcg"] - large.quality[0].mean())
    assert normal["large_share"] == pytest.approx(_FOUND["levels.normal.large_pairs"].sum() / 800)
    assert [row["small_pairs"] for row in rows] == [20, 20, 8, 0]
    assert (second["large_share"], last["large_pairs"]) == (0, 0)
    low, high = last["intervals"]["minus_always_large"]
    assert low <= last["minus_always_large"] <= high < 0


def test_without_judgements_there_is_no_mrr() -> None:
    """Silver quality is all there is, and the row says why."""
    queries = replayed([replace(_TABLE, rel=None)], ROLES, 5, Gain.LINEAR).queries
    found = columns(queries, _LEVELS, _QUESTION)
    rows = told(found, [*_LEVELS], baselines.large(queries, 5, Metric.NDCG), resampled(40, 1000, 0))
    assert rows[0]["mrr"] is None
    assert rows[0]["reasons"]["mrr"] == "the table has no judgements"
    assert rows[0]["ndcg"] > rows[3]["ndcg"]


def test_a_table_without_milliseconds_leaves_them_untold() -> None:
    """Nothing is made up."""
    queries = replayed([made_table()], ROLES, 5, Gain.LINEAR).queries
    found = columns(queries, {"normal": _LEVELS["normal"]}, _QUESTION)
    assert np.isnan(found["levels.normal.large_ms"]).all()
    assert np.isnan(found["levels.normal.small_ms"]).all()


@pytest.mark.data
def test_real_levels_fall_in_quality_and_in_pairs() -> None:
    """On published scores: top 20, then the small order, of 100 and of 20, then the first stage."""
    data = shared_data()
    if data is None:
        pytest.skip("the shared data is not here")
    table = read_table(data / "jqara.parquet").where("source", "QA20QBIK")
    roles = Roles(("bm25", "me5_small"), "ce_ja_xsmall", "ce_bge_v2_m3")
    queries = replayed([table], roles, 10, Gain.LINEAR).queries
    levels: dict[str, Policy | None] = {
        "normal": _policy({"kind": "static", "top_m": 20}, 100),
        "degraded-1": _policy("none", 100),
        "degraded-2": _policy("none", 20),
        "degraded-3": None,
    }
    found = columns(queries, levels, Question(roles, resamples=1000))
    rows = told(found, [*levels], baselines.large(queries, 10, Metric.NDCG), resampled(len(queries), 1000, 0))
    quality = [row["ndcg"] for row in rows]
    assert quality == sorted(quality, reverse=True)
    assert [row["large_share"] for row in rows] == pytest.approx([0.2, 0, 0, 0], abs=1e-9)
    assert all(row["intervals"]["minus_normal"][1] < 0 for row in rows[1:])
