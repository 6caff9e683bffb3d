"""Regret by the decision that it comes from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cascade.replay import baselines
from cascade.replay.intervals import resampled
from cascade.replay.queries import ReplayedQuery
from cascade.replay.regret import Cause, Regret, largest_cause
from cascade.replay.sections import regret
from cascade.replay.sweep import Metric
from tests.replay.made import made_queries
from tests.replay.sections.asked import asked, named, replay

_QUESTION = asked(k=1)
_FAR = 12


def _scores(**at: float) -> list[float]:
    """Return twelve falling scores with those of named places, as ``p3=9.0``, replaced."""
    scores = [-float(place) for place in range(_FAR)]
    for name, score in at.items():
        scores[int(name[1:])] = score
    return scores


def _gains(place: int) -> list[float]:
    return [float(at == place) for at in range(_FAR)]


def _regret(query: ReplayedQuery, escalation: object, depth: int = _FAR) -> Regret:
    played = replay(query, escalation, depth, _QUESTION)
    static = baselines.static([query], 1, Metric.NDCG, baselines.small_ranks([query]))
    columns = regret.columns([query], static, played, _QUESTION)
    return regret.attributed(columns, played.sweep.quality[0], played.sweep.pairs[0], _QUESTION)


def _parts(found: Regret) -> dict[str, Any]:
    return {cause.value: pytest.approx(float(part[0])) for cause, part in found.parts.items() if abs(part[0]) > 1e-12}


def _top(top_m: int) -> dict[str, Any]:
    return {"kind": "static", "top_m": top_m}


def test_escalation_is_missed_where_the_large_stage_would_have_been_worth_it() -> None:
    """The large stage finds the second of the small order, for two pairs."""
    query = named(_scores(), _scores(p1=9.0), _gains(1))
    assert _parts(_regret(query, "none")) == {"missed_escalation": 0.98}


def test_escalation_is_wasted_where_the_small_order_was_right() -> None:
    """Five pairs bought nothing; with a large stage that errs they cost the answer too."""
    right = named(_scores(), _scores(), _gains(0))
    assert _parts(_regret(right, _top(5))) == {"wasted_escalation": 0.05}
    wrong = named(_scores(), _scores(p4=9.0), _gains(0))
    assert _parts(_regret(wrong, _top(5))) == {"wasted_escalation": 1.05}


def test_the_cluster_is_wrong_where_another_set_should_have_gone() -> None:
    """Two pairs would have found what is second; eight cost six more, one does not reach it."""
    query = named(_scores(), _scores(p1=9.0), _gains(1))
    assert _parts(_regret(query, _top(8))) == {"wrong_cluster": 0.06}
    assert _parts(_regret(query, _top(1))) == {"wrong_cluster": 0.99}


def test_a_relevant_document_beyond_the_depth_is_falsely_excluded() -> None:
    """The small stage would have had the eleventh candidate on top, and scored ten."""
    query = named(_scores(p10=9.0), _scores(), _gains(10))
    assert _parts(_regret(query, "none", 10)) == {"false_exclusion": 1.0}


def test_what_the_large_stage_would_have_found_beyond_the_depth_is_falsely_excluded_too() -> None:
    """The best action is deeper and sends two pairs; nothing within reach is worth sending."""
    query = named(_scores(p10=-0.5), _scores(p10=9.0), _gains(10))
    assert _parts(_regret(query, "none", 10)) == {"false_exclusion": 0.98}


def test_a_depth_is_wrong_where_a_shallower_one_keeps_a_bad_candidate_out() -> None:
    """The twelfth candidate deceives the small stage; ten deep it would not have been seen."""
    query = named(_scores(p3=1.0, p11=9.0), _scores(p11=9.0), _gains(3))
    assert _parts(_regret(query, "none")) == {"wrong_depth": 1.0}


def test_a_depth_is_wrong_where_the_first_stage_was_right() -> None:
    """No depth keeps the second candidate from the top of either stage."""
    query = named(_scores(p1=9.0), _scores(p1=9.0), _gains(0))
    assert _parts(_regret(query, "none")) == {"wrong_depth": 1.0}
    assert _parts(_regret(query, "none", 0)) == {}


def test_a_loss_is_divided_between_depth_and_escalation() -> None:
    """Past what its depth excludes, a policy answers for what it did within it."""
    query = named(_scores(p10=9.0), _scores(), _gains(10))
    assert _parts(_regret(query, _top(4), 10)) == {"false_exclusion": 1.0, "wasted_escalation": 0.04}


def test_a_policy_that_beats_every_action_regrets_less_than_nothing() -> None:
    """Neither stage puts the fourth candidate first; an order of the policy's own that does is above all actions."""
    query = named(_scores(), _scores(), _gains(3))
    static = baselines.static([query], 1, Metric.NDCG, baselines.small_ranks([query]))
    found = regret.attributed(
        regret.columns([query], static, None, _QUESTION), np.array([1.0]), np.array([1.0]), _QUESTION
    )
    assert _parts(found) == {"other": -0.99}
    assert found.total[0] == pytest.approx(-0.99)


def test_without_a_policy_the_depth_is_everything() -> None:
    """Static has no depth of its own: what a deeper one would have found cannot be excluded."""
    query = named(_scores(), _scores(p1=9.0), _gains(1))
    static = baselines.static([query], 1, Metric.NDCG, baselines.small_ranks([query]))
    columns = regret.columns([query], static, None, _QUESTION)
    assert (columns["regret.best"][0], columns["regret.reached"][0]) == (0.98, 0.98)
    assert (columns["regret.deeper"].tolist(), columns["regret.sends"].tolist()) == ([False], [True])


@pytest.mark.parametrize("depth", [20, 13, 10, 0])
@pytest.mark.parametrize("escalation", ["none", _top(7), _top(20)])
def test_parts_sum_to_the_total_and_only_other_is_below_zero(escalation: object, depth: int) -> None:
    """On forty made queries, whatever the policy."""
    question = asked()
    queries = made_queries()
    static = baselines.static(queries, 5, Metric.NDCG, baselines.small_ranks(queries))
    plays = [replay(query, escalation, depth, question) for query in queries]
    rows = [
        regret.attributed(
            regret.columns([query], static.take(np.array([at])), played, question),
            played.sweep.quality[0],
            played.sweep.pairs[0],
            question,
        )
        for at, (query, played) in enumerate(zip(queries, plays, strict=True))
    ]
    for found in rows:
        assert sum(part[0] for part in found.parts.values()) == pytest.approx(found.total[0], abs=1e-12)
        assert min(part[0] for cause, part in found.parts.items() if cause is not Cause.OTHER) >= 0.0
        assert found.parts[Cause.OTHER][0] == pytest.approx(min(0.0, found.total[0]), abs=1e-12)
    if depth == 20:
        assert not any(found.parts[Cause.FALSE_EXCLUSION][0] for found in rows)


def test_regret_is_told_by_class_and_source() -> None:
    """Each mean is over its own queries, and too few have no interval."""
    total = np.arange(12.0)
    parts = {cause: np.zeros(12) for cause in Cause} | {Cause.WRONG_DEPTH: total}
    slices = {"q_class": ("",) * 12, "source": ("a",) * 10 + ("b",) * 2}
    told = regret.told(Regret(total, parts), slices, resampled(12, 1000, 0), _QUESTION)
    assert (told["total"], told["wrong_depth"], told["missed_escalation"]) == (5.5, 5.5, 0.0)
    low, high = told["intervals"]["total"]
    assert low < 5.5 < high
    assert told["by"].keys() == {"source"}
    assert {name: part["total"] for name, part in told["by"]["source"].items()} == {"a": 4.5, "b": 10.5}
    assert (told["by"]["source"]["b"]["queries"], told["by"]["source"]["b"]["intervals"]["total"]) == (2, None)


def test_the_largest_part_is_the_cause() -> None:
    """A part above zero or below; where all are zero there is none."""
    parts = {cause: np.zeros(3) for cause in Cause}
    parts |= {Cause.WRONG_CLUSTER: np.array([0.2, 0.0, 0.0]), Cause.WASTED_ESCALATION: np.array([0.1, 0.0, 1e-14])}
    parts[Cause.OTHER] = np.array([0.0, -0.3, 0.0])
    assert largest_cause(Regret(np.zeros(3), parts)) == [Cause.WRONG_CLUSTER, Cause.OTHER, None]
