"""Plans by hand, and what holds for every plan."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.capacity.demand import Basis, Evidence
from cascade.capacity.distribution import Distribution
from cascade.capacity.headroom import Headroom, Situation, Unavailable
from cascade.capacity.plan import SAFE_MODE, Plan, Pool
from cascade.capacity.planning import PlannedLevel, make_plan
from cascade.capacity.traffic import OverLength, Traffic, Window
from cascade.errors import ConfigError
from cascade.policy.levels import at_level, level_names
from cascade.policy.release import Release
from tests.capacity.made import CALIBRATED, HOSTED, ONNX, made_release, made_throughputs, made_traffic
from tests.scenario import release_data

_LEVELS = [
    {"name": "normal"},
    {"name": "degraded-1", "escalation": "none"},
    {"name": "degraded-2", "depth": 10, "escalation": "none"},
    {"name": "degraded-3", "stages": "none"},
]


def _plan(
    release: Release,
    traffic: Traffic | None = None,
    *,
    have: dict[str, int] | None = None,
    headroom: Headroom | None = None,
    evidence: tuple[Evidence, ...] = (),
    throughputs: dict[str, dict[str, Any]] | None = None,
) -> Plan:
    names = level_names(release)
    levels = [PlannedLevel(name, at_level(release, name), evidence if name == names[0] else ()) for name in names]
    return make_plan(
        levels, traffic or made_traffic(), made_throughputs(**(throughputs or {})), headroom or Headroom(), have
    )


def test_a_plan_by_hand() -> None:
    """At 10 queries a second: 500 small pairs keep 0.5 replicas busy, 200 large pairs 2; that is 2 and 4, and headroom.

    Large: 4 carry 2 at 60%; with 85% 3 must be up, which of 5 are left when one updates and one fails.
    """
    plan = _plan(made_release())
    (level,) = plan.levels
    assert level.seconds == {Pool.SMALL: 0.05, Pool.LARGE: 0.2}
    assert level.replicas == {Pool.SMALL: 2, Pool.LARGE: 5}
    assert [(stage.pairs, stage.tokens) for stage in level.stages] == [(50.0, 5000.0), (20.0, 2000.0)]
    assert plan.have == level.replicas
    assert not plan.have_given


def test_each_level_needs_its_own() -> None:
    """Without escalation no large replica, with a depth of ten a fifth of the small work, without stages nothing."""
    plan = _plan(made_release(levels=_LEVELS), made_traffic(60.0))
    assert [(each.name, dict(each.replicas)) for each in plan.levels] == [
        ("normal", {"small": 6, "large": 21}),
        ("degraded-1", {"small": 6}),
        ("degraded-2", {"small": 2}),
        ("degraded-3", {}),
    ]


def test_given_replicas_carry_what_they_carry() -> None:
    """Two small and three large: rates by hand, what fails first, and which level is left at the planned rate."""
    plan = _plan(made_release(levels=_LEVELS), made_traffic(20.0), have={"small": 2, "large": 3})
    normal, low, lower, none = plan.levels
    rates = [normal.most_qps(plan.have, plan.headroom, each) for each in Situation]
    assert [rate for rate, _ in rates] == pytest.approx([9.0, 8.5, 12.75, 8.5])
    assert {pool for _, pool in rates} == {Pool.LARGE}
    safe = [each.safe_qps(plan.have, plan.headroom) for each in (normal, low, lower, none)]
    assert [rate for rate, _ in safe] == pytest.approx([8.5, 17.0, 85.0, math.inf])
    assert [pool for _, pool in safe] == [Pool.LARGE, Pool.SMALL, Pool.SMALL, None]
    assert plan.have_given
    assert [plan.level_at(qps) for qps in (8.5, 8.6, 17.1, 90.0)] == [
        "normal",
        "degraded-1",
        "degraded-2",
        "degraded-3",
    ]
    assert plan.level_at(9.0, Situation.ALL_UP) == "normal"
    assert plan.level_at(9.1, Situation.ALL_UP) == "degraded-1"


def test_no_level_may_carry_it() -> None:
    """Where even the last needs more than there is."""
    plan = _plan(made_release(), have={"small": 0, "large": 9})
    assert plan.level_at(10.0) is None
    assert plan.levels[0].safe_qps(plan.have, plan.headroom) == (0.0, Pool.SMALL)


def test_the_time_of_each_level_is_that_of_the_windows_it_carries() -> None:
    """By seconds, bursts included."""
    windows = (Window(4.0, 300.0), Window(8.5, 500.0), Window(12.0, 100.0), Window(1e5, 100.0))
    levels = [*_LEVELS[:2]]
    plan = _plan(made_release(levels=levels), made_traffic(windows=windows), have={"small": 2, "large": 3})
    assert plan.time_at() == pytest.approx({"normal": 0.8, "degraded-1": 0.1, None: 0.1})
    assert _plan(made_release()).time_at() == {}


def test_what_the_first_level_needs_carries_the_planned_rate() -> None:
    """In every situation, at normal."""
    plan = _plan(made_release(levels=_LEVELS), made_traffic(37.0))
    assert plan.level_at(37.0) == "normal"


def test_stages_inside_the_sidecar_share_its_replicas() -> None:
    """Their times and that of deciding add up on one pool."""
    release = made_release(stages={"small": ONNX, "large": ONNX})
    plan = _plan(
        release,
        throughputs={
            "small": {"pairs_per_s": 1000.0},
            "large": {"pairs_per_s": 100.0},
            "sidecar": {"requests_per_s": 500.0},
        },
    )
    assert plan.levels[0].seconds == {Pool.SIDECAR: pytest.approx(0.05 + 0.2 + 0.002)}
    assert any("small and large run inside the sidecar" in note for note in plan.notes)


def test_the_sidecar_alone_is_planned_where_it_was_measured() -> None:
    """It is a pool of its own, at every level."""
    release = made_release(levels=_LEVELS)
    throughputs = {
        "small": {"pairs_per_s": 1000.0},
        "large": {"pairs_per_s": 100.0},
        "sidecar": {"requests_per_s": 5.0},
    }
    plan = _plan(release, throughputs=throughputs)
    assert [each.replicas[Pool.SIDECAR] for each in plan.levels] == [5, 5, 5, 5]
    assert plan.levels[3].safe_qps(plan.have, plan.headroom)[1] is Pool.SIDECAR


def test_a_hosted_stage_has_pairs_and_no_replicas() -> None:
    """They are the provider's, and a throughput for it is refused."""
    release = made_release(stages={"small": release_data()["stages"]["small"], "large": HOSTED})
    plan = _plan(release, throughputs={"small": {"pairs_per_s": 1000.0}})
    assert plan.levels[0].replicas == {Pool.SMALL: 2}
    assert (plan.levels[0].stages[1].pairs, plan.levels[0].stages[1].pool) == (20.0, None)
    assert "large is hosted: its pairs and tokens are told, and no replicas" in plan.notes
    with pytest.raises(ConfigError, match="large is hosted"):
        _plan(release)


def test_safe_mode_is_planned_beside_the_levels() -> None:
    """Its top 30 within half of the depth: 25 pairs; and it is no level to step to."""
    evidence = (Evidence(Basis.REPORT, "a report", None, 5.0),)
    plan = _plan(made_release(escalation=CALIBRATED), evidence=evidence)
    normal, safe = plan.levels
    assert (normal.stages[1].pairs, safe.name, safe.stages[1].pairs) == (5.0, SAFE_MODE, 25.0)
    assert plan.steps == (normal,)
    assert plan.notes[0].startswith("small: pairs_per_s is taken to hold")


def test_replicas_that_safe_mode_overloads_are_told() -> None:
    """Of two large replicas one is left by a failure: enough for 5 pairs of 10 ms, and for 25 at 3.4 a second only."""
    release = made_release(escalation=CALIBRATED)
    plan = _plan(release, evidence=(Evidence(Basis.REPORT, "a report", None, 5.0),))
    assert plan.have == {Pool.SMALL: 2, Pool.LARGE: 2}
    assert plan.notes[-1] == (
        "SAFE MODE: while the calibration does not hold, these replicas carry 3.4 of the planned 10.0 queries a second; "
        "large fails first"
    )
    more = _plan(release, evidence=(Evidence(Basis.REPORT, "a report", None, 25.0),))
    assert not any(note.startswith("SAFE MODE") for note in more.notes)


def test_the_worst_case_is_told_first() -> None:
    """With the level, the stage, the pairs and what would mend it."""
    plan = _plan(made_release(escalation=CALIBRATED))
    assert plan.notes[0] == (
        "WORST CASE: nothing tells how many pairs level normal sends to large; planned for the most that it may send, "
        "25.0 a query. Give --report, --records or --metrics of this release"
    )


def test_a_query_that_takes_longer_than_its_stage_has_is_told() -> None:
    """200 ms of large work in 60 ms: no number of replicas mends that. 50 ms of small work in 50 are in time."""
    budgets = {"total_ms": 100, "small_ms": 50, "large_ms": 60, "reserve_ms": 10}
    notes = _plan(made_release(budgets=budgets)).notes
    (note,) = [note for note in notes if note.startswith("TOO SLOW")]
    assert "one replica of large busy for 200 ms at full throughput, and budgets.large_ms is 60" in note


@pytest.mark.parametrize(
    ("over_length", "told"), [(OverLength.TRUNCATE, "cut there"), (OverLength.WINDOWS, "split into windows")]
)
def test_pairs_beyond_the_longest_are_told(over_length: OverLength, told: str) -> None:
    """And what becomes of them."""
    tokens = Distribution.weighted({100: 3, 600: 1}.items())
    plan = _plan(made_release(), made_traffic(tokens=tokens, query_tokens=10.0, over_length=over_length))
    assert f"small: 25.0% of pairs are longer than max_length and are {told}" in plan.notes


def test_a_throughput_of_far_other_lengths_is_told() -> None:
    """40 tokens are not 100; at 60 nothing is said, and work is in proportion to tokens."""
    rates = {"large": {"tokens_per_s": 10_000.0}}
    far = _plan(made_release(), throughputs={"small": {"pairs_per_s": 1000.0, "pair_tokens": 40.0}, **rates})
    near = _plan(made_release(), throughputs={"small": {"pairs_per_s": 1000.0, "pair_tokens": 60.0}, **rates})
    assert any("stated for pairs of 40 tokens and these have 100" in note for note in far.notes)
    assert not any(note.startswith("small") for note in near.notes)
    assert far.levels[0].seconds[Pool.SMALL] == pytest.approx(0.05 * 100 / 40)


def test_tokens_of_the_pairs_that_were_sent_count() -> None:
    """The large stage saw longer pairs than most."""
    evidence = (Evidence(Basis.RECORDS, "records", None, 5.0, None, Distribution.constant(300)),)
    rates = {"small": {"tokens_per_s": 10_000.0}, "large": {"tokens_per_s": 10_000.0}}
    plan = _plan(made_release(escalation=CALIBRATED), evidence=evidence, throughputs=rates)
    assert plan.levels[0].stages[1].tokens == 1500.0
    assert plan.levels[1].stages[1].tokens == 2500.0


def test_a_stage_without_a_throughput_is_refused() -> None:
    """The message shows how to give one; where nothing is scored none is needed."""
    with pytest.raises(
        ConfigError, match="no throughput of the stage large; give --throughput large=pairs_per_s:NUMBER"
    ):
        _plan(made_release(), throughputs={"small": {"pairs_per_s": 1.0}})
    assert (
        _plan(made_release(depth=0), throughputs={"sidecar": {"requests_per_s": 1.0}}).levels[0].seconds[Pool.LARGE]
        == 0.0
    )


def test_a_throughput_of_a_stage_that_is_not_there_is_refused() -> None:
    """It would be accepted and ignored."""
    release = made_release(stages={"small": ONNX}, escalation="none")
    with pytest.raises(ConfigError, match="the release has no stage large"):
        _plan(release)


@pytest.mark.parametrize("have", [{}, {"small": 1}, {"small": 1, "large": 1, "sidecar": 1}, {"small": 1, "lrage": 1}])
def test_replicas_are_named_for_just_the_pools_there_are(have: dict[str, int]) -> None:
    """None is guessed, none is ignored."""
    with pytest.raises(ConfigError, match="name just the replicas that are planned: small, large"):
        _plan(made_release(), have=have)


def test_without_stages_no_replicas_are_named() -> None:
    """There is nothing to plan but what a sidecar does."""
    release = made_release(stages={}, depth=0, escalation="none")
    plan = _plan(release, throughputs={"sidecar": {"requests_per_s": 50.0}})
    assert plan.levels[0].replicas == {Pool.SIDECAR: 2}
    with pytest.raises(ConfigError, match="planned: sidecar"):
        _plan(release, have={"small": 1}, throughputs={"sidecar": {"requests_per_s": 50.0}})


_headrooms = st.builds(
    Headroom,
    st.floats(0.1, 0.7),
    st.floats(0.7, 1.0),
    st.integers(0, 3),
    st.builds(Unavailable, percent=st.integers(0, 60)),
    st.booleans(),
)


@settings(max_examples=40)
@given(st.floats(0.1, 500), st.floats(1, 3), _headrooms)
def test_more_queries_never_need_fewer_replicas(qps: float, factor: float, headroom: Headroom) -> None:
    """At any level; and what is needed carries the planned rate whatever is planned for."""
    release = made_release(levels=_LEVELS)
    fewer, more = (_plan(release, made_traffic(rate), headroom=headroom) for rate in (qps, qps * factor))
    for low, high in zip(fewer.levels, more.levels, strict=True):
        assert all(high.replicas[pool] >= replicas for pool, replicas in low.replicas.items())
    assert fewer.level_at(qps) == "normal"
    assert more.level_at(qps * factor) == "normal"


@settings(max_examples=40)
@given(st.floats(0.1, 500), _headrooms, st.integers(0, 30), st.integers(0, 30))
def test_a_cheaper_level_never_carries_less(qps: float, headroom: Headroom, small: int, large: int) -> None:
    """Of the same replicas; so that stepping down under load helps."""
    plan = _plan(
        made_release(levels=_LEVELS), made_traffic(qps), have={"small": small, "large": large}, headroom=headroom
    )
    rates = [level.safe_qps(plan.have, headroom)[0] for level in plan.levels]
    assert rates == sorted(rates)
