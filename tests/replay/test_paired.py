"""Two policies on the same queries: what changes in quality, cost, decisions and orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import Escalation, NoEscalation, StaticEscalation
from cascade.policy.release import Limits
from cascade.replay.evaluate import evaluate
from cascade.replay.paired import paired
from cascade.replay.policy import Policy
from cascade.replay.question import Question
from cascade.replay.source import Source, source_in_memory
from cascade.replay.table import ScoreTable

from .made import ROLES, made_table

_QUESTION = Question(ROLES, k=5, resamples=1000)


def _policy(rule: Escalation, depth: int = 20) -> Policy:
    return Policy(rule, FixedDepth(depth=depth), Limits(max_candidates=200))


def _top(many: int) -> Policy:
    return _policy(StaticEscalation(kind="static", top_m=many))


def _sources(**tables: ScoreTable) -> dict[str, Source]:
    return {name: source_in_memory(name, table, ROLES) for name, table in tables.items()}


def _value(told: Mapping[str, Any], *keys: str) -> float:
    for key in keys:
        told = told[key]
    return float(told["value"])


def test_a_policy_against_itself_differs_in_nothing() -> None:
    """Every difference is nought, with an interval of nought, and every share too."""
    told = paired(_sources(a=made_table()), _QUESTION, _top(5), _top(5))
    for what in (told["quality"], *told["cost"].values()):
        assert what["difference"] == {"value": 0.0, "interval": [0.0, 0.0]}
    assert [each["value"] for each in (*told["decisions"].values(), told["orders"])] == [0.0] * 5
    assert (told["queries"], told["notes"], told["silver"]) == (40, [], False)


def test_fewer_pairs_cost_less_and_lose_something() -> None:
    """Counts are exact: top 10 against top 2 of 20 candidates, of 10 to 16 tokens each."""
    table = made_table(queries=60)
    told = paired(_sources(a=table), _QUESTION, _top(10), _top(2))
    assert [_value(told, "cost", "large_pairs", side) for side in ("before", "after", "difference")] == [10, 2, -8]
    assert _value(told, "cost", "small_pairs", "difference") == 0
    tokens = np.mean(table.attributes["tokens"]) * 20
    assert _value(told, "cost", "small_tokens", "before") == pytest.approx(tokens)
    assert _value(told, "cost", "large_tokens", "difference") < -8 * 9
    low, high = told["quality"]["difference"]["interval"]
    assert low < _value(told, "quality", "difference") < high
    assert high < 0
    assert [_value(told, "decisions", name) for name in ("depth", "action", "escalated", "any")] == [0, 0, 1, 1]
    assert 0.5 < _value(told, "orders") <= 1


def test_two_queries_are_as_by_hand() -> None:
    """Four documents each, in first-stage order: the first of the small order goes to the large stage, or the first two."""
    table = made_table(
        queries=2,
        candidates=4,
        scores={
            **{name: np.array([4.0, 3.0, 2.0, 1.0] * 2) for name in ("bm25", "dense")},
            "small": np.array([4.0, 3.0, 2.0, 1.0, 1.0, 2.0, 3.0, 4.0]),
            "large": np.array([1.0, 4.0, 3.0, 2.0, 4.0, 3.0, 2.0, 1.0]),
        },
        rel=np.array([0, 1, 0, 0, 0, 0, 2, 1]),
        attributes={"tokens": (10, 20, 30, 40) * 2},
    )
    told = paired(
        _sources(a=table), replace(_QUESTION, k=2), _policy(_top(1).escalation, 4), _policy(_top(2).escalation, 4)
    )
    second = 1 / np.log2(3)  # the discount of the second place
    first_query, other = second, (1 + 2 * second) / (2 + second)  # d1 d2 of 0 1; d4 d3 of 1 2
    assert _value(told, "quality", "before") == pytest.approx((first_query + other) / 2)
    assert _value(told, "quality", "after") == 1.0  # d2 d1 and d3 d4, by the large scores
    assert _value(told, "quality", "difference") == pytest.approx(1 - (first_query + other) / 2)
    counted = {name: [_value(told, "cost", name, side) for side in ("before", "after")] for name in told["cost"]}
    assert counted == {
        "large_pairs": [1, 2],
        "small_pairs": [4, 4],
        "large_tokens": [(10 + 40) / 2, (10 + 20 + 40 + 30) / 2],
        "small_tokens": [100, 100],
    }
    assert [_value(told, "decisions", name) for name in ("depth", "action", "escalated", "any")] == [0, 0, 1, 1]
    assert _value(told, "orders") == 1


def test_quality_is_what_an_evaluation_says_of_each() -> None:
    """Both replays go the way of cascade eval."""
    table = made_table()
    told = paired(_sources(a=table), _QUESTION, _top(3), _policy(NoEscalation(), depth=10))
    for side, policy in (("before", _top(3)), ("after", _policy(NoEscalation(), depth=10))):
        report = evaluate({"a": table}, _QUESTION, None, policy)
        assert _value(told, "quality", side) == pytest.approx(report.measured.policies["policy"]["ndcg"].value)
    assert _value(told, "decisions", "depth") == 1
    assert _value(told, "decisions", "action") == 1
    assert _value(told, "cost", "small_pairs", "after") == 10
    assert _value(told, "cost", "large_pairs", "after") == 0


def test_what_changes_below_the_top_is_no_order_that_differs() -> None:
    """A shorter small order keeps the first two, and the decision differs all the same."""
    told = paired(
        _sources(a=made_table()), replace(_QUESTION, k=2),
        _policy(StaticEscalation(kind="static", top_m=2), depth=20), _policy(StaticEscalation(kind="static", top_m=2), depth=19),
    )  # fmt: skip
    assert _value(told, "decisions", "depth") == 1
    assert _value(told, "orders") < 0.2


def test_several_tables_are_one_pool_in_any_partition() -> None:
    """Their queries count alike; a query of two tables is refused."""
    one, other = made_table(seed=1), made_table(queries=300, seed=2)
    told = paired(_sources(a=one, b=other), _QUESTION, _top(5), _top(2))
    assert (told["tables"], told["queries"]) == (["a", "b"], 340)
    with pytest.raises(ConfigError, match="40 queries are in more than one table; each counts once"):
        paired(_sources(a=one, b=one), _QUESTION, _top(5), _top(2))


def test_without_judgements_the_large_order_judges_and_it_is_said() -> None:
    """Where the table counts no tokens, none are told; with few queries there is no interval."""
    table = made_table(queries=5, rel=None, attributes={})
    told = paired(_sources(a=table), _QUESTION, _top(20), _top(2))
    assert told["silver"] is True
    assert told["notes"] == [
        "the tables have no judgements: quality is agreement with the order of the large reranker",
    ]
    assert _value(told, "quality", "before") == 1.0
    assert told["cost"]["large_tokens"] is None
    assert told["quality"]["difference"]["interval"] is None
    assert told["quality"]["difference"]["reason"] == "fewer than 10 queries"


def test_what_is_left_out_or_lacks_something_is_counted() -> None:
    """Queries that a reranker scored nothing of, pairs without a score, and queries that nothing is relevant to."""
    table = made_table(queries=12)
    scores = {name: values.copy() for name, values in table.scores.items()}
    scores["large"][:20] = np.nan
    scores["small"][20:23] = np.nan
    assert table.rel is not None
    rel = table.rel.copy()
    rel[40:60] = 0
    told = paired(_sources(a=replace(table, scores=scores, rel=rel)), _QUESTION, _top(5), _top(2))
    assert told["queries"] == 11
    assert told["notes"] == [
        "1 queries that a reranker scored no candidate of are left out",
        "1 queries have no relevant document and stay in every mean with 0",
        "3 pairs of 1 queries have no small score: they stay candidates, behind those that have one",
    ]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (made_table(conditions={"k": 7}), "it was made for k = 7, and --k is 5"),
        (made_table(conditions={"counts": {"failed": 3}}), "3 queries failed when it was collected"),
        (made_table(rel=np.zeros(800, dtype=np.int64)), "none of the 40 queries has a relevant document"),
        (
            made_table(scores={name: np.full(800, np.nan) for name in ("bm25", "dense", "small", "large")}),
            "no query has scores of both small and large",
        ),
    ],
)
def test_what_an_evaluation_refuses_is_refused(table: ScoreTable, told: str) -> None:
    """The error names the table or the column."""
    with pytest.raises(ConfigError, match=told):
        paired(_sources(a=table), _QUESTION, _top(5), _top(2))


def test_an_unfinished_table_is_told_where_it_is_allowed() -> None:
    """What is not in it stays said."""
    sources = _sources(a=made_table(conditions={"counts": {"failed": 3}}))
    told = paired(sources, replace(_QUESTION, unfinished=True), _top(5), _top(2))
    assert told["notes"] == ["table a: 3 queries failed when it was collected and are not in it"]
