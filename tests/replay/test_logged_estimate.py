"""Estimates from weighted records: guards, intervals, and how often these hold the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cascade.replay.columns import FloatArray
from cascade.replay.logged.estimate import Bootstrap, Estimated, Predict, Weighed, estimated, numbered
from cascade.statistics.off_policy import mean_of


def _weighed(**fields: Any) -> Weighed:
    """Return 800 records of as many queries, half of which are covered at odds of a half."""
    random = np.random.default_rng(5)
    made: dict[str, Any] = {
        "values": random.random(800),
        "propensities": np.full(800, 0.5),
        "covered": np.arange(800) % 2.0,
        "queries": np.arange(800),
    }
    return Weighed(**made | fields)


def _constant(predicted: FloatArray) -> Predict:
    return lambda values, weights, queries: predicted


def _failed(done: Estimated) -> list[str]:
    return [guard.name for guard in done.guards if not guard.holds]


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """On 150 simulated splits of 300 queries 95% intervals hold it nine times out of ten at least, and not always."""
    held = {"ips": 0, "snips": 0, "dr": 0}
    for seed in range(150):
        random = np.random.default_rng(seed)
        kind = random.integers(2, size=300)
        first = random.random(300) < 0.3
        worth = np.where(kind == 0, np.where(first, 0.2, 0.7), np.where(first, 0.8, 0.4))
        weighed = Weighed(
            values=(random.random(300) < worth).astype(np.float64),
            propensities=np.where(first, 0.3, 0.7),
            covered=(first == (kind == 1)).astype(np.float64),
            queries=np.arange(300),
        )
        done = estimated(weighed, 300, seed, _constant(np.where(kind, 0.7, 0.6)))
        for name in held:
            interval = done.figures[name].interval
            assert interval is not None
            assert interval[0] is not None
            assert interval[1] is not None
            held[name] += interval[0] <= 0.75 <= interval[1]
    assert all(135 <= often < 150 for often in held.values()), held


def test_a_split_in_halves_passes_every_guard() -> None:
    """Weights of two and nought, half of each: their mean is one, and half of the queries are effective."""
    done = estimated(_weighed(), 1000, 0)
    assert done.refusals == []
    assert (done.mean_weight, done.effective_sample_size, done.least_propensity) == (1.0, 400.0, 0.5)
    assert (done.clipped_mass, done.records, done.queries) == (0.0, 800, 800)
    assert set(done.figures) == {"logged", "ips", "snips", "difference"}
    assert done.figures["ips"].value == done.figures["snips"].value


@pytest.mark.parametrize(
    ("fields", "failed", "told"),
    [
        (
            {"propensities": np.where(np.arange(800) % 2 == 1, 0.015, 1.0), "covered": np.arange(800) % 68 == 1},
            ["propensity", "clipped mass", "effective sample size"],
            "propensity: the least of a covered action is 0.015; wanted: at least 0.02",
        ),
        (
            {"covered": np.arange(800) % 4 < 3},
            ["mean weight"],
            "mean weight: 1.5, with a standard error of 0.0",
        ),
        (
            {"covered": np.zeros(800)},
            ["propensity", "mean weight", "effective sample size"],
            "propensity: the least of a covered action is nan",
        ),
        (
            {"queries": np.arange(800) // 8},
            ["effective sample size"],
            "effective sample size: 100 queries; wanted: at least 200",
        ),
    ],
    ids=["propensity", "mean weight", "nothing", "effective"],
)
def test_each_guard_names_what_it_saw(fields: dict[str, Any], failed: list[str], told: str) -> None:
    """A refusal says the guard, the number and the rule."""
    done = estimated(_weighed(**fields), 1000, 0)
    assert _failed(done) == failed
    assert done.refusals[0].startswith(told)


def test_nothing_covered_leaves_ratios_undefined() -> None:
    """IPS is nought, SNIPS has no value, and both are refused."""
    done = estimated(_weighed(covered=np.zeros(800)), 1000, 0)
    assert done.figures["ips"].value == 0.0
    assert (done.figures["snips"].value, done.figures["snips"].reason) == (None, "no record has a weight")


def test_weights_above_twenty_are_clipped_and_the_mass_is_told() -> None:
    """At odds of 0.04 a weight is 25, and a fifth of it goes."""
    rare = np.arange(800) < 32
    fields = {"propensities": np.where(rare, 0.04, 0.5), "covered": (np.arange(800) % 2 == 1) | rare}
    done = estimated(_weighed(**fields, values=np.ones(800)), 1000, 0)
    weights = np.where(rare, 25.0, 2.0 * (np.arange(800) % 2))
    assert done.mean_weight == pytest.approx(weights.mean())
    assert done.clipped_mass == pytest.approx(32 * 5 / weights.sum())
    assert done.figures["ips"].value == pytest.approx(np.minimum(weights, 20.0).mean())
    assert done.figures["snips"].value == pytest.approx(1.0)


def test_what_clipping_takes_from_the_estimate_is_refused_where_it_is_much() -> None:
    """At odds of 0.025 half of each weight goes: IPS tells half of a reward that is one, in an interval without one."""
    rare = np.arange(8000) % 40 == 0
    fields = {"propensities": np.where(rare, 0.025, 0.975), "covered": rare, "queries": np.arange(8000)}
    done = estimated(_weighed(**fields, values=np.ones(8000)), 1000, 0)
    assert done.mean_weight == pytest.approx(1.0)
    assert done.figures["ips"].value == pytest.approx(0.5)
    assert done.figures["ips"].interval is not None
    assert (done.figures["ips"].interval[1] or 1.0) < 1.0
    assert done.refusals == ["clipped mass: 0.5 of the weight lies above 20 a record; wanted: at most 0.05"]


def test_the_difference_is_paired_and_by_the_best_estimate() -> None:
    """It is DR minus what was logged where there is a model, and surer than either."""
    weighed = _weighed(values=np.random.default_rng(1).normal(size=800))
    done = estimated(weighed, 1000, 0, lambda values, weights, queries: values)
    assert done.figures["dr"].value == pytest.approx(done.figures["logged"].value)
    assert done.figures["difference"].value == pytest.approx(0.0)
    assert done.figures["difference"].interval == pytest.approx((0.0, 0.0), abs=1e-12)


def test_resamples_do_not_depend_on_how_many_are_held_at_a_time() -> None:
    """The draws of many records, made in parts, are those of a few made at once."""
    few = Bootstrap(np.arange(50), 1000, 3)
    (whole,) = few.draws(lambda counts: mean_of(np.arange(50.0), counts))
    many = Bootstrap(np.repeat(np.arange(50), 400), 1000, 3)
    (parts,) = many.draws(lambda counts: mean_of(np.repeat(np.arange(50.0), 400), counts))
    assert whole.shape == (1001,)
    assert parts == pytest.approx(whole)


def test_names_are_numbered_without_a_gap() -> None:
    """In their own order, each once."""
    assert numbered(["b", "a", "b", "c"]).tolist() == [1, 0, 1, 2]
    assert numbered([]).tolist() == []
