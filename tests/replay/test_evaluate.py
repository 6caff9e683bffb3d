"""An evaluation from tables to a report."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import orjson
import pytest
from pydantic import TypeAdapter

from cascade.errors import ConfigError
from cascade.metrics import Gain
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import Escalation, EscalationSpec
from cascade.policy.release import Limits
from cascade.replay.evaluate import Question, evaluate
from cascade.replay.measure import measure
from cascade.replay.partition import Part, Replaying, replay_part, side_by_side
from cascade.replay.policy import Policy
from cascade.replay.queries import Roles, query_digest, replayed_part
from cascade.replay.report import Evaluation, large_helps, report
from cascade.replay.sweep import Metric
from cascade.replay.table import ScoreTable, read_table
from evals.first_stage import shared_data
from tests.replay.made import ROLES, made_table
from tests.replay.made_calibration import made_calibration

_QUESTION = Question(ROLES, k=5, price=0.002, resamples=1000)
_BASELINES = ["first-stage", "small", "large", "static", "random", "oracle"]


def _report(table: ScoreTable, question: Question = _QUESTION) -> dict[str, Any]:
    """Return the report on one table, as it is read back from a file."""
    read: dict[str, Any] = orjson.loads(orjson.dumps(report(evaluate({"t": table}, question))))
    return read


@cache
def _usual() -> dict[str, Any]:
    """Return the report on the made table, which tests only read."""
    return _report(made_table())


def _policies(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {policy["name"]: policy for policy in told["policies"]}


def test_every_baseline_is_reported_with_intervals() -> None:
    """Each figure of each policy has its interval around it."""
    told = _usual()
    assert [policy["name"] for policy in told["policies"]] == _BASELINES
    for policy in told["policies"]:
        for name in ("ndcg", "mrr", "recall", "hit", "large_pairs", "large_tokens", "large_share", "regret"):
            low, high = policy["intervals"][name]
            assert low - 1e-9 <= policy[name] <= high + 1e-9
    assert (told["report"], told["version"], told["queries"], told["large_helps"]) == ("cascade eval", 2, 40, "shown")


def test_random_is_the_straight_line() -> None:
    """Each level costs itself, exactly and in every resample; the area is the middle of the line."""
    told = _usual()
    assert told["cost_at_recovered"]["random"] == pytest.approx({"0.80": 0.8, "0.90": 0.9, "0.95": 0.95, "0.98": 0.98})
    assert told["intervals"]["cost_at_recovered"]["random"]["0.95"] == pytest.approx([0.95, 0.95])
    assert told["area_10_50"]["random"] == pytest.approx(0.3)
    assert told["curves"]["random"] == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]


def test_static_beats_random_and_the_oracle_beats_static() -> None:
    """On a table whose small order says something, the baselines stand in their order."""
    area = _report(made_table(80))["area_10_50"]
    assert area["random"] < area["static"] < area["oracle"]


def test_others_are_reported_at_the_cost_of_the_reference() -> None:
    """What random and the oracle send is what static sends at its setting."""
    policies = _policies(_usual())
    assert policies["static"]["chosen"].startswith("greatest mean utility at the price")
    assert policies["random"]["large_pairs"] == pytest.approx(policies["static"]["large_pairs"])
    assert policies["random"]["chosen"] == "as many pairs as static"


def test_regret_of_the_best_constant_is_least_among_constants() -> None:
    """Static at its best utility regrets no more than small or large."""
    policies = _policies(_usual())
    assert 0.0 < policies["static"]["regret"] <= min(policies["small"]["regret"], policies["large"]["regret"])


def test_the_first_stage_is_never_called_reranked() -> None:
    """It engages no reranker; the others engage one on every query."""
    told = _usual()
    policies = _policies(told)
    assert (policies["first-stage"]["engaged"], policies["first-stage"]["reranked"]) == (0.0, False)
    assert (policies["small"]["engaged"], policies["small"]["reranked"]) == (1.0, True)
    assert told["engaged"] == 1.0


def test_differences_are_paired() -> None:
    """Random minus static is the difference of the two, with an interval narrower than either figure's."""
    told = _report(made_table(80))
    (difference,) = told["differences"]
    assert (difference["name"], difference["baseline"]) == ("random", "static")
    area = told["area_10_50"]
    assert difference["area_10_50"] == pytest.approx(area["random"] - area["static"])
    costs = told["cost_at_recovered"]
    assert difference["cost_at_recovered"]["0.90"] == pytest.approx(costs["random"]["0.90"] - costs["static"]["0.90"])
    policies = _policies(told)
    assert difference["at_equal_cost"] == pytest.approx(policies["random"]["ndcg"] - policies["static"]["ndcg"])
    low, high = difference["intervals"]["at_equal_cost"]
    assert low <= difference["at_equal_cost"] <= high < 0.0


def test_slices_are_by_source_and_class() -> None:
    """Each value has the same figures on its own queries, and together they are all."""
    table = made_table(44)
    table = replace(table, attributes={**table.attributes, "q_class": tuple(["other"] * 800 + ["identifier"] * 80)})
    told = _report(table)
    assert {name: sorted(values) for name, values in told["slices"].items()} == {
        "q_class": ["identifier", "other"],
        "source": ["a", "b"],
    }
    assert sum(part["queries"] for part in told["slices"]["source"].values()) == 44
    few = told["slices"]["q_class"]["identifier"]
    assert few["queries"] == 4
    assert _policies(few)["small"]["reasons"]["ndcg"] == "fewer than 10 queries"
    assert few["cost_at_recovered"]["static"]["0.95"] is None
    alone = _report(table.where("source", "a"))
    assert _policies(told["slices"]["source"]["a"])["large"]["ndcg"] == _policies(alone)["large"]["ndcg"]


def test_a_large_stage_that_is_worse_recovers_nothing_and_is_called_harmful() -> None:
    """Shares are undefined with their reason, absolute curves stay, and no number is NaN."""
    told = _report(made_table(noise=4.0))
    assert told["large_helps"] == "harms"
    assert any("WORSE" in note for note in told["notes"])
    assert told["curves"]["static"] is None
    assert told["absolute_curves"]["static"][0] == [0.0, _policies(told)["small"]["ndcg"]]
    assert told["cost_at_recovered"]["static"]["0.95"] is None
    assert "not above zero" in told["reasons"]["cost_at_recovered"]["static"]["0.95"]
    assert told["area_10_50"]["static"] is None
    assert "not above zero" in told["differences"][0]["reasons"]["area_10_50"]
    assert told["differences"][0]["at_equal_cost"] is not None


def test_a_large_stage_that_is_as_good_as_the_small_one_is_not_shown_to_help() -> None:
    """Nothing is recovered of a difference that may be nought."""
    told = _report(made_table(noise=0.85))
    assert told["large_helps"] == "not shown"
    assert told["curves"]["static"] is None


def test_without_judgements_the_report_says_so_loudly() -> None:
    """Silver quality cannot show that the large stage helps, and only nDCG has a value."""
    told = _report(made_table(rel=None))
    assert told["conditions"]["judgements"] == "silver"
    assert told["large_helps"] == "not shown"
    assert any("NO JUDGEMENTS" in note for note in told["notes"])
    policies = _policies(told)
    assert policies["large"]["ndcg"] == pytest.approx(1.0)
    assert (policies["small"]["mrr"], policies["small"]["reasons"]["mrr"]) == (None, "the table has no judgements")
    assert told["cost_at_recovered"]["static"]["0.95"] is not None


def test_a_metric_of_relevance_needs_judgements() -> None:
    """MRR of the large order's own ranks would mean nothing."""
    with pytest.raises(ConfigError, match="mrr needs judgements"):
        _report(made_table(rel=None), replace(_QUESTION, metric=Metric.MRR))


def test_curves_can_be_of_another_metric() -> None:
    """With recall asked for, gap and curves run between recalls."""
    told = _report(made_table(), replace(_QUESTION, metric=Metric.RECALL))
    policies = _policies(told)
    assert told["gap"] == pytest.approx(policies["large"]["recall"] - policies["small"]["recall"])
    assert told["absolute_curves"]["static"][-1][1] == pytest.approx(policies["large"]["recall"])


def test_tokens_are_counted_where_the_table_has_them() -> None:
    """Always-large sends every token; without the column the count is undefined with its reason."""
    table = made_table()
    assert _policies(_report(table))["large"]["large_tokens"] == pytest.approx(sum(table.attributes["tokens"]) / 40)
    without = _policies(_report(replace(table, attributes={})))["large"]
    assert (without["large_tokens"], without["reasons"]["large_tokens"]) == (None, "the table does not count tokens")


def test_conditions_tell_what_was_read() -> None:
    """The digest is of the columns that were read; the first stage's order and the ideal are named."""
    table = made_table(conditions={"collection": "made"})
    told = _report(table, replace(_QUESTION, gain=Gain.EXPONENTIAL))["conditions"]
    (read,) = told["tables"]
    assert read["first_stage_order"] == "rrf60(bm25,dense)"
    assert read["ideal"] == "the candidates in the table"
    assert read["collected"] == {"collection": "made"}
    assert (told["gain"], told["queries_without_relevant"], told["confidence"]) == ("exponential", 0, 0.95)
    more = {**table.scores, "unread": np.zeros(800)}
    assert _report(replace(table, scores=more))["conditions"]["tables"][0]["sha256"] == read["sha256"]
    other = {**table.scores, "small": -table.scores["small"]}
    assert _report(replace(table, scores=other))["conditions"]["tables"][0]["sha256"] != read["sha256"]


def test_queries_left_out_and_without_relevant_documents_are_counted() -> None:
    """The first cannot be replayed and are left out; the others stay with 0."""
    table = made_table()
    small = table.scores["small"].copy()
    small[:20] = np.nan
    assert table.rel is not None
    rel = table.rel.copy()
    rel[20:40] = 0
    told = _report(replace(table, scores={**table.scores, "small": small}, rel=rel))
    assert (told["queries"], told["conditions"]["queries_left_out"]) == (39, 1)
    assert told["conditions"]["queries_without_relevant"] == 1
    assert told["notes"] == [
        "1 queries that a reranker scored no candidate of are left out",
        "1 queries have no relevant document and stay in every mean with 0",
    ]


def test_queries_are_chosen_by_attributes() -> None:
    """Conditions hold together, and one that fits no query is told with its table."""
    assert _report(made_table(), replace(_QUESTION, where=(("source", "a"),)))["queries"] == 20
    with pytest.raises(ConfigError, match="table t: column source: no query has the value asked for"):
        _report(made_table(), replace(_QUESTION, where=(("source", "c"),)))


def test_the_same_seed_gives_the_same_report() -> None:
    """A report can be made again, bit for bit; another seed moves intervals only."""
    first, again, other = (_report(made_table(), replace(_QUESTION, seed=seed)) for seed in (3, 3, 4))
    assert first == again
    assert first["cost_at_recovered"] == other["cost_at_recovered"]
    assert first["intervals"] != other["intervals"]


def test_a_report_never_holds_a_number_that_is_none() -> None:
    """A NaN that slipped through is a fault, not a silent null."""
    done = evaluate({"t": made_table()}, _QUESTION)
    broken = {**done.contest.points, "small": replace(done.contest.points["small"], odds=np.array([np.nan]))}
    with pytest.raises(ValueError, match="finite numbers only"):
        report(
            Evaluation(done.conditions, replace(done.contest, points=broken), done.measured, {}, "static", silver=False)
        )


def test_help_is_shown_only_by_judgements() -> None:
    """What judgements show, silver quality does not."""
    measured = measure(evaluate({"t": made_table()}, _QUESTION).contest, 1000, 0)
    assert large_helps(measured, silver=False) == "shown"
    assert large_helps(measured, silver=True) == "not shown"


def test_a_calibration_adds_the_fused_baseline_and_its_origin() -> None:
    """Static-fused has every figure, its differences to static, and the oracle stops along its order."""
    calibration = made_calibration()
    told = report(evaluate({"t": made_table(80)}, _QUESTION, calibration))
    assert told["area_10_50"]["static-fused"] > told["area_10_50"]["static"]
    assert [(each["name"], each["baseline"]) for each in told["differences"]] == [
        ("static-fused", "static"),
        ("random", "static"),
        ("random", "static-fused"),
    ]
    assert told["conditions"]["calibration"]["sha256"] == calibration.sha256
    assert told["conditions"]["oracle"].endswith("along the static-fused order")
    assert told["notes"] == []


def _policy(escalation: object, depth: int = 20) -> Policy:
    rule: Escalation = TypeAdapter(EscalationSpec).validate_python(escalation)
    return Policy(rule, FixedDepth(depth=depth), Limits(), made_calibration(), described={"release": "r1"})


def _calibrated(**fields: object) -> dict[str, object]:
    return {"kind": "calibrated", "calibration": made_calibration().sha256, "k": 5, "price_per_pair": 0.02, **fields}


def test_a_policy_is_reported_at_its_own_price_and_the_others_at_its_cost() -> None:
    """It has a curve, differences to both baselines, and what it decided is told."""
    policy = _policy(_calibrated())
    told = report(evaluate({"t": made_table(80)}, _QUESTION, policy.calibration, policy))
    policies = _policies(told)
    assert policies["policy"]["settings"] == [[0.02, 1.0]]
    assert policies["static"]["large_pairs"] == pytest.approx(policies["policy"]["large_pairs"])
    assert policies["static-fused"]["chosen"] == "as many pairs as policy"
    assert [(each["name"], each["baseline"]) for each in told["differences"]][-2:] == [
        ("policy", "static"),
        ("policy", "static-fused"),
    ]
    difference = told["differences"][-2]
    assert difference["at_equal_cost"] == pytest.approx(policies["policy"]["ndcg"] - policies["static"]["ndcg"])
    assert difference["at_equal_cost"] > 0.0
    assert told["area_10_50"]["policy"] > told["area_10_50"]["static"]
    assert sum(told["decided"]["actions"].values()) == pytest.approx(1.0)
    assert told["conditions"]["policy"] == {"release": "r1"}
    assert told["notes"] == []


def test_a_policy_of_one_setting_has_no_curve_and_is_still_compared_at_its_cost() -> None:
    """A static rule's area is undefined with its reason; its quality is compared where static costs as much."""
    policy = _policy({"kind": "static", "top_m": 7})
    told = report(evaluate({"t": made_table()}, _QUESTION, None, policy))
    assert "policy" not in told["curves"]
    (difference,) = [each for each in told["differences"] if each["name"] == "policy"]
    assert difference["reasons"]["area_10_50"] == "the policy has one setting and no curve"
    assert difference["at_equal_cost"] == pytest.approx(0.0)
    assert difference["area_10_50"] is None


def test_a4_a_policy_that_skips_queries_is_not_called_reranked() -> None:
    """Engaged below one is told, and the flag is off."""
    told = report(evaluate({"t": made_table()}, _QUESTION, None, _policy("none", depth=0)))
    assert told["engaged"] == 0.0
    assert _policies(told)["policy"]["reranked"] is False


def test_signals_that_no_table_tells_are_noted() -> None:
    """A condition that could never hold in a replay is said so."""
    direct = {"when": [{"script": ["latin"]}], "top_m": 5}
    policy = _policy(_calibrated(direct=direct))
    done = evaluate({"t": made_table()}, _QUESTION, policy.calibration, policy)
    assert done.notes == ["no table tells query.script: conditions on it never hold in this replay"]


def test_a_calibration_of_other_channels_is_refused() -> None:
    """It would read what nobody named."""
    with pytest.raises(ConfigError, match="does not name: colbert"):
        evaluate({"t": made_table()}, _QUESTION, made_calibration(("bm25", "colbert")))


def test_queries_that_trained_the_calibration_are_counted() -> None:
    """Figures on them are too good, and nobody should take them for a test."""
    calibration = made_calibration(trained_on=[query_digest("q1-003"), query_digest("q9-003")])
    (note,) = evaluate({"t": made_table()}, _QUESTION, calibration).notes
    assert note.startswith("SEEN IN FITTING: 1 of these queries")


def test_a_calibration_of_other_scorers_or_candidates_is_told() -> None:
    """Its estimates are about something else, or do not hold."""
    roles = replace(ROLES, small="dense", large="large")
    done = evaluate({"t": made_table()}, replace(_QUESTION, roles=roles), made_calibration(least_candidates=50))
    assert done.notes == [
        "the calibration was fitted for small small, and dense is evaluated",
        "the calibration does not hold for the candidates of 40 queries: it does not decide there",
    ]


@pytest.mark.data
@pytest.mark.parametrize(
    ("small", "large", "channels", "costs", "area"),
    [
        ("ce_ja_xsmall", "ce_bge_v2_m3", ("bm25", "me5_small"), (0.145, 0.199, 0.259, 0.304), 0.9186),
        ("ce_ja_xsmall", "ce_ja_large", ("bm25", "me5_small"), (0.260, 0.389, 0.524, 0.806), 0.7850),
        ("me5_small", "ce_ja_large", ("bm25",), (0.284, 0.449, 0.562, 0.709), 0.7521),
    ],
)
def test_static_on_real_scores_costs_what_was_measured(
    small: str, large: str, channels: tuple[str, ...], costs: tuple[float, ...], area: float
) -> None:
    """On 740 queries of JQaRA the static baseline's cost and area are those measured when this was written."""
    path = shared_data() / "jqara.parquet"
    if not path.is_file():
        pytest.skip("jqara is not here (set CASCADE_DATA to the folder of real collections)")
    question = Question(Roles(channels, small, large), where=(("source", "QA20QBIK"),))
    told = report(evaluate({"jqara": read_table(path)}, question))
    assert told["queries"] == 740
    assert list(told["cost_at_recovered"]["static"].values()) == pytest.approx(costs, abs=6e-4)
    assert told["area_10_50"]["static"] == pytest.approx(area, abs=1e-4)


def test_a_split_into_partitions_gives_the_same_report() -> None:
    """Parts of 1, 7 and 32 queries, side by side, are the part of all 40."""
    table = made_table()
    policy = _policy(_calibrated())
    replaying = Replaying(_QUESTION, 20, policy.calibration, policy)

    def part(queries: range) -> Part:
        found = replayed_part(table.take(list(queries)), ROLES, 5, Gain.LINEAR, silver=False)
        made = replay_part("t", found, replaying)
        assert made is not None
        return made

    whole, split = part(range(40)), side_by_side([part(range(1)), part(range(1, 8)), part(range(8, 40))])
    assert (whole.ids, whole.slices, whole.own) == (split.ids, split.slices, split.own)
    for name, sweep in whole.sweeps.items():
        assert (sweep.quality == split.sweeps[name].quality).all()
        assert (sweep.pairs == split.sweeps[name].pairs).all()
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(column, split.columns[name])
