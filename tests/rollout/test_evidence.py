"""Whether the certificate that a release names holds for it: as verify finds it, and for whoever serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cascade.calibration.artefact import artefact_bytes, artefact_digest
from cascade.calibration.certificate import Certificate, certificate_bytes, parse_certificate
from cascade.policy.release import OnnxStage, policy_digest
from cascade.rollout.bundle import load_bundle
from cascade.rollout.evidence import Evidence, evidence_held
from cascade.rollout.measured import MeasuredLevels
from cascade.rollout.verify import Severity, verify
from cascade.stages.base import Observed
from cascade.stages.weights import find_model
from cascade.types import StageName
from tests.calibration.made_certificate import made_certificate

from .arrange import artefact_for, calibrated_data, certificate_for, digest_for, identity_of, stage_data, write_release


def _certified(folder: Path, certificate: Certificate | bytes) -> list[tuple[Severity, str]]:
    """Return what is found of a release that names this certificate."""
    data = certificate if isinstance(certificate, bytes) else certificate_bytes(certificate)
    release = calibrated_data(digest_for())
    evidence = {**release["evidence"], "certificate": artefact_digest(data)}
    written = write_release(folder, evidence=evidence)
    (folder / "calibration" / "certificate.json").write_bytes(data)
    return [(finding.severity, finding.what) for finding in verify(written.path, {}).findings]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, None),
        ({"large": None}, None),
        ({"policy_digest": None}, "it certifies a threshold and no release"),
        ({"large": identity_of(**stage_data("large", engine="tei/1.8"))}, "large stage: engine: declared tei/1.9, fitted on tei/1.8"),
    ],
    ids=["holds", "unknown stage", "no release", "other stage"],
)  # fmt: skip
def test_why_a_certificate_does_not_hold_is_told_in_one_sentence(
    tmp_path: Path, fields: dict[str, Any], told: str | None
) -> None:
    """For whoever serves: what cannot be known is no fault."""
    _certified(tmp_path, _of_this_policy(**fields))
    bundle = load_bundle(tmp_path / "policies" / "release.yaml", {})
    assert evidence_held(bundle, MeasuredLevels()).told({}) == ({} if told is None else {"certificate": told})


def test_a_certificate_that_is_not_there_does_not_hold_and_none_at_all_is_no_fault(tmp_path: Path) -> None:
    """The digest is named."""
    written = write_release(tmp_path / "a", evidence={"certificate": f"sha256:{'0' * 64}"})
    missing, none = load_bundle(written.path, {}), load_bundle(write_release(tmp_path / "b", evidence=None).path, {})
    assert evidence_held(missing, MeasuredLevels()).faults["certificate"].startswith("artefact sha256:000")
    assert evidence_held(none, MeasuredLevels()) == Evidence()


def test_a_certificate_of_other_weights_does_not_hold_where_they_are_loaded(tmp_path: Path) -> None:
    """What a server of its own runs is not known, and neither is what a certificate does not tell."""
    certificate = _of_this_policy()
    small = certificate.small.model_copy(update={"weights_sha256": "a" * 64})
    _certified(tmp_path, certificate.model_copy(update={"small": small}))
    evidence = evidence_held(load_bundle(tmp_path / "policies" / "release.yaml", {}), MeasuredLevels())
    loaded = {name: Observed(weights_sha256=digest * 64) for name, digest in (("small", "b"), ("large", "b"))}
    told = "small stage: weights: loaded from files of sha256 bbbbbbbbbbbb…, fitted on sha256 aaaaaaaaaaaa…"
    assert evidence.told({StageName(name): each for name, each in loaded.items()}) == {"certificate": told}
    assert evidence.told({StageName.SMALL: Observed(weights_sha256="a" * 64), StageName.LARGE: Observed()}) == {}


def _embedded(folder: Path) -> tuple[dict[str, Any], str]:
    """Return a stage whose weights are here, stated nowhere, and the digest that such a stage tells once it is loaded."""
    (folder / "weights").mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        (folder / "weights" / name).write_bytes(name.encode())
    stage = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(folder / "weights")}}
    return stage, find_model(OnnxStage.model_validate(stage).weights).digest()


@pytest.mark.parametrize("others", [False, True])
def test_strictly_the_weights_on_this_machine_are_those_that_were_fitted_on(tmp_path: Path, others: bool) -> None:
    """An activation refuses others once it has loaded them; to find that no server need be called."""
    stage, digest = _embedded(tmp_path)
    weights = "a" * 64 if others else digest
    fitted = artefact_for()
    small = fitted.small.model_copy(update={"fingerprint": None, "weights_sha256": weights})
    artefact = fitted.model_copy(update={"small": small})
    stages = {"small": stage, "large": stage_data("large")}
    data = calibrated_data(artefact_digest(artefact_bytes(artefact)), stages=stages)
    certificate = parse_certificate(certificate_for(data, small=None), "made")
    certificate = certificate.model_copy(
        update={"small": certificate.small.model_copy(update={"weights_sha256": weights})}
    )
    evidence = {**data["evidence"], "certificate": artefact_digest(certificate_bytes(certificate))}
    written = write_release(tmp_path, artefact, stages=stages, evidence=evidence)
    (tmp_path / "calibration" / "weights.json").write_bytes(certificate_bytes(certificate))
    line = f"small stage: weights: loaded from files of sha256 {digest[:12]}…, fitted on sha256 aaaaaaaaaaaa…"
    found = [one.what for one in verify(written.path, {}, load=True).findings if one.severity is Severity.ERROR]
    assert found == ([f"calibration, {line}", f"evidence, certificate, {line}"] if others else [])
    assert not [one for one in verify(written.path, {}).findings if one.severity is Severity.ERROR]


def _of_this_policy(**fields: Any) -> Certificate:
    known: dict[str, Any] = {name: identity_of(**stage_data(name)) for name in ("small", "large")}
    return made_certificate(**{"policy_digest": policy_digest(calibrated_data(digest_for()))} | known | fields)


def test_a_certificate_of_this_policy_is_evidence(tmp_path: Path) -> None:
    """Whatever the release is called."""
    assert _certified(tmp_path, _of_this_policy()) == []


def test_a_certificate_of_another_policy_is_an_error(tmp_path: Path) -> None:
    """One of another release, and one of a threshold alone."""
    other = f"sha256:{'9' * 64}"
    ((severity, what),) = _certified(tmp_path / "a", _of_this_policy(policy_digest=other))
    assert severity is Severity.ERROR
    assert what.startswith(f"evidence, certificate: it certifies the policy {other}, and this one is sha256:")
    assert _certified(tmp_path / "b", _of_this_policy(policy_digest=None)) == [
        (Severity.ERROR, "evidence, certificate: it certifies a threshold and no release")
    ]


def test_a_certificate_of_other_stages_is_an_error_and_of_unknown_ones_a_warning(tmp_path: Path) -> None:
    """By fingerprint, as for a calibration."""
    changed = identity_of(**stage_data("large", engine="tei/1.8"))
    ((severity, what),) = _certified(tmp_path / "a", _of_this_policy(large=changed))
    assert severity is Severity.ERROR
    assert what == "evidence, certificate, large stage: engine: declared tei/1.9, fitted on tei/1.8"
    ((severity, what),) = _certified(tmp_path / "b", _of_this_policy(large=None))
    assert severity is Severity.WARNING
    assert what.endswith("of which only the name is known")


def test_what_is_no_certificate_is_an_error(tmp_path: Path) -> None:
    """Any JSON is not one: a refusal has no file, so nothing else can stand for evidence."""
    ((severity, what),) = _certified(tmp_path, b'{"epsilon": 0.01}')
    assert severity is Severity.ERROR
    assert what.startswith("evidence, certificate: certificate sha256:")
