"""What is said of depth, escalation, stages and calibrations."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.calibration.artefact import PricePoint
from cascade.policy.depth_rules import EXAMPLE
from cascade.policy.release import parse_release
from cascade.rollout.words import calibration_lines, depth_words, escalation_words, stage_words
from cascade.testing.calibration import scripted_artefact

from .arrange import artefact_for, calibrated_data

_DIGEST = f"sha256:{'0' * 64}"
_IDENTIFIER = "query.class is identifier and bm25.gap_tail is at least 3"
_FLAT = "bm25.entropy is at least 0.85 and overlap_20.bm25.dense is at most 0.25"
_GRID: list[dict[str, Any]] = [
    {"depth": depth, "intercept": 0.0, "weights": [], "missing": []} for depth in (0, 20, 100)
]


@pytest.mark.parametrize(
    ("depth", "said"),
    [
        (50, "the first 50 candidates"),
        (0, "no candidate"),
        ({"kind": "skip"}, "no candidate; the first 20 where the head repeats itself"),
        (
            {"kind": "greedy", "default": 50, "classes": {"identifier": "skip", "other": 80}},
            "by query class: identifier none, other 80; else 50; between 1 and 200",
        ),
        ({"kind": "greedy", "default": 50, "classes": {}}, "by query class: none named; else 50; between 1 and 200"),
        (
            EXAMPLE,
            f"20 where {_IDENTIFIER}; 100 where {_FLAT}; else 50; between 1 and 100",
        ),
        ({"kind": "signals", "default": 50, "rules": []}, "else 50; between 1 and 200"),
        (
            {"kind": "gain", "default": 50, "price_per_candidate": 0.001, "signals": [], "depths": _GRID},
            "as deep as the predicted gain pays 0.001 a candidate, of 0, 20, 100; between 1 and 200",
        ),
    ],
)
def test_depth_is_said_in_words(depth: Any, said: str) -> None:
    """Each kind has a sentence with its numbers."""
    assert depth_words(parse_release(calibrated_data(_DIGEST, depth=depth)).depth) == said


_ACCEPT = "the small order stands where margin at least 0.8 and entropy at most 1.5"
_DIRECT = (
    "the first 7 of the first-stage order go straight to the large stage where bm25.gap is above 1 and below 2 and "
    "query.script is han"
)
_SAFE = "where the calibration does not hold, the first 20 of the small order"
_WORTH = "candidates worth at least 0.002 of the large order's gain at 10 go to the large stage"
_TWO = "in two rounds: first those worth 8 times as much, or 10 where that is more"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"kind": "static", "top_m": 20}, "the first 20 of the small order go to the large stage"),
        (
            {"kind": "static-fused", "top_m": 20, "calibration": _DIGEST},
            f"the 20 candidates of most expected value at 10 go to the large stage; {_SAFE}",
        ),
        (
            {"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.002, "rounds": 1},
            f"{_WORTH}, in one round; {_SAFE}",
        ),
        (
            {
                "kind": "calibrated",
                "calibration": _DIGEST,
                "price_per_pair": 0.002,
                "max_share": 0.5,
                "accept": {"margin_at_least": 0.8, "entropy_at_most": 1.5},
                "direct": {"when": [{"signal": "bm25.gap", "above": 1, "below": 2}, {"script": ["han"]}], "top_m": 7},
            },
            f"{_WORTH}, {_TWO}; at most 50% of the depth; {_ACCEPT}; {_DIRECT}; {_SAFE}",
        ),
    ],
)
def test_escalation_is_said_in_words(rule: dict[str, Any], said: str) -> None:
    """Each kind says what goes to the large stage, and what happens where its calibration does not hold."""
    assert escalation_words(parse_release(calibrated_data(_DIGEST, escalation=rule)).escalation) == said


def test_no_escalation_and_no_stage_are_said() -> None:
    """A release of first-stage order says so."""
    release = parse_release(calibrated_data(_DIGEST, stages={}, escalation="none"))
    assert escalation_words(release.escalation) == "nothing goes to the large stage"
    assert stage_words(release.stages.small) == "none"
    told = parse_release(calibrated_data(_DIGEST, stages={}, escalation={"kind": "none", "reason": "no gain"}))
    assert escalation_words(told.escalation) == "nothing goes to the large stage: no gain"


def test_a_stage_is_said_without_its_address() -> None:
    """Adapter, model, revision and what else its scores depend on."""
    data = calibrated_data(_DIGEST)
    data["stages"]["small"] |= {"revision": "abc", "url": "http://kingfisher.test"}
    release = parse_release(data)
    said = "tei: org/small at abc, float32, tei/1.9, passthrough@1, 512 tokens, logit"
    assert stage_words(release.stages.small) == said
    assert stage_words(release.stages.large) == said.replace("small at abc", "large")


def test_a_calibration_is_said_with_what_it_was_fitted_on_and_found() -> None:
    """Size, slice, channels, scorers, range, benefit and prices, a line each."""
    price = PricePoint(target=0.95, price=0.0016, recovered=0.951, large_share=0.36, judged_by="large-scores")
    artefact = artefact_for(prices=[price])
    artefact = artefact.model_copy(
        update={
            "trained_on": artefact.trained_on.model_copy(update={"where": {"source": "A"}}),
            "notes": ("final order: not fitted",),
        }
    )
    assert calibration_lines(artefact) == [
        "fitted on 100 queries, 2000 pairs (source=A)",
        "for the top 10; first-stage order: rank_first",
        "requests must carry the channels: bm25",
        "small: small, logit: org/small, float32, tei/1.9",
        "large: large, logit: org/large, float32, tei/1.9",
        "holds for 2 to 200 candidates",
        "that the large stage helps is shown: ndcg@5 +0.0500 [+0.0200, +0.0800] over 100 judged queries",
        "price 0.0016 recovered 95.1% of the difference, aimed at 95%, with 36.0% of the pairs, judged by large-scores",
        "final order: not fitted",
    ]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("none-found", "none-found: ndcg@5 -0.0100 [-0.0400, +0.0200] over 100 judged queries"),
        ("not-shown", "not shown: 0 judged queries"),
    ],
)
def test_that_the_large_stage_does_not_help_is_said(status: Any, said: str) -> None:
    """Refuted with its interval, or not shown at all; a scorer of which only the name is known says so."""
    lines = calibration_lines(scripted_artefact((), benefit=status))
    assert f"that the large stage helps is {said}" in lines
    assert "small: small, logit; only its name is known" in lines
    assert "requests must carry the channels: none" in lines
