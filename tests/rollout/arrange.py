"""Write a release that reads a calibration, with its artefacts beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from cascade.calibration.artefact import CalibrationArtefact, artefact_bytes, artefact_digest
from cascade.calibration.certificate import certificate_bytes
from cascade.policy.release import TeiStage, policy_digest
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from cascade.testing.calibration import scripted_artefact
from tests.calibration.made_certificate import made_certificate

__all__ = [
    "Written",
    "artefact_for",
    "calibrated_data",
    "certificate_for",
    "digest_for",
    "identity_of",
    "report_for",
    "stage_data",
    "write_release",
]


def stage_data(name: str, **fields: Any) -> dict[str, Any]:
    """Return a stage of a release as plain data."""
    return {"adapter": "tei", "url": "http://stage.example", "model": f"org/{name}", "engine": "tei/1.9"} | fields


def identity_of(**fields: Any) -> dict[str, Any]:
    """Return the fingerprint of a stage of this data, as a table of scores keeps it."""
    spec = TeiStage.model_validate(fields)
    return asdict(fingerprint_of(spec, serializer(spec.serializer)))


def artefact_for(**changes: Any) -> CalibrationArtefact:
    """Return an artefact fitted on the stages that `calibrated_data` names."""
    known: dict[str, Any] = {name: identity_of(**stage_data(name)) for name in ("small", "large")}
    settings: dict[str, Any] = {"k": 10, "second_round": True} | known | changes
    return scripted_artefact(**settings)


def digest_for(**changes: Any) -> str:
    """Return the digest of `artefact_for`."""
    return artefact_digest(artefact_bytes(artefact_for(**changes)))


def calibrated_data(calibration: str, **changes: Any) -> dict[str, Any]:
    """Return a release that finds nothing to be said of, with the top-level keys of ``changes`` put in."""
    data: dict[str, Any] = {
        "release": "r1",
        "stages": {"small": stage_data("small"), "large": stage_data("large")},
        "depth": 50,
        "escalation": {"kind": "calibrated", "calibration": calibration, "price_per_pair": 0.002},
        "budgets": {"total_ms": 100, "small_ms": 40, "large_ms": 60, "reserve_ms": 10},
    }
    evidence = {
        "certificate": artefact_digest(certificate_for(data | changes)),
        "report": artefact_digest(report_for(data | changes)),
    }
    return data | {"evidence": evidence} | changes


def certificate_for(data: dict[str, Any], **fields: Any) -> bytes:
    """Return a certificate of a release of this data, scored by the stages that `artefact_for` was fitted on."""
    known: dict[str, Any] = {name: identity_of(**stage_data(name)) for name in ("small", "large")}
    return certificate_bytes(made_certificate(**{"policy_digest": policy_digest(data)} | known | fields))


def report_for(data: dict[str, Any], **fields: Any) -> bytes:
    """Return the report of an evaluation of a release of this data: as much of one as is read of it."""
    names = [level["name"] for level in data.get("levels", [{"name": "normal"}])]
    told: dict[str, Any] = {
        "report": "cascade eval",
        "conditions": {"policy": {"policy_digest": policy_digest(data)}},
        "levels": [{"name": name, "ndcg": 0.5, "minus_always_large": -0.01} for name in names],
    }
    return orjson.dumps(told | fields)


@dataclass(frozen=True, slots=True)
class Written:
    """Where a release was written, and the digest and the file of its calibration."""

    path: Path
    digest: str
    calibration: Path


def write_release(folder: Path, artefact: CalibrationArtefact | None = None, **changes: Any) -> Written:
    """Write policies/release.yaml and what it names in calibration/ beside that folder, under names of no meaning."""
    data = artefact_bytes(artefact or artefact_for())
    digest = artefact_digest(data)
    places = {name: folder / name for name in ("policies", "calibration")}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    calibration = places["calibration"] / "fitted.json"
    calibration.write_bytes(data)
    release = calibrated_data(digest, **changes)
    (places["calibration"] / "certificate.json").write_bytes(certificate_for(release))
    (places["calibration"] / "report.json").write_bytes(report_for(release))
    path = places["policies"] / "release.yaml"
    path.write_text(yaml.safe_dump(release, sort_keys=False), encoding="utf-8")
    return Written(path, digest, calibration)
