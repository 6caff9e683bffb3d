"""Make a release of what was fitted: the release given, with the escalation that the calibration supports, and a depth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from cascade.calibration.artefact import CalibrationArtefact, PricePoint
from cascade.errors import ConfigError
from cascade.policy.depth import AnyDepth
from cascade.policy.depth_rules import FixedDepth, HistoryNumbers
from cascade.rollout.load import load_release, offline

__all__ = ["fitted_release", "write_release"]

_SAFE_TOP_M: Final = 20
_WIDTH: Final = 120


def fitted_release(
    base: Path,
    artefact: CalibrationArtefact,
    digest: str,
    target: float,
    *,
    depth: AnyDepth | None = None,
    history: HistoryNumbers | None = None,
) -> dict[str, Any]:
    """Return the release at ``base`` with the escalation that was fitted, and the depth and history where they were.

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
    if depth is not None:
        written["depth"] = depth.depth if isinstance(depth, FixedDepth) else _plain(depth)
    if history is not None:
        written["history"] = _plain(history)
    if none_found:
        written["stages"] = {name: stage for name, stage in written["stages"].items() if name != "large"}
        written["escalation"] = {"kind": "none", "reason": _why_not(artefact)}
        return _with_levels(written, None)
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
    return _with_levels(written, digest)


def _with_levels(written: dict[str, Any], calibration: str | None) -> dict[str, Any]:
    """Let load levels read the calibration that was fitted; without one they escalate nothing either.

    A level that then does what the release does is left out.
    """
    levels = written.get("levels")
    if not levels:
        return written
    if calibration is None:
        bare = [{key: value for key, value in level.items() if key != "escalation"} for level in levels]
        return {**written, "levels": [bare[0], *(level for level in bare[1:] if len(level) > 1)]}
    return {**written, "levels": [_reading(level, calibration) for level in levels]}


def _reading(level: Mapping[str, Any], calibration: str) -> dict[str, Any]:
    rule = level.get("escalation")
    if not isinstance(rule, Mapping) or "calibration" not in rule:
        return dict(level)
    return {**level, "escalation": {**rule, "calibration": calibration}}


def _plain(model: AnyDepth | HistoryNumbers) -> dict[str, Any]:
    """Return a part of a release as it is written: what differs from the defaults."""
    return model.model_dump(mode="json", exclude_defaults=True)


class _Dumper(yaml.SafeDumper):
    """Writes a list of numbers on one line: a fitted depth has hundreds."""


def _represented(dumper: _Dumper, values: list[Any]) -> yaml.Node:
    in_line = all(isinstance(value, int | float) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=in_line)


_Dumper.add_representer(list, _represented)


def _safe_top_m(before: object) -> int:
    """Return what the safe mode sends: what the release's own did, else its constant top."""
    told = before if isinstance(before, Mapping) else {}
    return int(told.get("safe_top_m", told.get("top_m", _SAFE_TOP_M)))


def write_release(path: Path, release: Mapping[str, Any]) -> str:
    """Write a release as YAML; return what its escalation is, in words. Raises ConfigError."""
    try:
        text = yaml.dump(dict(release), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = type(error).__name__
    else:
        escalation = release["escalation"]
        if escalation["kind"] == "none":
            return f"escalation none: {escalation.get('reason') or 'nothing goes to the large stage'}"
        if escalation["kind"] == "calibrated":
            return f"escalation calibrated, price {escalation['price_per_pair']:g} a pair"
        return f"escalation {escalation['kind']}, top {escalation['top_m']}"
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
