"""How a release is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cascade.rollout.bundle import Bundle, load_bundle
from cascade.rollout.load import offline
from cascade.rollout.show import description

from .arrange import write_release

_STATIC = {"kind": "static", "top_m": 5}
_LEVELS: list[dict[str, Any]] = [
    {"name": "normal"},
    {"name": "degraded-1", "escalation": "none"},
    {"name": "degraded-2", "depth": 20, "escalation": "none"},
    {"name": "degraded-3", "stages": "none"},
]


def _bundle(folder: Path, **changes: Any) -> Bundle:
    return load_bundle(write_release(folder, **changes).path, offline({}))


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


def test_a_release_is_shown_without_a_calibration_and_without_evidence(tmp_path: Path) -> None:
    """None is said; one that cannot be used says why."""
    lines = description(_bundle(tmp_path / "none", escalation=_STATIC, evidence=None))
    assert lines[-3:] == ["calibration    none", "certificate    none", "report         none"]
    written = write_release(tmp_path / "missing")
    written.calibration.unlink()
    lines = description(load_bundle(written.path, {}))
    assert any(line.startswith("calibration    cannot be used: artefact sha256:") for line in lines)


def test_a_fitted_order_is_shown(tmp_path: Path) -> None:
    """It decides the places of what the large stage scored."""
    rule = {"kind": "static-fused", "calibration": f"sha256:{'0' * 64}", "top_m": 5, "final_order": "fitted"}
    (line,) = [line for line in description(_bundle(tmp_path, escalation=rule)) if line.startswith("escalation")]
    assert "what it scores is ordered by the calibration's fitted order" in line
