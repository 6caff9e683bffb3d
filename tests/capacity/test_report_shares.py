"""What a report of ``cascade eval`` tells."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.capacity.demand import Basis
from cascade.capacity.distribution import Distribution
from cascade.capacity.report_shares import report_shares
from cascade.errors import ConfigError
from tests.capacity.made import made_release, made_traffic

_DIGEST = "sha256:" + "b" * 64
_LEVELS = [
    {"name": "normal", "ndcg": 0.8, "large_share": 0.3, "small_pairs": 80.0},
    {"name": "low", "ndcg": 0.7, "large_share": 0.1, "small_pairs": 40.0},
    {"name": "none", "ndcg": 0.5, "large_share": None, "small_pairs": None},
]


def _report(**changes: Any) -> dict[str, Any]:
    return {
        "report": "cascade eval",
        "version": 2,
        "conditions": {"depth": None, "policy": {"release": "r1", "policy_digest": _DIGEST}, "k": 10},
        "policies": [
            {"name": "large", "large_share": 1.0, "large_pairs": 100.0},
            {"name": "policy", "large_share": 0.27, "large_pairs": 27.0},
        ],
    } | changes


def test_the_policy_s_share_is_of_the_workload_s_candidates() -> None:
    """0.27 of 40 candidates, at the first level; of no other level it tells."""
    shares = report_shares(_report(), "r.json", _DIGEST, "normal")
    traffic = made_traffic(candidates=Distribution.constant(40))
    found = shares.evidence("normal", made_release(), traffic)
    assert found is not None
    assert (found.basis, found.small) == (Basis.REPORT, None)
    assert found.large == pytest.approx(10.8)
    assert found.detail == "share in r.json, of 40.0 candidates a query"
    assert shares.evidence("low", made_release(), traffic) is None


def test_levels_tell_of_both_stages() -> None:
    """They stand before the policy's own; the small stage's pairs are a share of the report's lists."""
    shares = report_shares(_report(levels=_LEVELS), "r.json", _DIGEST, "normal")
    traffic = made_traffic(candidates=Distribution.constant(50))
    told = {name: shares.evidence(name, made_release(), traffic) for name in ("normal", "low", "none")}
    assert told["normal"] is not None
    assert told["low"] is not None
    assert (told["normal"].small, told["normal"].large) == (40.0, 15.0)
    assert (told["low"].small, told["low"].large) == (20.0, 5.0)
    assert told["none"] is None


def test_the_depth_of_the_evaluation_and_the_limit_bound_the_lists() -> None:
    """What always-large scored is the whole that the share is of."""
    report = _report(conditions={"depth": 60, "policy": {"policy_digest": _DIGEST}})
    shares = report_shares(report, "r.json", _DIGEST, "normal")
    traffic = made_traffic(candidates=Distribution.constant(500))
    found = shares.evidence("normal", made_release(), traffic)
    assert found is not None
    assert found.large == pytest.approx(0.27 * 60)
    limited = shares.evidence("normal", made_release(limits={"max_candidates": 20}), traffic)
    assert limited is not None
    assert limited.large == pytest.approx(0.27 * 20)


@pytest.mark.parametrize(("candidates", "told"), [(84, False), (100, False), (119, False), (80, True), (130, True)])
def test_other_lists_are_told_of(candidates: int, told: bool) -> None:
    """A share found on lists of 100 may not hold on much longer or shorter ones."""
    shares = report_shares(_report(), "r.json", _DIGEST, "normal")
    note = shares.note(made_release(), made_traffic(candidates=Distribution.constant(candidates)))
    assert (note is not None) == told
    if note is not None:
        assert f"100.0 candidates a query and the workload has {candidates}.0" in note


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"report": "other"}, "report r.json: report"),
        ({"policies": []}, "it has no policy"),
        ({"policies": [{"name": "policy", "large_share": 0.5, "large_pairs": 1.0}]}, "it has no policy"),
        (
            {
                "policies": [
                    {"name": "policy", "large_share": 0.5, "large_pairs": 0.0},
                    {"name": "large", "large_share": None, "large_pairs": 0.0},
                ]
            },
            "it has no policy",
        ),
        ({"conditions": {"depth": None}}, "its policy is no release's"),
        ({"conditions": {"depth": None, "policy": {"rule": {}, "price": "default"}}}, "its policy is no release's"),
        ({"conditions": {"depth": None, "policy": {"policy_digest": "sha256:c"}}}, "it is of the policy sha256:c, and"),
        ({"levels": [{"name": "normal", "large_share": 1.5}]}, "levels.0.large_share"),
        ({"version": None}, "version"),
    ],
)
def test_a_report_that_does_not_tell_is_refused(changes: dict[str, Any], told: str) -> None:
    """No report, no policy, or another release's."""
    with pytest.raises(ConfigError, match=told):
        report_shares(_report(**changes), "r.json", _DIGEST, "normal")


def test_a_share_that_is_not_defined_tells_nothing() -> None:
    """The plan then goes by the worst case."""
    policies = [
        {"name": "large", "large_share": 1.0, "large_pairs": 9.0},
        {"name": "policy", "large_share": None, "large_pairs": None},
    ]
    shares = report_shares(_report(policies=policies), "r.json", _DIGEST, "normal")
    assert shares.evidence("normal", made_release(), made_traffic()) is None
