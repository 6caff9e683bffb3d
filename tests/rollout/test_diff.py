"""What changes for traffic from one release to another."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from cascade.policy.release import parse_release
from cascade.rollout.bundle import Bundle, load_bundle
from cascade.rollout.diff import differences
from cascade.rollout.load import offline
from tests.scenario import release_data
from tests.server.sidecar import bundle_of

from .arrange import artefact_for, stage_data, write_release


def _bundle(folder: Path, artefact: Any = None, **changes: Any) -> Bundle:
    return load_bundle(write_release(folder, artefact, **changes).path, offline({}))


def _told(folder: Path, one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return differences(_bundle(folder / "one", **one), _bundle(folder / "other", **other))


@pytest.mark.parametrize(
    "other", [{"release": "r2"}, {"evidence": None}, {"depth": {"depth": 50}}, {"limits": {"max_candidates": 200}}]
)
def test_name_evidence_and_what_is_the_default_change_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    """The same behaviour in other words is no change for traffic."""
    assert _told(tmp_path, {}, other) == []


_BUDGETS = {"total_ms": 100, "small_ms": 40, "large_ms": 60, "reserve_ms": 10}
_SMALL = {"small": stage_data("small")}
_BOTH = {**_SMALL, "large": stage_data("large")}
_ONNX = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": "f"}}
_STATIC = {"kind": "static", "top_m": 20}
_CHAT = {"adapter": "chat", "score_space": "rank"}
_FUSED = {"kind": "static-fused", "calibration": f"sha256:{'0' * 64}", "top_m": 20}
_FUSED_WORDS = "go to the large stage; where the calibration does not hold, the first 20 of the small order"
_LARGE_WORDS = "org/large, float32, tei/1.9, passthrough@1, 512 tokens, logit"


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ({}, {"depth": 100}, ["depth: the first 50 candidates -> the first 100 candidates"]),
        (
            {},
            {"depth": {"kind": "skip", "duplicate_head": 0.9}},
            ["depth: the first 50 candidates -> no candidate; the first 20 where the head repeats itself"],
        ),
        (
            {"depth": {"kind": "skip"}},
            {"depth": {"kind": "skip", "duplicate_head": 0.9}},
            ["depth.duplicate_head: 0.8 -> 0.9"],
        ),
        (
            {"depth": {"kind": "skip"}},
            {"depth": {"kind": "skip", "default": 30, "duplicate_head": 0.9}},
            [
                (
                    "depth: no candidate; the first 20 where the head repeats itself -> no candidate; the first 30 where "
                    "the head repeats itself"
                ),
                "depth.duplicate_head: 0.8 -> 0.9",
            ],
        ),
        (
            {"escalation": _FUSED},
            {"escalation": {**_FUSED, "top_m": 10, "final_order": "fitted"}},
            [
                (
                    f"escalation: the 20 candidates of most expected value at 10 {_FUSED_WORDS} -> the 10 candidates of most "
                    "expected value at 10 go to the large stage; what it scores is ordered by the calibration's fitted "
                    "order; where the calibration does not hold, the first 20 of the small order"
                ),
            ],
        ),
        (
            {"budgets": _BUDGETS},
            {"budgets": _BUDGETS | {"total_ms": 100.00001}},
            ["budgets.total_ms: 100 -> 100.00001 (Deadline where the caller names none)"],
        ),
        (
            {"stages": {"small": _ONNX}, "escalation": "none"},
            {"stages": {"small": {**_ONNX, "attention": "exported"}}, "escalation": "none"},
            ["stages.small.attention: exact -> exported"],
        ),
        (
            {"stages": {**_SMALL, "large": stage_data("large", **_CHAT)}, "escalation": _STATIC},
            {
                "stages": {**_SMALL, "large": stage_data("large", **_CHAT, passage_tokens=128)},
                "escalation": _STATIC,
            },
            ["stages.large.passage_tokens: 256 -> 128; its scores are others"],
        ),
        (
            {"limits": {"tenants": {"acme": {"weight": 3}}}},
            {"limits": {"tenants": {"acme": {"weight": 2}}}},
            [
                "limits.tenants.acme.weight: 3 -> 2 (Weights and quotas by tenant; one that is not named has a weight of 1 and no quota. No part of the policy digest)"
            ],
        ),
        (
            {},
            {"budgets": _BUDGETS | {"total_ms": 80.5}},
            ["budgets.total_ms: 100 -> 80.5 (Deadline where the caller names none)"],
        ),
        (
            {},
            {"limits": {"max_candidates": 100}},
            ["limits.max_candidates: 200 -> 100 (Candidates scored; the rest keep first-stage order)"],
        ),
        ({}, {"fallback": "error"}, ["fallback: original-order -> error"]),
        ({}, {"probe": "enforce"}, ["probe: warn -> enforce"]),
        (
            {},
            {"stages": {**_BOTH, "small": stage_data("small", dtype="float16", url="${SERVER}", connect_ms=50)}},
            [
                "stages.small.connect_ms: 1000 -> 50",
                "stages.small.dtype: float32 -> float16; its scores are others",
                "stages.small.url: http://stage.example -> ${SERVER}",
            ],
        ),
        (
            {},
            {"stages": {**_BOTH, "small": stage_data("small", auth={"env": "KEY"})}},
            ["stages.small.auth.env: not there -> KEY"],
        ),
        (
            {"stages": {"small": _ONNX}, "escalation": "none"},
            {
                "stages": {"small": {**_ONNX, "batching": {"mode": "token-budget"}, "windows": {"most": 3}}},
                "escalation": "none",
            },
            [
                "stages.small.batching.max_pairs: not there -> 32",
                "stages.small.batching.max_total_tokens: not there -> 512",
                "stages.small.batching.max_wait_ms: not there -> 0",
                "stages.small.batching.mode: one-pair -> token-budget; its scores are others",
                "stages.small.windows.most: not there -> 3; its scores are others",
                "stages.small.windows.overlap_tokens: not there -> 32; its scores are others",
            ],
        ),
        (
            {"stages": _SMALL, "escalation": "none"},
            {"stages": {**_SMALL, "large": stage_data("large", adapter="vllm")}, "escalation": _STATIC},
            [
                "escalation: nothing goes to the large stage -> the first 20 of the small order go to the large stage",
                f"stages.large: none -> vllm: {_LARGE_WORDS}; its scores are others",
            ],
        ),
    ],
)
def test_each_change_is_a_line(tmp_path: Path, one: dict[str, Any], other: dict[str, Any], told: list[str]) -> None:
    """Before and after, and what it means where that is known."""
    assert _told(tmp_path, one, other) == told


_WHEN = [{"signal": "bm25.gap_tail", "at_least": 3.0}]
_CALIBRATED = {"kind": "calibrated", "calibration": f"sha256:{'0' * 64}", "price_per_pair": 0.002}
_SIGNALS = {"kind": "signals", "default": 50, "rules": []}


@pytest.mark.parametrize(
    ("part", "base", "changes"),
    [
        (
            "escalation",
            _CALIBRATED,
            {
                "k": 5, "price_per_pair": 0.0020000001, "first_round_factor": 4.0, "chunk": 5, "max_share": 0.5,
                "accept": {"margin_at_least": 0.5}, "direct": {"when": _WHEN}, "margin_noise": 0.01, "safe_top_m": 3,
                "final_order": "fitted",
            },
        ),
        (
            "depth",
            _SIGNALS,
            {
                "default": 40, "least": 2, "most": 100, "duplicate_head": 0.9, "answer_separation": 2.0,
                "rules": [{"when": _WHEN, "depth": 20}],
            },
        ),
    ],
)  # fmt: skip
def test_no_change_hides_another(part: str, base: dict[str, Any], changes: dict[str, Any]) -> None:
    """Of two changes more is told than of either: what is said in words, and what is named by its key."""

    def told(*names: str) -> list[str]:
        release = {"stages": _BOTH, "escalation": _STATIC, part: base}
        other = {**release, part: base | {name: changes[name] for name in names}}
        return differences(*(bundle_of(parse_release(release_data(**data))) for data in (release, other)))

    assert told() == []
    for one, other in combinations(changes, 2):
        assert told(one, other) not in ([], told(one), told(other)), (one, other)


def test_another_calibration_is_told_by_digest_and_by_what_it_was_fitted_on(tmp_path: Path) -> None:
    """Only what differs of the two is said."""
    one, other = _bundle(tmp_path / "one"), _bundle(tmp_path / "other", artefact_for(channels=("bm25", "dense")))
    digests = [bundle.loaded.release.calibration for bundle in (one, other)]
    assert differences(one, other) == [
        f"calibration: {digests[0]} -> {digests[1]}",
        "  was: requests must carry the channels: bm25",
        "  now: requests must carry the channels: bm25, dense",
    ]


def test_a_calibration_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A difference from what is missing cannot be said."""
    one = _bundle(tmp_path / "one", escalation=_STATIC)
    written = write_release(tmp_path / "other")
    written.calibration.unlink()
    told = differences(one, load_bundle(written.path, {}))
    assert told[1] == f"calibration: none -> {written.digest}"
    assert told[2].startswith("  now: cannot be used: artefact sha256:")


_TEN, _NOTHING = "the first 10 candidates", "nothing goes to the large stage"
_TIMES = "100 ms in all, small 40, large 60, kept 10"
_LEVELS: list[dict[str, Any]] = [
    {"name": "normal"},
    {"name": "degraded-1", "escalation": "none"},
    {"name": "degraded-2", "depth": 20, "escalation": "none"},
    {"name": "degraded-3", "stages": "none"},
]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            _LEVELS[:2],
            [_LEVELS[0], _LEVELS[3]],
            [
                "level degraded-1: nothing goes to the large stage -> not there",
                "level degraded-3: not there -> no stage is asked: first-stage order",
            ],
        ),
        (
            _LEVELS[:2],
            [_LEVELS[0], {**_LEVELS[1], "depth": 10, "budgets": _BUDGETS}],
            [f"level degraded-1: nothing goes to the large stage -> {_TEN}; {_NOTHING}; {_TIMES}"],
        ),
        (
            _LEVELS[:3],
            [_LEVELS[0], _LEVELS[2], _LEVELS[1]],
            ["levels, cheapest last: normal, degraded-1, degraded-2 -> normal, degraded-2, degraded-1"],
        ),
        (
            [_LEVELS[0], {"name": "x", "depth": {"kind": "skip"}}],
            [_LEVELS[0], {"name": "x", "depth": {"kind": "skip", "duplicate_head": 0.9}}],
            ["level x.depth.duplicate_head: 0.8 -> 0.9"],
        ),
    ],
)
def test_each_change_of_a_load_level_is_a_line(
    tmp_path: Path, before: list[dict[str, Any]], after: list[dict[str, Any]], told: list[str]
) -> None:
    """Levels that came, went, changed or changed places."""
    assert _told(tmp_path, {"levels": before}, {"levels": after}) == told
