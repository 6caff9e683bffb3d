"""The oracle over few actions, and what is left of it on judgements that it was not chosen by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cascade.metrics import Gain
from cascade.replay import baselines
from cascade.replay.actions import action_names
from cascade.replay.columns import FloatArray
from cascade.replay.halves import cut_of_half, half_of, in_second_half, only
from cascade.replay.queries import ReplayedQuery, replayed
from cascade.replay.question import Question
from cascade.replay.sections import oracle
from cascade.replay.sweep import Metric
from tests.replay.made import ROLES, made_queries, made_table
from tests.replay.sections.asked import asked, named, replay

_QUESTION = asked(k=10, price=0.0005)


def _told(queries: tuple[ReplayedQuery, ...], question: Question = _QUESTION) -> dict[str, Any]:
    most = max(query.pairs for query in queries)
    columns = oracle.columns(queries, [baselines.small_ranks(queries)], None, question, most)
    return oracle.told(columns, {"static": np.zeros(len(queries))}, question, most, fused=False)


def _table(of_small: FloatArray, of_large: FloatArray, seed: int) -> tuple[ReplayedQuery, ...]:
    """Return queries of 40 candidates whose small and large scores err by as much as these say (Q,)."""
    random = np.random.default_rng(seed)
    worth = random.normal(size=(of_small.size, 40))
    errors = {"bm25": np.full_like(of_small, 9.0), "dense": np.full_like(of_small, 9.0)}
    errors |= {"small": of_small, "large": of_large}
    scores = {name: worth + error[:, None] * random.normal(size=worth.shape) for name, error in errors.items()}
    table = made_table(
        of_small.size,
        40,
        scores={name: values.ravel() for name, values in scores.items()},
        rel=(worth.ravel() > 0.5).astype(np.int64),
    )
    return replayed([table], ROLES, 10, Gain.LINEAR).queries


def test_where_actions_differ_by_noise_alone_none_of_the_advantage_is_left() -> None:
    """Both stages err alike on every query: chosen by one half, the best action is no better on the other."""
    told = _told(_table(np.full(400, 1.5), np.full(400, 1.5), 5), replace(_QUESTION, price=0.0))
    assert told["intervals"]["in_sample"]["over_constant"][0] > 0.1
    assert told["crossfit"]["over_constant"] < 0.0
    assert told["inflation"] == pytest.approx(told["in_sample"]["utility"] - told["crossfit"]["utility"], abs=1e-8)
    low, high = told["intervals"]["inflation"]
    assert 0.1 < low < told["inflation"] < high


def test_where_queries_differ_the_cross_fitted_oracle_keeps_an_advantage() -> None:
    """On half of the queries one stage is far better, on half the other, and either half of the judgements shows it."""
    of_small = np.where(np.arange(200) % 2 == 0, 0.3, 9.0)
    told = _told(_table(of_small, of_small[::-1].copy(), 7))
    assert told["intervals"]["crossfit"]["over_constant"][0] > 0.1
    assert told["crossfit"]["over_constant"] < told["in_sample"]["over_constant"]


def test_policies_stand_on_the_same_halves() -> None:
    """A policy that serves the small order has its figures, and static sends as many pairs as it is told."""
    queries = made_queries(30)
    question = asked()
    played = [replay(query, "none", 20, question) for query in queries]
    whole = replace(played[0], orders=[each.orders[0] for each in played], steps=[each.steps[0] for each in played])
    columns = oracle.columns(queries, [baselines.small_ranks(queries)] * 2, whole, question, 20)
    sent = {"policy": np.zeros(30), "static": np.full(30, 4.0)}
    told = oracle.told(columns, sent, question, 20, fused=True)
    assert told["policies"]["policy"] == told["policies"]["small"]
    assert told["policies"]["static"]["large_pairs"] == pytest.approx(4.0)
    top = columns["oracle.quality"][columns["oracle.usable"]].mean(axis=(0, 2))
    names = action_names(20, fused=True)
    assert told["actions"] == list(names)
    half_way = (top[names.index("top-3")] + top[names.index("top-5")]) / 2
    assert told["policies"]["static"]["quality"] == pytest.approx(half_way)
    assert top[names.index("fused-3")] == top[names.index("top-3")]
    assert told["policies"]["large"]["large_pairs"] == 20.0


@pytest.mark.parametrize(("pairs", "like"), [(0.0, "small"), (20.0, "large"), (99.0, "large")])
def test_static_at_its_ends_is_small_or_large(pairs: float, like: str) -> None:
    """No coin is needed there, and it sends no more than there is."""
    queries = made_queries(20)
    columns = oracle.columns(queries, [baselines.small_ranks(queries)], None, asked(), 20)
    told = oracle.told(columns, {"static": np.full(20, pairs)}, asked(), 20, fused=False)["policies"]
    assert told["static"] == pytest.approx(told[like])


def test_the_halves_are_told_by_ids_alone() -> None:
    """Another order of the same candidates gives each the same half, and both halves are about as large."""
    (query,) = made_queries(1, 200)
    second = in_second_half(query)
    turned = in_second_half(replace(query, documents=query.documents[::-1]))
    assert second.tolist() == turned[::-1].tolist()
    assert 70 < second.sum() < 130


def test_a_half_is_judged_without_the_other() -> None:
    """The list holds the chosen candidates alone, and its ideal is theirs, at half the cut-off."""
    query = named([4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 1.0, 1.0], 2.0)
    chosen = np.array([False, True, True, False])
    half = half_of(query.judgement, chosen, 2)
    assert (half.ideal, half.total) == (1.0, 1)
    assert only(np.array([[0, 1, 2, 3], [3, 2, 1, 0]]), chosen).tolist() == [[1, 2], [2, 1]]
    assert [cut_of_half(k) for k in (1, 5, 10)] == [1, 3, 5]


def test_queries_without_a_relevant_document_in_a_half_are_counted_and_left_out() -> None:
    """One relevant document cannot be in both halves."""
    single = named([2.0, 1.0], [1.0, 2.0], [1.0, 0.0])
    several = made_queries(12, 40)
    columns = oracle.columns((*several, single), [baselines.small_ranks((*several, single))], None, _QUESTION, 40)
    told = oracle.told(columns, {"static": np.zeros(13)}, _QUESTION, 40, fused=False)
    assert (told["queries"], told["left_out"]) == (12, 1)
    alone = _told((single,))
    assert (alone["queries"], alone["left_out"], alone["inflation"]) == (0, 1, None)
    assert alone["reasons"]["inflation"] == "no query has a relevant candidate in both halves"


def test_without_judgements_there_is_no_oracle() -> None:
    """Halves of the large order's own ranks would say nothing."""
    queries = replayed([made_table(10, rel=None)], ROLES, 5, Gain.LINEAR).queries
    assert _told(queries)["reasons"] == {"inflation": "the table has no judgements"}


@pytest.mark.parametrize("metric", [Metric.MRR, Metric.RECALL, Metric.HIT])
def test_the_metric_is_the_one_asked_for(metric: Metric) -> None:
    """Each is measured on the list of a half."""
    told = _told(made_queries(40), asked(metric=metric))
    by_ndcg = _told(made_queries(40), asked())
    assert 0.0 < told["policies"]["small"]["quality"] <= 1.0
    assert told["policies"]["small"]["quality"] != by_ndcg["policies"]["small"]["quality"]
