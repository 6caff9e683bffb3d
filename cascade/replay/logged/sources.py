"""The releases that records are of, and what they must have in common with the one that is asked about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from cascade.errors import ConfigError
from cascade.policy.release import Release
from cascade.replay.logged.deciding import Decider
from cascade.replay.record_lines import HeadLine
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from cascade.types import StageName

__all__ = ["Arm", "check_scorers", "check_split"]

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Arm:
    """One release of a random split of the traffic, and its share. ``name`` and ``digest`` are the release's."""

    name: str
    digest: str
    share: float
    decider: Decider


def check_split(arms: Sequence[Arm]) -> None:
    """Raise ConfigError where shares are no split, or a release is in it twice."""
    if not arms:
        return
    if any(not 0.0 < arm.share <= 1.0 for arm in arms):
        raise ConfigError("--arm: a share is above 0 and at most 1")
    total = sum(arm.share for arm in arms)
    if abs(total - 1.0) > _ROUNDING:
        raise ConfigError(f"--arm: the shares add up to {total:g}, not to 1")
    if len({arm.digest for arm in arms}) < len(arms):
        raise ConfigError("--arm: one release is named twice")


def check_scorers(head: HeadLine, release: Release) -> None:
    """Raise ConfigError where a stage of a release is not what scored the records, field by field as far as told."""
    for stage, scored, declared in _both(head, release):
        for name, value in scored.items():
            if name in declared and declared[name] != value:
                raise ConfigError(
                    f"records of release {head.release} are of another {stage} stage than release {release.release} "
                    f"has: its {name} is {value}, the release declares {declared[name]}"
                )


def _both(head: HeadLine, release: Release) -> Iterator[tuple[StageName, dict[str, object], dict[str, object]]]:
    specs = {StageName.SMALL: release.stages.small, StageName.LARGE: release.stages.large}
    for stage, spec in specs.items():
        if spec is not None and stage in head.scorers:
            declared = fingerprint_of(spec, serializer(spec.serializer))
            yield stage, dict(head.scorers[stage].fingerprint), asdict(declared)
