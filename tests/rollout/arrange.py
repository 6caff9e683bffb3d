"""Write a release that reads a calibration, with its artefacts beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from cascade.calibration.artefact import CalibrationArtefact, artefact_bytes, artefact_digest
from cascade.policy.release import TeiStage
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from cascade.testing.calibration import scripted_artefact

__all__ = [
    "EVIDENCE",
    "Written",
    "artefact_for",
    "calibrated_data",
    "digest_for",
    "identity_of",
    "stage_data",
    "write_release",
]

EVIDENCE: Final = {"certificate": orjson.dumps({"epsilon": 0.01}), "report": orjson.dumps({"queries": 100})}
"""Files that stand for evidence; nothing here reads what they say."""


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
    evidence = {kind: artefact_digest(data) for kind, data in EVIDENCE.items()}
    data: dict[str, Any] = {
        "release": "r1",
        "stages": {"small": stage_data("small"), "large": stage_data("large")},
        "depth": 50,
        "escalation": {"kind": "calibrated", "calibration": calibration, "price_per_pair": 0.002},
        "budgets": {"total_ms": 100, "small_ms": 40, "large_ms": 60, "reserve_ms": 10},
        "evidence": evidence,
    }
    return data | changes


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
    for kind, content in EVIDENCE.items():
        (places["calibration"] / f"{kind}.json").write_bytes(content)
    path = places["policies"] / "release.yaml"
    path.write_text(yaml.safe_dump(calibrated_data(digest, **changes), sort_keys=False), encoding="utf-8")
    return Written(path, digest, calibration)
