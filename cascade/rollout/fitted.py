"""Make a release of a calibration: the release given, with the escalation that the calibration supports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from cascade.calibration.artefact import CalibrationArtefact, PricePoint
from cascade.errors import ConfigError
from cascade.rollout.load import load_release, offline

__all__ = ["fitted_release", "write_release"]

_SAFE_TOP_M: Final = 20


def fitted_release(base: Path, artefact: CalibrationArtefact, digest: str, target: float) -> dict[str, Any]:
    """Return the release at ``base`` with the escalation that was fitted.

    Where judgements do not show that the large stage helps, it escalates nothing, has no large stage, and
    says why. Raises ConfigError for a release that is not valid, where no price reaches ``target``, and where
    a stage is missing.
    """
    written = dict(load_release(base, offline({})).written)
    written["release"] = f"{written['release']}-fitted"[:64]
    written.pop("evidence", None)
    written["mode"] = "cascade"
    none_found = artefact.benefit.status == "none-found"
    needed = ("small",) if none_found else ("small", "large")
    if missing := [name for name in needed if written["stages"].get(name) is None]:
        raise ConfigError(f"--release: it has no {' and no '.join(missing)} stage, which the calibration is for")
    if none_found:
        written["stages"] = {name: stage for name, stage in written["stages"].items() if name != "large"}
        written["escalation"] = {"kind": "none", "reason": _why_not(artefact)}
        return written
    point = _point(artefact, target)
    before = written.get("escalation")
    written["escalation"] = {
        "kind": "calibrated",
        "calibration": digest,
        "k": artefact.k,
        "price_per_pair": float(f"{point.price:.3g}"),
        "rounds": 2 if artefact.second_round is not None else 1,
        "safe_top_m": _safe_top_m(before),
    }
    return written


def _safe_top_m(before: object) -> int:
    """Return what the safe mode sends: what the release's own did, else its constant top."""
    told = before if isinstance(before, Mapping) else {}
    return int(told.get("safe_top_m", told.get("top_m", _SAFE_TOP_M)))


def write_release(path: Path, release: Mapping[str, Any]) -> str:
    """Write a release as YAML; return what its escalation is, in words. Raises ConfigError."""
    try:
        path.write_text(yaml.safe_dump(dict(release), sort_keys=False, allow_unicode=True), encoding="utf-8")
    except OSError as error:
        reason = type(error).__name__
    else:
        escalation = release["escalation"]
        if escalation["kind"] == "none":
            return f"escalation none: {escalation['reason']}"
        return f"escalation calibrated, price {escalation['price_per_pair']:g} a pair"
    raise ConfigError(f"--release-out {path}: cannot be written: {reason}")


def _point(artefact: CalibrationArtefact, target: float) -> PricePoint:
    for point in artefact.prices:
        if abs(point.target - target) < 1e-9:
            return point
    reached = ", ".join(f"{point.target:g}" for point in artefact.prices) or "none"
    raise ConfigError(f"--target: no price recovers {target:g}; there are prices for {reached}")


def _why_not(artefact: CalibrationArtefact) -> str:
    benefit = artefact.benefit
    ends = " to ".join("none" if end is None else f"{end:+.4f}" for end in (benefit.low, benefit.high))
    return (
        f"the large stage is not shown to help: {benefit.metric} {benefit.mean or 0.0:+.4f}, interval {ends}, "
        f"{benefit.queries} queries"
    )
