"""Load levels that cannot have been meant."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cascade.policy.release import parse_release
from cascade.rollout.level_sanity import levels_not_meant

from .arrange import artefact_for, calibrated_data

_DIGEST: Final = f"sha256:{'0' * 64}"
_STATIC: Final = {"kind": "static", "top_m": 20}
_BUDGETS: Final = {"total_ms": 60, "small_ms": 20, "large_ms": 30, "reserve_ms": 5}
_RULE: Final = {"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.002}


def _told(*levels: dict[str, Any], **changes: Any) -> list[str]:
    named = [{"name": "normal"}, *({"name": f"l{number}", **level} for number, level in enumerate(levels, 1))]
    release = parse_release(calibrated_data(_DIGEST, levels=named, **changes))
    return list(levels_not_meant(release, artefact_for()))


def test_nothing_is_said_of_levels_that_each_cost_less() -> None:
    """Fewer pairs at one stage and no more at the other; or a higher price."""
    assert _told({"escalation": "none"}, {"escalation": "none", "depth": 20}, {"stages": "none"}) == []
    assert _told({"escalation": {**_RULE, "price_per_pair": 0.02}}) == []
    assert _told() == []


def test_nothing_is_said_of_a_release_without_levels() -> None:
    """There is nothing to compare."""
    assert list(levels_not_meant(parse_release(calibrated_data(_DIGEST)), None)) == []


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        (
            [{"depth": 60}],
            ["level l1: it may score 60 candidates at the small stage, and the level before no more than 50",
             "level l1: it may score 60 candidates at the large stage, and the level before no more than 50"],
        ),
        (
            [{"escalation": "none"}, {"depth": 40, "escalation": _STATIC}],
            ["level l2: it may score 20 candidates at the large stage, and the level before no more than 0"],
        ),
        ([{"depth": 20}, {"depth": 20}], ["level l2: it does what the level before does"]),
        ([{}], ["level l1: it does what the level before does"]),
        (
            [{"budgets": _BUDGETS}],
            ["level l1: it differs from the level before in its budgets alone: it sends as much"],
        ),
        (
            [{"escalation": {**_RULE, "price_per_pair": 0.001}}],
            ["level l1: its price 0.001 a pair is below 0.002 of the level before: it escalates more"],
        ),
        (
            [{"depth": 20, "escalation": {"kind": "static", "top_m": 30}}],
            ["level l1: escalation.top_m 30 is above the depth 20: no more than 20 go"],
        ),
    ],
)  # fmt: skip
def test_a_level_that_is_not_cheaper_is_told(levels: list[dict[str, Any]], told: list[str]) -> None:
    """So is what a level says and does not do, where the release as it stands does not say it too."""
    assert _told(*levels) == told
