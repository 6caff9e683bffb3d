"""The load levels of a release: what each is as a whole, and what it changes of a request."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cascade.decision import Level
from cascade.errors import ConfigError
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import NoEscalation, StaticEscalation
from cascade.policy.levels import NORMAL, at_level, changes_means, level_named, level_names
from cascade.policy.release import Release, Stages, parse_release, policy_digest
from cascade.text import Text
from cascade.types import Candidate, Request
from tests.scenario import release_data

_DIGEST: Final = f"sha256:{'0' * 64}"
_CALIBRATED: Final = {"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.002}
_LEVELS: Final[list[dict[str, Any]]] = [
    {"name": "normal"},
    {"name": "degraded-1", "escalation": "none"},
    {"name": "degraded-2", "depth": 20, "escalation": {"kind": "static", "top_m": 5}},
    {"name": "degraded-3", "stages": "none"},
]
_BUDGETS: Final = {"total_ms": 60, "small_ms": 20, "large_ms": 30, "reserve_ms": 5}


def _release(*levels: dict[str, Any], **changes: Any) -> Release:
    return parse_release(release_data(levels=list(levels), **changes))


def _request(count: int, **fields: Any) -> Request:
    candidates = tuple(Candidate(Text(f"text {number}")) for number in range(count))
    given: dict[str, Any] = {"query": Text("query"), "candidates": candidates}
    return Request(**(given | fields))


def test_a_release_without_levels_has_the_normal_one() -> None:
    """Its one level is the release itself."""
    release = parse_release(release_data())
    assert level_names(release) == (NORMAL,)
    assert at_level(release, NORMAL) is release
    assert level_named(release, None) == level_named(release, NORMAL) == Level("normal", 0)


def test_each_level_is_the_release_with_its_own_fields_in_place() -> None:
    """What is named is replaced, what nothing reaches is left out, and all else is the release's own object."""
    release = _release(*_LEVELS)
    assert level_names(release) == ("normal", "degraded-1", "degraded-2", "degraded-3")
    first, second, third = (at_level(release, f"degraded-{number}") for number in (1, 2, 3))
    assert at_level(release, "normal") is release
    assert (first.depth, first.escalation) == (release.depth, NoEscalation())
    assert first.stages == Stages(small=release.stages.small)
    assert (second.depth, second.escalation) == (
        FixedDepth(kind="fixed", depth=20),
        StaticEscalation(kind="static", top_m=5),
    )
    assert second.stages is release.stages
    assert (third.stages, third.escalation, third.depth) == (
        Stages(),
        NoEscalation(),
        FixedDepth(kind="fixed", depth=0),
    )
    for whole in (first, second, third):
        assert (whole.release, whole.limits, whole.levels) == ("r1", release.limits, ())
        assert whole.budgets is release.budgets


def test_a_level_may_split_time_otherwise() -> None:
    """Budgets are overridden as a whole."""
    release = _release({"name": "a"}, {"name": "b", "budgets": _BUDGETS})
    assert at_level(release, "b").budgets.large_ms == 30
    assert at_level(release, "a").budgets.large_ms == 60


def test_a_level_may_pay_less_for_pairs_by_the_same_calibration() -> None:
    """A calibrated rule at another price is a level of its own, and reads the release's calibration."""
    dear = {**_CALIBRATED, "price_per_pair": 0.02}
    release = _release({"name": "a"}, {"name": "b", "escalation": dear}, escalation=_CALIBRATED)
    assert at_level(release, "b").calibration == release.calibration == _DIGEST


def test_a_level_has_a_place() -> None:
    """The first is normal, whatever its name; others are above it."""
    release = _release({"name": "full"}, {"name": "less", "depth": 20})
    assert level_named(release, None) == Level("full", 0)
    assert not level_named(release, "full").is_above_normal
    assert level_named(release, "less") == Level("less", 1)
    assert level_named(release, "less").is_above_normal


@pytest.mark.parametrize("name", ["degraded-9", "", "NORMAL"])
def test_an_unknown_level_is_refused_with_the_names_that_there_are(name: str) -> None:
    """Whoever pins a level reads which ones can be pinned."""
    release = _release({"name": "normal"}, {"name": "less", "depth": 20})
    for ask in (level_named, at_level):
        with pytest.raises(ConfigError, match=r"^level: release r1 has no level of that name; it has normal, less$"):
            ask(release, name)


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ([{"name": "a"}, {"name": "a", "depth": 20}], "levels: each needs a name of its own"),
        ([{"name": "a", "depth": 20}], "level a: the first level is the release as it stands; it overrides nothing"),
        ([{"name": "a"}, {"name": "b", "dept": 20}], "levels.1.dept: Extra inputs are not permitted"),
        ([{"name": "a b"}], "levels.0.name: String should match pattern"),
        ([{"name": "a"}, {"name": "b", "depth": -1}], "levels.1.depth.fixed.depth: Input should be greater"),
        ([{"name": "a"}, {"name": "b", "stages": "small"}], "levels.1.stages: Input should be 'none'"),
        (
            [{"name": "a"}, {"name": "b", "stages": "none", "depth": 20}],
            "stages none answers in first-stage order; leave depth, escalation and budgets out",
        ),
        (
            [{"name": "a"}, {"name": "b", "escalation": _CALIBRATED}],
            "level b: escalation.calibration must be the release's own",
        ),
    ],
)
def test_levels_that_cannot_be_are_refused(levels: list[dict[str, Any]], told: str) -> None:
    """The key or the level, and the rule that it breaks."""
    with pytest.raises(ConfigError) as raised:
        _release(*levels)
    assert told in str(raised.value)


def test_a_level_must_be_a_valid_release_as_a_whole() -> None:
    """A level cannot escalate to a large stage that the release does not have."""
    stages = {"small": release_data()["stages"]["small"]}
    level = {"name": "b", "escalation": {"kind": "static", "top_m": 3}}
    with pytest.raises(ConfigError, match="level b: release: escalation needs a large stage"):
        _release({"name": "a"}, level, stages=stages, escalation="none")


def test_mode_observe_has_no_levels() -> None:
    """There the large stage answers as it did before the sidecar came."""
    with pytest.raises(ConfigError, match="mode observe answers by the large stage as before; it has no levels"):
        _release(*_LEVELS, mode="observe")


def test_the_policy_digest_covers_levels() -> None:
    """Another level is another policy."""
    assert policy_digest(release_data()) != policy_digest(release_data(levels=_LEVELS))
    assert policy_digest(release_data(levels=_LEVELS[:2])) != policy_digest(release_data(levels=_LEVELS[:3]))


def _changed(level: dict[str, Any], request: Request, **changes: Any) -> bool:
    release = _release({"name": "a"}, {"name": "b", **level}, **changes)
    return changes_means(release, at_level(release, "b"), request)


@pytest.mark.parametrize(
    ("level", "count", "changed"),
    [
        ({"depth": 20}, 21, True),
        ({"depth": 20}, 20, False),
        ({"escalation": {"kind": "static", "top_m": 5}}, 6, True),
        ({"escalation": {"kind": "static", "top_m": 5}}, 5, False),
        ({"escalation": "none"}, 1, True),
        ({"stages": "none"}, 1, True),
        ({"budgets": _BUDGETS}, 30, False),
        ({}, 30, False),
    ],
)
def test_a_level_changes_the_means_where_it_does_something_else_for_this_request(
    level: dict[str, Any], count: int, changed: bool
) -> None:
    """What is cut off has to be there to be missed."""
    assert _changed(level, _request(count)) is changed


def test_a_blank_query_is_answered_by_the_same_means_at_any_level() -> None:
    """No stage is asked at normal either."""
    assert not _changed({"stages": "none"}, _request(30, query=Text(" ")))


def test_a_caller_that_wants_the_small_stage_alone_loses_nothing_without_escalation() -> None:
    """Depth still counts for it."""
    assert not _changed({"escalation": "none"}, _request(30, small_only=True))
    assert _changed({"escalation": "none", "depth": 10}, _request(30, small_only=True))


def test_a_release_that_asks_no_stage_has_nothing_to_lose() -> None:
    """Depth 0, no stage, or an escalation of none: first-stage order at every level."""
    stages = release_data()["stages"]
    assert not _changed({"stages": "none"}, _request(30), depth=0)
    assert not _changed({"stages": "none"}, _request(30), stages={}, escalation="none")
    large = {"stages": {"large": stages["large"]}, "escalation": {"kind": "static", "top_m": 0}}
    assert not _changed({"stages": "none"}, _request(30), **large)


def test_rules_that_differ_count_as_a_change() -> None:
    """What a rule over signals or probabilities would have chosen is not worked out."""
    signals = {"kind": "signals", "default": 10, "rules": []}
    assert _changed({"depth": 50}, _request(5), depth=signals)
    assert _changed({"escalation": {"kind": "static", "top_m": 50}}, _request(5), escalation=_CALIBRATED)
    assert not _changed({"budgets": _BUDGETS}, _request(5), depth=signals)
