"""The queries that are regretted most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cascade.replay.policy import play
from cascade.replay.regret import Cause, Regret
from cascade.replay.sections import decided, per_query
from cascade.replay.sweep import Metric
from tests.replay.made import made_queries
from tests.replay.made_calibration import made_calibration
from tests.replay.sections.asked import named, policy


def _facts(count: int, **fields: Any) -> per_query.Facts:
    nothing = np.zeros(count)
    usual: dict[str, Any] = {
        "ids": tuple(f"q{at}" for at in range(count)),
        "tables": ("t",) * count,
        "slices": {"q_class": ("other",) * count, "source": ("",) * count},
        "small": nothing,
        "large": nothing,
        "policy": nothing,
        "pairs": nothing,
        "name": "policy",
    }
    return per_query.Facts(**usual | fields)


def _regret(total: list[float]) -> Regret:
    parts = {cause: np.zeros(len(total)) for cause in Cause} | {Cause.WRONG_CLUSTER: np.array(total)}
    return Regret(np.array(total), parts)


def test_queries_stand_by_falling_regret_equal_ones_as_they_came() -> None:
    """Each with its own values; an attribute that a table lacks is null."""
    facts = _facts(4, small=np.array([0.1, 0.2, 0.3, 0.4]), pairs=np.array([0.0, 2.0, 0.0, 0.0]), name="static")
    told = per_query.told({}, facts, _regret([0.0, 0.5, 0.2, 0.2]))
    assert [row["id"] for row in told["per_query"]] == ["q1", "q2", "q3", "q0"]
    assert told["per_query"][0] == {
        "id": "q1",
        "table": "t",
        "q_class": "other",
        "source": None,
        "action": "static",
        "why": {},
        "depth": None,
        "rounds": 1,
        "pairs": 2,
        "small": 0.2,
        "large": 0.0,
        "static": 0.0,
        "regret": 0.5,
        "cause": "wrong_cluster",
    }
    assert (told["per_query"][3]["cause"], told["per_query"][3]["rounds"]) == (None, 0)
    assert told["per_query_left_out"] == 0


def test_a_thousand_are_listed_and_the_rest_counted() -> None:
    """Those of the least regret are left out."""
    total = [float(at) for at in range(1003)]
    told = per_query.told({}, _facts(1003), _regret(total))
    assert (len(told["per_query"]), told["per_query_left_out"]) == (1000, 3)
    assert told["per_query"][-1]["regret"] == 3.0


def test_why_is_what_the_first_estimate_said() -> None:
    """Margin, entropy and expected loss where there was an estimate, else why there was none."""
    calibration = made_calibration()
    rule = {"kind": "calibrated", "calibration": calibration.sha256, "k": 5, "price_per_pair": 0.02}
    (query,) = made_queries(1)
    silent = replace(query, channels={**query.channels, "bm25": np.full(20, np.nan)})
    played = play((query, silent), policy(rule, 12, calibration), 5, Metric.NDCG)
    columns = {**decided.columns(played), **per_query.columns(played)}
    first, second = per_query.told(columns, _facts(2, pairs=played.sweep.pairs[played.own]), _regret([1.0, 0.0]))[
        "per_query"
    ]
    estimates = played.steps[0].estimates
    assert estimates is not None
    assert first["why"] == {
        name: float(f"{getattr(estimates, name):.9g}") for name in ("margin", "entropy", "expected_loss")
    }
    assert (first["action"], first["depth"]) == (played.steps[0].action.value, 12)
    assert second["why"] == {"misfit": "channel_missing"}
    assert second["action"] == "safe"


def test_a_rule_that_estimates_nothing_has_no_reason() -> None:
    """Its action says it all."""
    played = play([named([2.0, 1.0], [1.0, 2.0], [0.0, 1.0])], policy("none", 2), 5, Metric.NDCG)
    columns = {**decided.columns(played), **per_query.columns(played)}
    (row,) = per_query.told(columns, _facts(1), _regret([0.1]))["per_query"]
    assert (row["action"], row["why"], row["depth"], row["rounds"]) == ("none", {}, 2, 0)
