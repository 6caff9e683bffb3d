"""The releases that ``cascade off-policy`` is told of, ready to decide again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cascade.calibration.calibrated import Calibration
from cascade.cli.eval_policy import load_calibration
from cascade.errors import ConfigError
from cascade.replay.logged.deciding import Decider
from cascade.replay.logged.sources import SplitRelease
from cascade.rollout.bundle import load_bundle
from cascade.rollout.load import LoadedRelease, offline

__all__ = ["arm_of", "calibrations_of", "decider_of", "told_of"]


def calibrations_of(paths: Sequence[Path]) -> dict[str, Calibration]:
    """Read fitted calibrations, by digest. Raises ConfigError."""
    return {read.sha256: read for read in map(load_calibration, paths)}


def decider_of(path: Path, calibrations: Mapping[str, Calibration]) -> tuple[LoadedRelease, Decider]:
    """Read a release; no server is called, so variables that it names for addresses need not be set.

    Raises ConfigError where the calibration that it names is neither with it nor among those given.
    """
    bundle = load_bundle(path, offline(os.environ))
    loaded = bundle.loaded
    calibration = calibrations.get(loaded.release.calibration or "", bundle.calibration)
    if calibration is None and bundle.fault is not None:
        raise ConfigError(f"release {path}: {bundle.fault}; name it with --calibration")
    return loaded, Decider.of(loaded.release, calibration)


def arm_of(written: str, calibrations: Mapping[str, Calibration]) -> SplitRelease:
    """Return the release and the share of one --arm, None where it names none. Raises ConfigError."""
    path, equals, share = written.rpartition("=")
    part = _share_of(share) if equals else None
    loaded, decider = decider_of(Path(path if equals else written), calibrations)
    return SplitRelease(loaded.release.release, loaded.digest, part, decider)


def _share_of(written: str) -> float:
    try:
        part = float(written)
    except ValueError:
        part = -1.0
    if not 0.0 < part <= 1.0:
        raise ConfigError("--arm: write RELEASE=SHARE, with a share above 0 and at most 1, or RELEASE alone")
    return part


def told_of(loaded: LoadedRelease) -> dict[str, Any]:
    """Return how a report names a release."""
    release = loaded.release
    return {
        "release": release.release,
        "release_digest": loaded.digest,
        "policy_digest": loaded.policy_digest,
        "mode": release.mode,
        "calibration": release.calibration,
    }
