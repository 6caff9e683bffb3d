"""Everything that can be known of a release before it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from cascade.calibration.artefact import CalibrationArtefact, artefact_digest
from cascade.errors import ConfigError
from cascade.rollout.bundle import build_bundle
from cascade.rollout.verify import Severity, Verification, verify

from .arrange import artefact_for, calibrated_data, digest_for, report_for, stage_data, write_release


def _verified(folder: Path, artefact: CalibrationArtefact | None = None, **changes: Any) -> Verification:
    return verify(write_release(folder, artefact, **changes).path, {})


def _told(done: Verification) -> list[tuple[Severity, str]]:
    return [(finding.severity, finding.what) for finding in done.findings]


def test_a_sound_release_passes_strictly(tmp_path: Path) -> None:
    """Nothing is found, and its calibration comes with it."""
    done = _verified(tmp_path)
    assert done.findings == ()
    assert done.passes(strict=True)
    assert done.calibration is not None


def test_another_digest_than_the_one_asked_for_is_an_error(tmp_path: Path) -> None:
    """A bundle is named by its digest."""
    path = write_release(tmp_path).path
    digest = verify(path, {}).loaded.digest
    assert verify(path, {}, digest).findings == ()
    other = f"sha256:{'0' * 64}"
    assert _told(verify(path, {}, other)) == [
        (Severity.ERROR, f"its digest is {digest}, not the one asked for"),
    ]


def test_a_missing_calibration_is_an_error(tmp_path: Path) -> None:
    """What serve answers by its safe mode is not rolled out."""
    written = write_release(tmp_path)
    written.calibration.unlink()
    done = verify(written.path, {})
    assert [severity for severity, _ in _told(done)] == [Severity.ERROR]
    assert not done.passes(strict=False)


def test_an_altered_artefact_of_a_bundle_is_an_error(tmp_path: Path) -> None:
    """Bytes are held against their name."""
    written = write_release(tmp_path)
    build_bundle(written.path, tmp_path / "bundle", {})
    path = tmp_path / "bundle" / "artifacts" / f"{written.digest.removeprefix('sha256:')}.json"
    path.write_bytes(path.read_bytes().replace(b'"k":10', b'"k":5'))
    ((severity, what),) = _told(verify(tmp_path / "bundle", {}))
    assert severity is Severity.ERROR
    assert "it was altered" in what


def test_a_stray_file_is_a_warning(tmp_path: Path) -> None:
    """Somebody thought that it belongs to the bundle."""
    build_bundle(write_release(tmp_path).path, tmp_path / "bundle", {})
    (tmp_path / "bundle" / "notes.txt").write_bytes(b"")
    assert _told(verify(tmp_path / "bundle", {})) == [(Severity.WARNING, "notes.txt: no file of a bundle")]


@pytest.mark.parametrize(
    ("benefit", "mode", "severity"),
    [
        ("none-found", "cascade", Severity.ERROR),
        ("none-found", "observe", Severity.WARNING),
        ("not-shown", "cascade", Severity.WARNING),
    ],
)
def test_escalating_without_evidence_that_it_helps_is_found(
    tmp_path: Path, benefit: Any, mode: str, severity: Severity
) -> None:
    """Refuted is an error where the escalation decides answers; not shown is a warning."""
    ((found, what),) = _told(_verified(tmp_path, artefact_for(benefit=benefit), mode=mode))
    assert found is severity
    assert what.startswith("it escalates, and ")


def test_stages_that_are_not_what_was_fitted_on_are_an_error(tmp_path: Path) -> None:
    """Estimates of another model's scores do not hold."""
    stages = {"small": stage_data("small", dtype="float16"), "large": stage_data("large")}
    assert _told(_verified(tmp_path, stages=stages)) == [
        (Severity.ERROR, "calibration, small stage: dtype: declared float16, fitted on float32"),
        (Severity.ERROR, "evidence, certificate, small stage: dtype: declared float16, fitted on float32"),
    ]


def test_what_cannot_be_compared_is_a_warning(tmp_path: Path) -> None:
    """A table that knew only names is let pass, and not strictly."""
    done = _verified(tmp_path, artefact_for(small=None))
    assert _told(done) == [
        (Severity.WARNING, "calibration, small stage: fitted on small, of which only the name is known")
    ]
    assert done.passes(strict=False)
    assert not done.passes(strict=True)


def test_a_serializer_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    """The stage could not start."""
    stages = {"small": stage_data("small", serializer="unheard@1"), "large": stage_data("large")}
    told = _told(_verified(tmp_path, stages=stages))
    assert [severity for severity, _ in told] == [Severity.ERROR, Severity.ERROR]
    assert all("unheard@1" in what for _, what in told)


def test_a_variable_that_is_not_set_is_a_warning_and_its_value_not_compared(tmp_path: Path) -> None:
    """Set, it says another model than the one fitted on."""
    stages = {"small": stage_data("small", model="${MODEL}"), "large": stage_data("large")}
    path = write_release(tmp_path, stages=stages).path
    unset = verify(path, {})
    assert _told(unset) == [
        (Severity.WARNING, "variables are not set, and what they say is not compared: MODEL"),
    ]
    assert unset.passes(strict=False)
    assert verify(path, {"MODEL": "org/small"}).findings == ()
    assert not verify(path, {"MODEL": "org/other"}).passes(strict=False)


def test_an_address_that_is_not_set_is_not_told(tmp_path: Path) -> None:
    """Nothing is compared with it, so a pipeline that verifies strictly needs no address."""
    stages = {"small": stage_data("small", url="${SERVER}", auth={"env": "KEY"}), "large": stage_data("large")}
    assert _verified(tmp_path, stages=stages).passes(strict=True)


def test_evidence_that_is_not_named_is_a_warning(tmp_path: Path) -> None:
    """Each kind by itself."""
    assert _told(_verified(tmp_path, evidence=None)) == [
        (Severity.WARNING, "evidence: it names no certificate"),
        (Severity.WARNING, "evidence: it names no report"),
    ]


def test_evidence_that_is_named_and_not_there_or_no_json_is_an_error(tmp_path: Path) -> None:
    """What is named must be read."""
    content = b"no json"
    digest = artefact_digest(content)
    written = write_release(tmp_path, evidence={"certificate": f"sha256:{'0' * 64}", "report": digest})
    (tmp_path / "calibration" / "report.json").write_bytes(content)
    (missing, unreadable) = _told(verify(written.path, {}))
    assert missing[0] is unreadable[0] is Severity.ERROR
    assert missing[1].startswith("evidence, certificate: artefact sha256:000")
    assert unreadable[1] == f"evidence, report: {digest} is not JSON"


def test_errors_come_before_warnings(tmp_path: Path) -> None:
    """What cannot have been meant is a warning, and told last."""
    written = write_release(tmp_path, depth=300, evidence=None)
    written.calibration.unlink()
    told = [severity for severity, _ in _told(verify(written.path, {}))]
    assert told == [Severity.ERROR, *(Severity.WARNING,) * 3]


def test_what_is_no_release_is_an_error_of_its_own(tmp_path: Path) -> None:
    """There is nothing to verify."""
    with pytest.raises(ConfigError, match="cannot be read"):
        verify(tmp_path / "none.yaml", {})


_LEVELS: Final = [{"name": "normal"}, {"name": "small", "escalation": "none"}, {"name": "none", "stages": "none"}]


def _reported(folder: Path, report: bytes, **changes: Any) -> list[tuple[Severity, str]]:
    """Return what is found of a release that names this report."""
    release = calibrated_data(digest_for(), **changes)
    evidence = {**release["evidence"], "report": artefact_digest(report)}
    written = write_release(folder, **changes, evidence=evidence)
    (folder / "calibration" / "report.json").write_bytes(report)
    return _told(verify(written.path, {}))


def test_a_report_of_every_level_of_this_policy_is_evidence(tmp_path: Path) -> None:
    """What each level loses is known before load chooses it."""
    assert _reported(tmp_path, report_for(calibrated_data(digest_for(), levels=_LEVELS)), levels=_LEVELS) == []


@pytest.mark.parametrize("lost", [None, "minus_always_large"])
def test_a_level_whose_quality_is_not_told_is_a_warning(tmp_path: Path, lost: str | None) -> None:
    """Not strictly a release, then: left out of the report, or without judgements to tell it by."""
    lines: list[dict[str, Any]] = [
        {"name": level["name"], "ndcg": 0.5, "minus_always_large": -0.01} for level in _LEVELS
    ]
    lines = [{**line, lost: None} for line in lines] if lost else lines[:2]
    report = report_for(calibrated_data(digest_for(), levels=_LEVELS), levels=lines)
    told = _reported(tmp_path, report, levels=_LEVELS)
    names = ["normal", "small", "none"] if lost else ["none"]
    assert told == [
        (Severity.WARNING, f"evidence, report: it does not tell the quality of the level {name}") for name in names
    ]


def test_a_report_of_another_policy_or_of_none_is_an_error(tmp_path: Path) -> None:
    """As for a certificate."""
    other = report_for(calibrated_data(digest_for(), depth=30))
    ((severity, what),) = _reported(tmp_path / "a", other)
    assert severity is Severity.ERROR
    assert what.startswith("evidence, report: its report is of the policy sha256:")
    none = report_for({}, conditions={"policy": {"calibration": "sha256:0"}})
    assert _reported(tmp_path / "b", none) == [
        (
            Severity.ERROR,
            "evidence, report: its report is of no release; evaluate it with cascade eval --release",
        )
    ]


def test_what_is_no_report_is_an_error(tmp_path: Path) -> None:
    """Any JSON is not one; the key at fault is named, never its value."""
    ((severity, what),) = _reported(tmp_path, b'{"report": "kingfisher"}')
    assert severity is Severity.ERROR
    assert " is no report of cascade eval: report: Input should be 'cascade eval'" in what
    assert "kingfisher" not in what
