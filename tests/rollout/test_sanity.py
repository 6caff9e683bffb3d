"""What is allowed in a release and cannot have been meant."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.policy.depth_rules import EXAMPLE
from cascade.policy.release import parse_release
from cascade.rollout.sanity import not_meant
from cascade.rollout.signal_channels import channels_named

from .arrange import artefact_for, calibrated_data, stage_data

_DIGEST = f"sha256:{'0' * 64}"
_RULE = {"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.002}
_GRID: list[dict[str, Any]] = [
    {"depth": depth, "intercept": 0.0, "weights": [], "missing": []} for depth in (0, 20, 300)
]


def _told(artefact: dict[str, Any] | None = None, **changes: Any) -> list[str]:
    release = parse_release(calibrated_data(_DIGEST, **changes))
    return list(not_meant(release, None if artefact is None else artefact_for(**artefact)))


def test_nothing_is_said_of_a_release_that_does_what_it_says() -> None:
    """With its calibration and without."""
    assert _told() == _told({}) == []
    assert _told(stages={"small": stage_data("small")}, escalation="none") == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"depth": 300},
            "depth 300 is above limits.max_candidates 200: no more than 200 are scored",
        ),
        (
            {"budgets": {"total_ms": 100, "small_ms": 95, "large_ms": 60, "reserve_ms": 10}},
            "budgets.small_ms 95 is more than total_ms leaves: the deadline ends the stage sooner",
        ),
        (
            {"budgets": {"total_ms": 100, "small_ms": 40, "large_ms": 90.5, "reserve_ms": 10}},
            "budgets.large_ms 90.5 is more than total_ms leaves: the deadline ends the stage sooner",
        ),
        (
            {"escalation": {"kind": "static", "top_m": 60}},
            "escalation.top_m 60 is above the depth 50: no more than 50 go",
        ),
        (
            {"escalation": {"kind": "static", "top_m": 0}},
            "escalation.top_m is 0: the large stage then scores nothing",
        ),
        (
            {"escalation": {"kind": "static-fused", "top_m": 10, "safe_top_m": 51, "calibration": _DIGEST}},
            "escalation.safe_top_m 51 is above the depth 50: no more than 50 go",
        ),
        (
            {"escalation": _RULE | {"safe_top_m": 0}},
            "escalation.safe_top_m is 0: the large stage then scores nothing",
        ),
        (
            {"escalation": _RULE | {"direct": {"when": [{"signal": "bm25.gap", "at_least": 1}], "top_m": 51}}},
            "escalation.direct.top_m 51 is above the depth 50: no more than 50 go",
        ),
        (
            {"escalation": _RULE | {"max_share": 0.01}},
            "escalation.max_share 0.01 of the depth 50 is no candidate: nothing escalates",
        ),
        (
            {"escalation": _RULE | {"max_share": 0.1}},
            "escalation.chunk 10 is above the 5 that max_share allows: there is no second round",
        ),
        (
            {
                "depth": {
                    "kind": "signals",
                    "default": 50,
                    "rules": [{"when": [{"signal": "small.entropy", "at_least": 0.5}], "depth": 20}],
                },
                "escalation": _RULE | {"direct": {"when": [{"signal": "small.flips_5", "at_most": 1}]}},
            },
            (
                "signals of the small stage are read before it scores, so they are always missing: "
                "small.entropy, small.flips_5"
            ),
        ),
    ],
)
def test_what_does_not_do_what_it_says_is_told(changes: dict[str, Any], told: str) -> None:
    """One sentence names the key, its value and what happens."""
    assert _told(**changes) == [told]


@pytest.mark.parametrize(
    ("artefact", "changes", "told"),
    [
        (
            {"second_round": False},
            {},
            "escalation.rounds is 2 and the calibration has no second round: there is one",
        ),
        (
            {},
            {"escalation": _RULE | {"k": 3}},
            "escalation.k is 3 and the calibration was fitted for 10: its prices are for that",
        ),
        (
            {"most_candidates": 40},
            {},
            "depth 50 is above the 40 candidates that the calibration holds for",
        ),
        (
            {"least_candidates": 60},
            {},
            "depth 50 is below the 60 candidates that the calibration holds for",
        ),
        (
            {},
            {"depth": EXAMPLE},
            "signals read channels that the calibration does not: dense",
        ),
        (
            {},
            {"escalation": _RULE | {"direct": {"when": [{"signal": "splade.gap", "at_least": 1}]}}},
            "signals read channels that the calibration does not: splade",
        ),
    ],
)
def test_what_does_not_go_with_the_calibration_is_told(
    artefact: dict[str, Any], changes: dict[str, Any], told: str
) -> None:
    """Rounds, head, depth and channels are held against the artefact."""
    assert _told(artefact, **changes) == [told]


def test_channels_are_read_from_names_of_signals() -> None:
    """A channel's, a pair's, none of a signal of the whole, and never the small stage."""
    names = ["bm25.gap", "overlap_10.bm25.dense", "query.class", "query.tokens", "head.duplicate", "small.entropy"]
    assert channels_named(names) == {"bm25", "dense"}
