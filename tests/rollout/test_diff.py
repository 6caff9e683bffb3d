"""What changes for traffic from one release to another, and how a release is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cascade.rollout.bundle import Bundle, load_bundle
from cascade.rollout.diff import differences
from cascade.rollout.load import offline
from cascade.rollout.show import description

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


def test_a_release_is_shown_in_words_without_its_addresses(tmp_path: Path) -> None:
    """Name, digests, stages, depth, escalation, time, calibration and evidence."""
    bundle = _bundle(tmp_path)
    lines = description(bundle)
    assert [line.partition("  ")[0] for line in lines if line[0] != " "] == [
        "release", "digest", "policy digest", "mode", "small stage", "large stage", "depth", "escalation", "time", "levels",
        "rollout", "calibration", "certificate", "report",
    ]  # fmt: skip
    assert lines[1].endswith(bundle.loaded.digest)
    assert f"calibration    {bundle.loaded.release.calibration}" in lines
    assert "               requests must carry the channels: bm25" in lines
    assert "time           100 ms in all, small 40, large 60, kept 10; where it is not enough: original-order" in lines
    assert "stage.example" not in "".join(lines)


_TEN, _NOTHING = "the first 10 candidates", "nothing goes to the large stage"
_TIMES = "100 ms in all, small 40, large 60, kept 10"
_LEVELS: list[dict[str, Any]] = [
    {"name": "normal"},
    {"name": "degraded-1", "escalation": "none"},
    {"name": "degraded-2", "depth": 20, "escalation": "none"},
    {"name": "degraded-3", "stages": "none"},
]


def test_load_levels_are_shown_in_words(tmp_path: Path) -> None:
    """A line each, and one that says so where there are none."""
    lines = description(_bundle(tmp_path / "levels", levels=_LEVELS))
    known = "; nDCG 0.500, -0.0100 to always-large"
    at = lines.index(f"levels         normal: the release as it stands{known}")
    assert lines[at + 1 : at + 4] == [
        f"               degraded-1: nothing goes to the large stage{known}",
        f"               degraded-2: the first 20 candidates; nothing goes to the large stage{known}",
        f"               degraded-3: no stage is asked: first-stage order{known}",
    ]
    unmeasured = description(_bundle(tmp_path / "unmeasured", levels=_LEVELS, evidence=None))
    assert f"{lines[at].removesuffix(known)}; its quality is not measured" in unmeasured
    assert "levels         none beside the release as it stands" in description(_bundle(tmp_path / "none"))


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


def test_a_release_is_shown_without_a_calibration_and_without_evidence(tmp_path: Path) -> None:
    """None is said; one that cannot be used says why."""
    lines = description(_bundle(tmp_path / "none", escalation=_STATIC, evidence=None))
    assert lines[-3:] == ["calibration    none", "certificate    none", "report         none"]
    written = write_release(tmp_path / "missing")
    written.calibration.unlink()
    lines = description(load_bundle(written.path, {}))
    assert any(line.startswith("calibration    cannot be used: artefact sha256:") for line in lines)
