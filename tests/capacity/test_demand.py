"""How many pairs of a query each stage scores."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.capacity.demand import Basis, Demand, Evidence, demands, safe_mode_demands
from cascade.capacity.distribution import Distribution
from cascade.policy.release import Release
from cascade.types import StageName
from tests.capacity.made import CALIBRATED, made_release, made_traffic
from tests.scenario import release_data

_FEW_OR_MANY = made_traffic(candidates=Distribution.weighted({10: 1, 100: 1}.items()))
_GREEDY = {"kind": "greedy", "default": 50, "classes": {"identifier": 30, "other": 100}}
_MEASURED = Evidence(Basis.REPORT, "a report", 44.0, 12.0, None, Distribution.constant(70))


def _pairs(release: Release, *evidence: Evidence, traffic: Any = _FEW_OR_MANY) -> list[tuple[str, float, Basis]]:
    found = demands(release, traffic, evidence)
    return [(str(stage), each.pairs, each.basis) for stage, each in found.items()]


def test_a_fixed_depth_and_a_static_top_are_told_by_the_release() -> None:
    """Half of the queries have ten candidates, and neither 50 nor 20 of them."""
    assert _pairs(made_release()) == [("small", 0.5 * 10 + 0.5 * 50, Basis.CONSTANT), ("large", 15.0, Basis.CONSTANT)]


def test_what_the_release_tells_stands_before_what_was_measured() -> None:
    """It is exact for the candidates of this workload."""
    assert _pairs(made_release(), _MEASURED) == _pairs(made_release())


def test_no_more_candidates_are_scored_than_the_limit_allows() -> None:
    """``max_candidates`` bounds both."""
    release = made_release(limits={"max_candidates": 15})
    assert _pairs(release) == [("small", 12.5, Basis.CONSTANT), ("large", 12.5, Basis.CONSTANT)]


def test_a_stage_that_is_not_there_has_no_demand() -> None:
    """Neither of two, or one of two."""
    without = release_data(stages={}, depth=0, escalation="none")
    assert demands(made_release(**without), _FEW_OR_MANY, ()) == {}
    small = made_release(stages={"small": release_data()["stages"]["small"]}, escalation="none")
    assert [each[0] for each in _pairs(small)] == ["small"]
    large = made_release(stages={"large": release_data()["stages"]["large"]})
    assert _pairs(large) == [("large", 15.0, Basis.CONSTANT)]


def test_a_fused_top_is_told_by_the_release() -> None:
    """As many for every query."""
    rule = {"kind": "static-fused", "calibration": CALIBRATED["calibration"], "top_m": 8, "safe_top_m": 40}
    assert _pairs(made_release(escalation=rule))[1] == ("large", 8.0, Basis.CONSTANT)


def test_what_differs_between_queries_is_measured_or_the_worst() -> None:
    """A calibrated escalation sends at most its share of the depth: 5 of 10, 25 of 50."""
    release = made_release(escalation=CALIBRATED)
    assert _pairs(release)[1] == ("large", 15.0, Basis.WORST)
    assert _pairs(release, _MEASURED)[1] == ("large", 12.0, Basis.REPORT)


def test_the_first_evidence_that_tells_counts() -> None:
    """One that tells of the other stage alone is passed over, and its tokens are not taken."""
    release = made_release(escalation=CALIBRATED)
    silent = Evidence(Basis.RECORDS, "records", 9.0, None)
    found = demands(release, _FEW_OR_MANY, (silent, _MEASURED))
    assert found[StageName.LARGE] == Demand(12.0, Basis.REPORT, "a report", Distribution.constant(70))


def test_what_was_measured_never_exceeds_the_worst() -> None:
    """A share of longer lists is no reason to send what is not there."""
    beyond = Evidence(Basis.REPORT, "a report", 300.0, 300.0)
    assert _pairs(made_release(escalation=CALIBRATED), beyond)[1] == ("large", 15.0, Basis.REPORT)


def test_direct_queries_may_send_more_than_the_share() -> None:
    """And pass the small stage, so that its depth is only a bound."""
    direct = {"when": [{"query_class": ["identifier"]}], "top_m": 40}
    release = made_release(escalation={**CALIBRATED, "direct": direct})
    assert _pairs(release) == [("small", 30.0, Basis.WORST), ("large", 0.5 * 10 + 0.5 * 40, Basis.WORST)]


def test_an_adaptive_depth_is_a_bound() -> None:
    """Up to 100 at the small stage; the top 20 of 30 at least is certain."""
    assert _pairs(made_release(depth=_GREEDY)) == [("small", 55.0, Basis.WORST), ("large", 15.0, Basis.CONSTANT)]
    assert _pairs(made_release(depth=_GREEDY), _MEASURED)[0] == ("small", 44.0, Basis.REPORT)


def test_mode_observe_scores_everything_and_a_share_beside() -> None:
    """Depth and escalation decide nothing there."""
    release = made_release(mode="observe", depth=_GREEDY, escalation=CALIBRATED)
    traffic = made_traffic(candidates=Distribution.constant(300), beside_share=0.25)
    assert _pairs(release, traffic=traffic) == [("small", 50.0, Basis.CONSTANT), ("large", 200.0, Basis.CONSTANT)]
    assert safe_mode_demands(release, traffic) is None


def test_safe_mode_sends_its_top_within_the_share() -> None:
    """5 of 10 candidates, and 25 of 50 where 30 would be sent."""
    found = safe_mode_demands(made_release(escalation=CALIBRATED), _FEW_OR_MANY)
    assert found is not None
    assert {str(stage): each.pairs for stage, each in found.items()} == {"small": 30.0, "large": 15.0}
    assert found[StageName.LARGE].basis is Basis.CONSTANT


def test_a_static_escalation_has_no_safe_mode() -> None:
    """It reads no calibration."""
    assert safe_mode_demands(made_release(), _FEW_OR_MANY) is None


@given(
    st.dictionaries(st.integers(1, 300), st.floats(0.1, 9), min_size=1, max_size=5),
    st.integers(0, 120),
    st.floats(0.01, 1.0),
    st.floats(0, 400),
)
def test_no_stage_scores_more_than_there_is(
    candidates: dict[float, float], depth: int, share: float, measured: float
) -> None:
    """Whatever was measured: large within small within the candidates."""
    traffic = made_traffic(candidates=Distribution.weighted(candidates.items()))
    release = made_release(depth=depth, escalation={**CALIBRATED, "max_share": share})
    evidence = Evidence(Basis.REPORT, "a report", measured, measured)
    found = demands(release, traffic, (evidence,))
    small, large = found[StageName.SMALL].pairs, found[StageName.LARGE].pairs
    assert 0 <= large <= small + 1e-9
    assert small <= min(depth, traffic.candidates.mean) + 1e-9


@pytest.mark.parametrize("share", [0.1, 0.3, 0.7])
def test_a_share_is_whole_candidates_as_escalation_counts_them(share: float) -> None:
    """A share of ten is not one less for the last bits of a float."""
    release = made_release(depth=10, escalation={**CALIBRATED, "max_share": share})
    assert _pairs(release)[1][1] == round(share * 10)
