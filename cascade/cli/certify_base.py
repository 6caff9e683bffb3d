"""The release that ``cascade certify`` certifies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade.cli.eval_policy import policy_of_release, release_without_servers
from cascade.errors import ConfigError
from cascade.policy.levels import NORMAL, at_level, level_names
from cascade.policy.release import policy_digest
from cascade.replay.policy import Policy
from cascade.rollout.load import LoadedRelease

if TYPE_CHECKING:
    from cascade.calibration.calibrated import Calibration

__all__ = ["Base", "first_level"]


@dataclass(frozen=True, slots=True)
class Base:
    """The release that is certified, as it is or at a threshold of the path."""

    loaded: LoadedRelease
    policy: Policy
    levels: Mapping[str, Policy]
    as_is: bool

    @classmethod
    def of(cls, path: Path, calibration: Calibration | None, *, as_is: bool) -> Base:
        """Read it, with the calibration that it names and the policies of its load levels. Raises ConfigError."""
        policy = policy_of_release(path, calibration)
        loaded = release_without_servers(path)
        large = loaded.release.stages.large
        if large is not None and large.orders:
            raise ConfigError(
                f"--release: adapter {large.adapter} orders the list that it is shown, and no table tells what it would write "
                "of another: there is nothing to certify"
            )
        levels = {}
        for name in level_names(loaded.release)[1:]:
            level = at_level(loaded.release, name)
            used = calibration if level.calibration is not None else None
            levels[name] = Policy(level.escalation, level.depth, level.limits, used, policy.history)
        return cls(loaded, policy, levels, as_is)

    def written(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        """Return the release as a file holds it, with this rule."""
        if self.as_is:
            return dict(self.loaded.written)
        return {**self.loaded.written, "escalation": dict(rule)}

    def digest(self, rule: Mapping[str, Any]) -> str:
        """Return the policy digest of the release with this rule."""
        return policy_digest(self.written(rule))


def first_level(path: Path | None) -> str:
    """Return what a release calls itself as it stands, among its load levels."""
    return NORMAL if path is None else level_names(release_without_servers(path).release)[0]
