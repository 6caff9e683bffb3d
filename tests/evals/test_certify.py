"""The evaluation of certificates: the bounds that it compares with, and the page that it writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evals import certify_tables
from evals.certify_bounds import BOUNDS, accepted, empirical_bernstein, goal, hoeffding_bentkus
from evals.certify_tables import page

_NONE = np.zeros(400)


def test_empirical_bernstein_by_hand() -> None:
    """Without any spread p = 2 exp(-3 (n - 1) gap / 7), on x = (1 + D) / 2."""
    losses = np.full(2001, -0.1)
    expected = 2.0 * math.exp(-3.0 * 2000 * 0.055 / 7.0)
    assert empirical_bernstein(losses, 0.01, 0.1) == pytest.approx(expected)
    assert empirical_bernstein(-losses, 0.01, 0.1) == 1.0


def test_hoeffding_bentkus_by_hand() -> None:
    """No loss in [0, 1] at all: exp(-n KL(0 || eps)) = (1 - eps)^n is below e times the binomial."""
    assert hoeffding_bentkus(_NONE, 0.01, 0.1) == pytest.approx(0.99**400)
    assert hoeffding_bentkus(_NONE + 0.5, 0.01, 0.1) == 1.0
    assert hoeffding_bentkus(np.where(np.arange(400) % 2, 0.1, -0.1), 0.3, 0.1) < 0.01


def test_betting_towards_a_goal_is_valid_and_shows_a_mean_of_nothing() -> None:
    """At a mean of epsilon it is refuted in at most delta of the streams and three standard errors."""
    random = np.random.default_rng(1)
    streams = 0.05 + np.clip(0.1 * random.standard_normal((300, 200)), -0.9, 0.9)
    refuted = np.mean([goal(stream, 0.05, 0.1) <= 0.1 for stream in streams])
    assert refuted <= 0.1 + 3.0 * math.sqrt(0.09 / 300)
    assert goal(streams[0] - 0.05, 0.05, 0.1) <= 0.1


@pytest.mark.parametrize("bound", sorted(BOUNDS))
def test_every_bound_stops_at_the_first_policy_that_harms(bound: str) -> None:
    """The one behind it is not looked at."""
    losses = np.stack([_NONE - 0.2, _NONE + 0.3, _NONE - 0.2])
    assert accepted(BOUNDS[bound], losses, losses, [0, 1, 2], 0.05, 0.1) == 0
    assert accepted(BOUNDS[bound], losses, losses, [1], 0.05, 0.1) is None


def test_the_page_is_what_the_reports_give() -> None:
    """The committed page has no figure that the committed reports do not hold."""
    evals = Path(certify_tables.__file__).parent
    told, run = (
        json.loads((evals / "reports" / name).read_text(encoding="utf-8"))
        for name in ("certify.json", "cranfield_run.json")
    )
    assert page(told, run) == (evals / "certify.md").read_text(encoding="utf-8")


def test_the_page_has_a_row_for_every_figure() -> None:
    """By family and by bound, and what the commands said."""
    cell = {
        "share": 0.2, "sd": 0.01, "range": [0.1, 0.3], "certified": 2, "rest_above_epsilon": 1, "rest_mean_loss": 0.002,
        "seeds": 2,
    }  # fmt: skip
    bounds = dict.fromkeys(["star, informed", "wsr", "star, informed, first of many attempts"], cell)
    sided = {"0.01": {"static": bounds, "calibrated": bounds}}
    conditions = {"pair": "a -> b", "channels": {"v": ["bm25"]}, "delta": 0.1, "seeds": 2}
    told: dict[str, Any] = {"conditions": conditions, "v": {"two-sided": sided, "one-sided": sided}}
    step = {"command": "cascade certify", "status": 1, "seconds": 2.0, "said": ["NOT CERTIFIED", "why"]}
    text = page(told, {"steps": [step], "conclusion": "Refused."})
    assert "| 0.01 | static | 0.200 | 0.010 | 0.10-0.30 | 2/2 | 1/2 | +0.0020 | 0.200 |" in text
    assert "| wsr | 0.200 (1/2) |" in text
    assert "| `cascade certify` | 1 | 2 | NOT CERTIFIED; why |" in text
