"""A replayed policy, against the pipeline that serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from cascade.calibration.artefact import FinalOrder
from cascade.calibration.calibrated import Calibration, Estimate
from cascade.decision import Action, Ranking
from cascade.errors import ConfigError
from cascade.metrics import Gain, ndcg
from cascade.pipeline import Pipeline
from cascade.policy.depth_rules import DepthSpec, FixedDepth
from cascade.policy.escalation_rules import Escalation, EscalationSpec
from cascade.policy.release import Limits, parse_release
from cascade.replay import baselines
from cascade.replay.columns import FloatArray
from cascade.replay.policy import PRICES, Policy, play
from cascade.replay.queries import ReplayedQuery, replayed
from cascade.replay.signals import replayed_signals
from cascade.replay.sweep import Metric
from cascade.signals.history import History
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Candidate, QueryClass, Request, StageName
from tests.replay.made import ROLES, made_queries, made_table
from tests.replay.made_calibration import made_calibration
from tests.scenario import release_data

_QUERIES = made_queries()
_LIMITS = Limits()
_CALIBRATION = made_calibration(second=True)
_CALIBRATED: dict[str, Any] = {
    "kind": "calibrated",
    "calibration": _CALIBRATION.sha256,
    "k": 5,
    "price_per_pair": 0.02,
    "chunk": 4,
    "max_share": 0.6,
}
_RULES: tuple[tuple[Any, Any], ...] = (
    ("none", 15),
    ({"kind": "static", "top_m": 7}, 15),
    ({"kind": "static-fused", "calibration": _CALIBRATION.sha256, "top_m": 7, "k": 5}, 15),
    (_CALIBRATED, 20),
    ({**_CALIBRATED, "rounds": 1, "max_share": 1.0}, 20),
    ({**_CALIBRATED, "accept": {"margin_at_least": 0.2}}, 20),
    ({**_CALIBRATED, "direct": {"when": [{"signal": "bm25.gap", "at_least": 0.1}], "top_m": 6}}, 20),
    (
        _CALIBRATED,
        {"kind": "signals", "default": 18, "rules": [{"when": [{"signal": "dense.gap", "at_most": 0.3}], "depth": 9}]},
    ),
)


def _escalation(data: object) -> Escalation:
    rule: Escalation = TypeAdapter(EscalationSpec).validate_python(data)
    return rule


def _policy(escalation: object, depth: object, calibration: Calibration | None = _CALIBRATION) -> Policy:
    return Policy(_escalation(escalation), TypeAdapter(DepthSpec).validate_python(depth), _LIMITS, calibration)


def _served(
    query: ReplayedQuery, escalation: object, depth: object, calibration: Calibration = _CALIBRATION
) -> Ranking:
    """Return what the sidecar's pipeline answers where its stages score as the table says."""
    data = release_data(escalation=escalation, depth=depth)
    if escalation == "none":
        del data["stages"]["large"]
    by_stage = {StageName.SMALL: query.small, StageName.LARGE: query.large}
    stages = {
        name: ScriptedStage(lambda _, text, scores=scores: float(scores[int(text)]))  # type: ignore[misc]
        for name, scores in by_stage.items()
        if name in data["stages"]
    }
    candidates = tuple(
        Candidate(Text(str(index)), scores={name: float(scores[index]) for name, scores in query.channels.items()})
        for index in range(query.small.size)
    )

    async def rerank() -> Ranking:
        import asyncio

        pipeline = Pipeline(
            parse_release(data),
            stages,
            calibration=calibration,
            clock=asyncio.get_running_loop().time,
            new_id=lambda: "id",
            hash_query=lambda text: text,
            count_fault=lambda error: pytest.fail(f"a fault of ours: {error!r}"),
        )
        return await pipeline.rerank(Request(Text("which"), candidates))

    return run_virtual(rerank())


@pytest.mark.parametrize(("escalation", "depth"), _RULES)
def test_a_replay_decides_what_the_sidecar_serves(escalation: Any, depth: object) -> None:
    """For every kind of rule: the same candidates are sent, and the order answered is of the same quality."""
    played = play(_QUERIES[:12], _policy(escalation, depth), 5, Metric.NDCG)
    actions = set()
    for column, query in enumerate(_QUERIES[:12]):
        ranking = _served(query, escalation, depth)
        grades = {str(index): int(gain) for index, gain in enumerate(query.judgement.gains)}
        order = [str(item.index) for item in ranking.results]
        assert played.sweep.quality[played.own, column] == pytest.approx(ndcg(order, grades, 5))
        assert played.sweep.pairs[played.own, column] == len(ranking.decision.escalated)
        actions.add(ranking.decision.action)
    assert {step.action for step in played.steps} == actions
    assert (Action.DIRECT in actions) == ("direct" in escalation)


@pytest.mark.parametrize("depth", [20, 12, 1])
@pytest.mark.parametrize("direct", [None, {"when": [{"signal": "bm25.gap", "at_least": 0.1}], "top_m": 6}])
def test_a_fitted_final_order_is_that_of_what_the_sidecar_knew(direct: object, depth: int) -> None:
    """Features of ranks are those within depth, and a query that went past the small stage has the large order."""
    fitted = FinalOrder(large=1.0, features={"bm25.z": 3.0, "log_rrf_rank": -2.0}, gain=0.1, low=0.05, high=0.2)
    artefact = _CALIBRATION.artefact.model_copy(update={"final_order": fitted})
    calibration = Calibration(artefact, _CALIBRATION.sha256)
    rule = {**_CALIBRATED, "max_share": 1.0, "final_order": "fitted", "direct": direct}
    played = play(_QUERIES[:12], _policy(rule, depth, calibration), 5, Metric.NDCG)
    for column, query in enumerate(_QUERIES[:12]):
        grades = {str(index): int(gain) for index, gain in enumerate(query.judgement.gains)}
        order = [str(item.index) for item in _served(query, rule, depth, calibration).results]
        assert played.sweep.quality[played.own, column] == pytest.approx(ndcg(order, grades, 5))


def test_the_prices_run_from_everything_to_nothing() -> None:
    """At the least price every candidate is sent, at the greatest none; the ends are always-large and always-small."""
    played = play(_QUERIES, _policy({**_CALIBRATED, "max_share": 1.0}, 20), 5, Metric.NDCG)
    assert played.sweep.pairs[0].tolist() == [20.0] * 40
    assert played.sweep.pairs[-1].tolist() == [0.0] * 40
    assert played.sweep.quality[0].tolist() == baselines.large(_QUERIES, 5, Metric.NDCG).quality[0].tolist()
    assert played.sweep.quality[-1].tolist() == baselines.small(_QUERIES, 5, Metric.NDCG).quality[0].tolist()
    assert (np.diff(played.sweep.pairs.mean(axis=1)) <= 0).all()


def test_the_own_price_is_one_of_the_sweep() -> None:
    """It stands among the prices tried, once even where it is one of them."""
    played = play(_QUERIES[:2], _policy(_CALIBRATED, 20), 5, Metric.NDCG)
    assert played.sweep.settings[played.own] == 0.02
    assert len(played.sweep.settings) == len(PRICES) + 1
    same = play(_QUERIES[:2], _policy({**_CALIBRATED, "price_per_pair": PRICES[7]}, 20), 5, Metric.NDCG)
    assert same.sweep.settings == PRICES
    assert same.own == 7


def test_a_rule_without_a_price_has_one_setting() -> None:
    """There is nothing to sweep."""
    played = play(_QUERIES, _policy({"kind": "static", "top_m": 7}, 20), 5, Metric.NDCG)
    assert (played.sweep.settings, played.own) == ((0.0,), 0)
    assert {(step.rounds, step.depth, step.action) for step in played.steps} == {(1, 20, Action.STATIC)}


def test_a_skipped_query_engages_no_reranker() -> None:
    """With a depth of nought nothing is scored or sent, and the first-stage order is served."""
    played = play(_QUERIES, _policy(_CALIBRATED, 0), 5, Metric.NDCG)
    assert not played.sweep.engaged.any()
    assert not played.sweep.pairs.any()
    assert {(step.action, step.rounds, step.depth) for step in played.steps} == {(Action.NONE, 0, 0)}
    assert played.sweep.quality[0].tolist() == baselines.first_stage(_QUERIES, 5, Metric.NDCG).quality[0].tolist()


def test_a_calibration_that_does_not_hold_runs_the_safe_mode() -> None:
    """Where a channel that it reads is not there the top of the small order is sent, at every price."""
    safe = {**_CALIBRATED, "safe_top_m": 3}
    played = play(_QUERIES, _policy(safe, 20, made_calibration(("bm25", "dense", "sparse"))), 5, Metric.NDCG)
    assert {step.action for step in played.steps} == {Action.SAFE}
    assert set(played.sweep.pairs.ravel().tolist()) == {3.0}


def test_where_the_first_round_scores_nothing_there_is_no_second() -> None:
    """A large stage that left out all that it was sent is not asked again, as when serving."""
    rule = {**_CALIBRATED, "price_per_pair": 1e-6, "first_round_factor": 1e5, "max_share": 1.0}
    silent = [replace(query, large=np.full_like(query.large, np.nan)) for query in _QUERIES]
    assert {step.rounds for step in play(_QUERIES, _policy(rule, 20), 5, Metric.NDCG).steps} == {2}
    assert {step.rounds for step in play(silent, _policy(rule, 20), 5, Metric.NDCG).steps} == {1}


def test_every_query_is_estimated_once_whatever_the_prices() -> None:
    """The estimate does not depend on the price."""
    counting = _Counting(_CALIBRATION.artefact, _CALIBRATION.sha256)
    play(_QUERIES[:5], _policy(_CALIBRATED, 20, counting), 5, Metric.NDCG)
    assert counting.estimates == 5


class _Counting(Calibration):
    """Counts its estimates."""

    estimates = 0

    def estimate(self, small: FloatArray, channels: Mapping[str, FloatArray]) -> Estimate:
        self.estimates += 1
        return super().estimate(small, channels)


def _with_columns(**columns: Sequence[object]) -> tuple[ReplayedQuery, ...]:
    """Return two queries of a table with further columns of a value a query."""
    table = made_table(2)
    more = {name: tuple(value for value in values for _ in range(20)) for name, values in columns.items()}
    return replayed([replace(table, attributes={**table.attributes, **more})], ROLES, 5, Gain.LINEAR).queries


def test_signals_of_the_query_come_from_columns() -> None:
    """Class, tokens and identifiers stand in the table; difficulty is that of the class."""
    (query, _) = _with_columns(q_class=["identifier", "other"], q_tokens=[7, 3], q_identifiers=[2, 0])
    names = {"query.class", "query.tokens", "query.identifiers", "history.difficulty", "bm25.gap"}
    signals = replayed_signals(names, query, History({QueryClass.IDENTIFIER: 0.25}))
    assert signals.query_class is QueryClass.IDENTIFIER
    assert signals.get("query.tokens") == 7.0
    assert signals.get("query.identifiers") == 2.0
    assert signals.get("history.difficulty") == 0.25
    assert not np.isnan(signals.get("bm25.gap"))


def test_a_depth_by_class_follows_the_column() -> None:
    """Each query has the depth of its class."""
    depth: Mapping[str, object] = {"kind": "greedy", "default": 12, "classes": {"identifier": 4}}
    played = play(_with_columns(q_class=["identifier", "other"]), _policy("none", depth), 5, Metric.NDCG)
    assert {step.depth for step in played.steps} == {4, 12}
    assert played.never_told == []


@pytest.mark.parametrize("signal", ["query.tokens", "history.difficulty"])
def test_rules_that_read_a_column_the_table_lacks_are_refused(signal: str) -> None:
    """A policy that needs what is not there cannot be replayed."""
    depth = {"kind": "signals", "default": 12, "rules": [{"when": [{"signal": signal, "at_least": 1}], "depth": 5}]}
    with pytest.raises(ConfigError, match="rules read columns that the tables lack: q_"):
        play(_QUERIES, _policy("none", depth), 5, Metric.NDCG)


def test_signals_that_need_a_text_are_named() -> None:
    """No table holds texts, so their conditions never hold, and the report has to say so."""
    when = [{"signal": "head.duplicate", "at_least": 0.5}, {"script": ["latin"]}]
    depth = {"kind": "signals", "default": 12, "rules": [{"when": [condition], "depth": 5} for condition in when]}
    played = play(_QUERIES, _policy("none", depth), 5, Metric.NDCG)
    assert played.never_told == ["head.duplicate", "query.script"]
    assert {step.depth for step in played.steps} == {12}


def test_a_fixed_depth_reads_no_signals() -> None:
    """Nothing is asked of the table."""
    policy = Policy(_escalation("none"), FixedDepth(depth=5), _LIMITS)
    assert play(_QUERIES, policy, 5, Metric.NDCG).never_told == []


def test_a_class_that_there_is_not_is_refused_where_a_rule_reads_it() -> None:
    """A table may have classes of its own as long as no rule reads them."""
    named = [replace(query, features={"q_class": "praise"}) for query in _QUERIES[:2]]
    reading = {"kind": "greedy", "default": 18, "classes": {"identifier": 9}}
    with pytest.raises(ConfigError, match=r"^column q_class: query q1-000 has none of .*identifier"):
        play(named, _policy("none", reading), 5, Metric.NDCG)
    assert play(named, _policy("none", 18), 5, Metric.NDCG).steps[0].depth == 18
