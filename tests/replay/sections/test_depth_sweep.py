"""Quality, candidates' recall and time by depth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.metrics import Gain
from cascade.replay import baselines
from cascade.replay.actions import depths_within
from cascade.replay.intervals import resampled
from cascade.replay.policy import play
from cascade.replay.queries import ReplayedQuery, Roles, replayed
from cascade.replay.sections import depth_sweep
from cascade.replay.sweep import Metric
from tests.replay.made import ROLES, made_queries, made_table
from tests.replay.made_calibration import made_calibration
from tests.replay.sections.asked import asked, named, policy

_QUESTION = asked()


def _timed(small: float | None, large: float | None, queries: int = 20) -> tuple[ReplayedQuery, ...]:
    """Return made queries of 20 candidates with the same milliseconds for every pair, None for no column."""
    table = made_table(queries)
    ms = {f"ms_{name}": (each,) * queries * 20 for name, each in (("small", small), ("large", large)) if each}
    return replayed([replace(table, attributes={**table.attributes, **ms})], ROLES, 5, Gain.LINEAR).queries


def test_depths_are_those_of_the_grid_and_all() -> None:
    """The longest list is always one of them, once."""
    assert depths_within(5) == (5,)
    assert depths_within(20) == (10, 20)
    assert depths_within(120) == (10, 20, 50, 100, 120)


def test_at_full_depth_small_and_large_are_the_baselines() -> None:
    """Both are worth what the report says of them, and a shallower depth holds fewer relevant candidates."""
    queries = made_queries()
    columns = depth_sweep.columns(queries, _QUESTION, None, 20)
    shallow, full = depth_sweep.told(columns, 20, resampled(40, 1000, 0))
    assert (shallow["depth"], full["depth"]) == (10, 20)
    for name, baseline in (("small", baselines.small), ("large", baselines.large)):
        assert columns[f"depth_sweep.{name}"][:, 1].tolist() == baseline(queries, 5, Metric.NDCG).quality[0].tolist()
    assert shallow["candidate_recall"] < full["candidate_recall"] == 1.0
    assert (full["policy"], full["reasons"]["policy"]) == (None, "no policy was replayed")
    assert full["p95_ms"] == {"small": None, "large": None, "policy": None}
    assert full["reasons"]["p95_ms"]["small"] == "the table does not tell the milliseconds of every pair"


def test_a_candidate_beyond_the_depth_is_not_seen_by_either_stage() -> None:
    """The eleventh is best by both; ten deep it stays where the first stage had it."""
    scores = [float(-at) for at in range(10)] + [9.0, -99.0]
    query = named(scores, scores, [0.0] * 10 + [1.0, 0.0])
    columns = depth_sweep.columns([query], asked(k=1), None, 12)
    assert columns["depth_sweep.small"].tolist() == [[0.0, 1.0]]
    assert columns["depth_sweep.large"].tolist() == [[0.0, 1.0]]
    assert columns["depth_sweep.recall"].tolist() == [[0.0, 1.0]]


def test_the_policy_is_replayed_at_each_depth_and_its_own_price() -> None:
    """At full depth it gives what its own replay gives."""
    calibration = made_calibration()
    rule = {"kind": "calibrated", "calibration": calibration.sha256, "k": 5, "price_per_pair": 0.02}
    queries = made_queries()
    columns = depth_sweep.columns(queries, _QUESTION, policy(rule, 5, calibration), 20)
    played = play(queries, policy(rule, 20, calibration), 5, Metric.NDCG)
    assert columns["depth_sweep.policy"][:, 1].tolist() == played.sweep.quality[played.own].tolist()
    shallow, full = depth_sweep.told(columns, 20, resampled(40, 1000, 0))
    assert shallow["policy"] < full["policy"]
    assert full["intervals"]["policy"][0] < full["policy"] < full["intervals"]["policy"][1]


def test_time_is_that_of_the_pairs_that_each_scores() -> None:
    """Small pairs take 1 ms and large ones 7; the policy sends three of each depth."""
    columns = depth_sweep.columns(_timed(1.0, 7.0), _QUESTION, policy({"kind": "static", "top_m": 3}, 20), 20)
    shallow, full = depth_sweep.told(columns, 20, resampled(20, 1000, 0))
    assert shallow["p95_ms"] == {"small": 10.0, "large": 70.0, "policy": 31.0}
    assert full["p95_ms"] == {"small": 20.0, "large": 140.0, "policy": 41.0}


def test_a_query_that_goes_past_the_small_stage_spends_nothing_on_it() -> None:
    """Its three pairs are the large stage's."""
    direct = {"when": [{"signal": "bm25.gap", "at_least": 0.0}], "top_m": 3}
    calibration = made_calibration()
    rule = {"kind": "calibrated", "calibration": calibration.sha256, "k": 5, "price_per_pair": 0.02, "direct": direct}
    columns = depth_sweep.columns(_timed(1.0, 7.0), _QUESTION, policy(rule, 20, calibration), 20)
    assert columns["depth_sweep.policy_ms"].tolist() == [[21.0, 21.0]] * 20


def test_milliseconds_of_one_stage_do_not_stand_for_both() -> None:
    """Without those of the large stage its time and the policy's are unknown."""
    columns = depth_sweep.columns(_timed(1.0, None), _QUESTION, policy("none", 20), 20)
    (_, full) = depth_sweep.told(columns, 20, resampled(20, 1000, 0))
    assert full["p95_ms"] == {"small": 20.0, "large": None, "policy": None}


def test_without_judgements_the_recall_of_candidates_is_unknown() -> None:
    """Quality is silver; nothing is known to be relevant."""
    queries = replayed([made_table(4, rel=None)], Roles(("bm25",), "small", "large"), 5, Gain.LINEAR).queries
    (_, full) = depth_sweep.told(depth_sweep.columns(queries, _QUESTION, None, 20), 20, resampled(4, 1000, 0))
    assert (full["candidate_recall"], full["large"]) == (None, pytest.approx(1.0))
    assert full["reasons"]["candidate_recall"] == "the table has no judgements"


def test_depth_stops_where_rerankers_may_not_score() -> None:
    """Beyond --depth nothing is scored, whatever the depth tried."""
    (query,) = replayed([made_table(1)], Roles(("bm25",), "small", "large", 12), 5, Gain.LINEAR).queries
    columns = depth_sweep.columns([query], _QUESTION, None, 12)
    assert columns["depth_sweep.recall"].shape == (1, 2)
    assert columns["depth_sweep.recall"][0, 1] == pytest.approx(
        float(query.judgement.relevant[:12].sum()) / query.judgement.total
    )
    assert np.isnan(columns["depth_sweep.small_ms"]).all()
