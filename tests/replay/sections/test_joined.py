"""The sections of a report together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from cascade.replay.evaluate import evaluate
from cascade.replay.queries import Roles
from cascade.replay.question import Question
from cascade.replay.report import report
from cascade.replay.sweep import Metric
from cascade.replay.table import ScoreTable, read_table
from evals.first_stage import shared_data
from tests.replay.made import made_table
from tests.replay.made_calibration import made_calibration
from tests.replay.sections.asked import asked, policy

_PARTS = ("missed_escalation", "wasted_escalation", "wrong_depth", "wrong_cluster", "false_exclusion", "other")


def _report(table: ScoreTable, question: Question, escalation: object = None, depth: int = 20) -> dict[str, Any]:
    """Return the report as it is read back from a file, with a policy where an escalation is given."""
    calibration = None if escalation is None else made_calibration()
    chosen = None if escalation is None else policy(escalation, depth, calibration)
    read: dict[str, Any] = orjson.loads(orjson.dumps(report(evaluate({"t": table}, question, calibration, chosen))))
    return read


def _rule(**fields: object) -> dict[str, object]:
    return {"kind": "calibrated", "calibration": made_calibration().sha256, "k": 5, "price_per_pair": 0.02, **fields}


def _policies(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in told["policies"]}


@pytest.mark.parametrize(("escalation", "of"), [(None, "static"), (_rule(), "policy")])
def test_the_regret_that_is_divided_is_the_reference_policy_s(escalation: object, of: str) -> None:
    """Its parts sum to it, overall, in every slice, and in the table of queries."""
    told = _report(made_table(), asked(price=0.002), escalation, 10)
    found = told["regret"]
    assert found["of"] == of
    assert found["total"] == _policies(told)[of]["regret"]
    assert sum(found[part] for part in _PARTS) == pytest.approx(found["total"], abs=1e-8)
    assert {name: part["queries"] for name, part in found["by"]["source"].items()} == {"a": 20, "b": 20}
    for part in found["by"]["source"].values():
        assert sum(part[cause] for cause in _PARTS) == pytest.approx(part["total"], abs=1e-8)
    assert sum(row["regret"] for row in told["per_query"]) / 40 == pytest.approx(found["total"], abs=1e-8)
    assert {row["cause"] for row in told["per_query"]} <= {*_PARTS, None}
    assert (found["false_exclusion"] > 0.0) == (of == "policy")


def test_every_section_is_there_and_speaks_of_the_same_policies() -> None:
    """Recall of the small head at k, quality at full depth and support within k are the figures of the policies."""
    told = _report(made_table(), asked(support_tokens=60), _rule())
    policies = _policies(told)
    assert dict(map(tuple, told["ceiling"]["recall_at"]))[5] == pytest.approx(policies["small"]["recall"])
    assert told["depth_sweep"][-1]["policy"] == policies["policy"]["ndcg"]
    assert told["depth_sweep"][-1]["large"] == policies["large"]["ndcg"]
    for name in ("first-stage", "small", "large", "static", "policy"):
        assert told["support"]["policies"][name]["within_k"] == pytest.approx(policies[name]["hit"])
    assert told["oracle"]["policies"].keys() == {"first-stage", "small", "large", "static", "policy"}
    assert told["oracle"]["queries"] + told["oracle"]["left_out"] == 40
    assert [row["cutoff"] for row in told["reliability"]["rows"]] == [1, 3, 5, 10]


def test_without_a_policy_sections_that_need_one_say_so() -> None:
    """The reference is static; support is there only where it was asked for."""
    told = _report(made_table(), asked())
    assert told["depth_sweep"][0]["reasons"]["policy"] == "no policy was replayed"
    assert told["reliability"]["reasons"] == {"rows": "no calibration was given"}
    assert told["oracle"]["policies"].keys() == {"first-stage", "small", "large", "static"}
    assert "support" not in told
    assert {row["action"] for row in told["per_query"]} == {"static"}


def test_without_judgements_what_needs_them_is_undefined() -> None:
    """Regret is of silver quality, as everything then is."""
    told = _report(made_table(rel=None), asked(price=0.002), _rule())
    assert told["ceiling"]["candidates"] is None
    assert told["oracle"]["inflation"] is None
    assert told["depth_sweep"][0]["candidate_recall"] is None
    assert told["regret"]["total"] == _policies(told)["policy"]["regret"]


@pytest.mark.parametrize("metric", [Metric.MRR, Metric.HIT])
def test_sections_are_of_the_metric_asked_for(metric: Metric) -> None:
    """Depth sweep and regret go by the metric that curves are of."""
    told = _report(made_table(), asked(metric=metric), _rule())
    policies = _policies(told)
    assert told["depth_sweep"][-1]["small"] == policies["small"][metric.value]
    assert told["per_query"][0].keys() >= {"small", "large", "policy"}
    mean = sum(row["policy"] for row in told["per_query"]) / 40
    assert mean == pytest.approx(policies["policy"][metric.value], abs=1e-8)


def test_lists_of_different_lengths_and_a_depth_are_replayed() -> None:
    """A query with four candidates beside one with twenty, ten of them within depth."""
    table = made_table(12)
    short = made_table(1, 4, seed=2)
    question = replace(asked(), roles=Roles(("bm25", "dense"), "small", "large", 10))
    told = report(evaluate({"t": table, "s": short}, question))
    assert [row["depth"] for row in told["depth_sweep"]] == [10]
    assert [head for head, _ in told["ceiling"]["recall_at"]] == [1, 3, 5, 10]
    assert {row["table"] for row in told["per_query"]} == {"t", "s"}


@pytest.mark.data
def test_on_real_scores_most_of_the_oracle_is_inflation() -> None:
    """On 740 queries of JQaRA what an oracle over few actions gains is lost on the other half of the judgements."""
    path = shared_data() / "jqara.parquet"
    if not path.is_file():
        pytest.skip("jqara is not here (set CASCADE_DATA to the folder of real collections)")
    table = read_table(path).where("source", "QA20QBIK")
    roles = Roles(("bm25", "me5_small", "bge_m3_dense"), "ce_ja_xsmall", "ce_bge_v2_m3")
    told = report(evaluate({"jqara": table}, Question(roles, resamples=1000)))
    found = told["oracle"]
    assert (found["queries"], found["left_out"]) == (649, 91)
    assert found["intervals"]["in_sample"]["over_constant"][0] > 0.05
    assert found["intervals"]["crossfit"]["over_constant"][1] < 0.0
    assert max(_PARTS, key=lambda part: abs(told["regret"][part])) == "wrong_cluster"
