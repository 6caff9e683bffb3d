"""The policy that ``cascade eval`` replays: a release's, or a calibration's with the default rule."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cascade.calibration.artefact import artefact_digest, parse_artefact
from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import CalibratedEscalation
from cascade.policy.levels import at_level, level_names
from cascade.policy.release import Limits, Release
from cascade.replay.policy import Policy
from cascade.rollout.load import LoadedRelease, load_release

__all__ = [
    "ReleasePolicies",
    "load_calibration",
    "policies_of_release",
    "policy_of_calibration",
    "policy_of_release",
    "release_without_servers",
]

_NO_SERVER: Final = "http://stage.invalid"
_DEFAULT_PRICE: Final = 0.002
_TARGET: Final = 0.95


def load_calibration(path: Path) -> Calibration:
    """Read a fitted calibration. Raises ConfigError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"calibration {path}: cannot be read: {type(error).__name__}") from None
    return Calibration(parse_artefact(data, path), artefact_digest(data))


@dataclass(frozen=True, slots=True)
class ReleasePolicies:
    """What a release decides at each load level, by name, the release as it stands first.

    A level without a policy asks no stage: first-stage order. ``deadline_ms`` is the release's own.
    """

    levels: Mapping[str, Policy | None]
    deadline_ms: float


def release_without_servers(path: Path) -> LoadedRelease:
    """Load a release of which no server is called, so that variables named for addresses need not be set."""
    return load_release(path, defaultdict(lambda: _NO_SERVER, os.environ))


def policy_of_release(path: Path, calibration: Calibration | None) -> Policy:
    """Return what a release decides as it stands, as :func:`policies_of_release` does."""
    policy = next(iter(policies_of_release(path, calibration).levels.values()))
    if policy is None:
        raise ConfigError(f"release {path}: it asks no stage, so there is nothing to replay")
    return policy


def policies_of_release(path: Path, calibration: Calibration | None) -> ReleasePolicies:
    """Return what a release decides at each of its levels, with the calibration that it names.

    No server is called, so variables that it names for addresses need not be set. Raises ConfigError
    where the calibration is not the one given, and for a large stage without a small one.
    """
    loaded = release_without_servers(path)
    release = loaded.release
    if release.calibration is not None and calibration is None:
        raise ConfigError(f"release {path}: its escalation reads {release.calibration}; name that with --calibration")
    if release.calibration is not None and calibration is not None and release.calibration != calibration.sha256:
        raise ConfigError(f"release {path}: its escalation reads {release.calibration}, not {calibration.sha256}")
    if release.mode == "observe":
        raise ConfigError(
            f"release {path}: in mode observe it serves always-large; say mode: cascade to replay its rules"
        )
    if release.stages.small is None and release.stages.large is not None:
        raise ConfigError(f"release {path}: it has no small stage, and a replay is of a small and a large one")
    described = {"release": release.release, "policy_digest": loaded.policy_digest}
    levels = {name: _policy(at_level(release, name), calibration, described) for name in level_names(release)}
    return ReleasePolicies(levels, release.budgets.total_ms)


def _policy(release: Release, calibration: Calibration | None, described: Mapping[str, Any]) -> Policy | None:
    if release.stages.small is None:
        return None
    history = None if release.history is None else release.history.frozen()
    used = calibration if release.calibration is not None else None
    return Policy(release.escalation, release.depth, release.limits, used, history, described)


def policy_of_calibration(calibration: Calibration, k: int) -> Policy:
    """Return a calibration's policy by the default rule, at the price fitted nearest to 95% of the difference."""
    artefact = calibration.artefact
    fitted = min(artefact.prices, key=lambda point: abs(point.target - _TARGET), default=None)
    rule = CalibratedEscalation.model_validate(
        {
            "kind": "calibrated",
            "calibration": calibration.sha256,
            "k": k if k in artefact.cutoffs else artefact.k,
            "price_per_pair": _DEFAULT_PRICE if fitted is None else fitted.price,
        }
    )
    most = artefact.valid.most_candidates
    described = {
        "rule": rule.model_dump(mode="json"),
        "price": "default" if fitted is None else f"fitted for {fitted.target}",
    }
    return Policy(rule, FixedDepth(depth=most), Limits(max_candidates=most), calibration, None, described)
