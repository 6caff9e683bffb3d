"""The releases that records are of, and what they must have in common with the one that is asked about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from cascade.errors import ConfigError
from cascade.policy.release import Release
from cascade.replay.logged.deciding import Decider
from cascade.replay.record_lines import HeadLine
from cascade.stages.fingerprint import completed, fingerprint_of
from cascade.stages.serializers import serializer
from cascade.types import StageName

__all__ = ["Left", "SplitRelease", "check_scorers", "check_split", "is_recorded", "left_out", "shares_at"]

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class SplitRelease:
    """One release of a random split of the traffic, and its share. ``name`` and ``digest`` are the release's.

    A share of None is told by each record: of a stable release and its canary, whose share rises in steps.
    """

    name: str
    digest: str
    share: float | None
    decider: Decider


class Left(StrEnum):
    """Why a record of a release of the split is not estimated from: how traffic was split when it was made."""

    UNSPLIT = "unsplit"
    THIN = "thin"


def check_split(arms: Sequence[SplitRelease]) -> None:
    """Raise ConfigError where shares are no split, or a release is in it twice."""
    if not arms:
        return
    if len({arm.digest for arm in arms}) < len(arms):
        raise ConfigError("--arm: one release is named twice")
    shares = [arm.share for arm in arms if arm.share is not None]
    if not shares and len(arms) == 2:
        return
    if not shares:
        raise ConfigError("--arm: without a share, two are named: the stable release and its canary")
    if len(shares) < len(arms):
        raise ConfigError("--arm: a share stands with every release or with none")
    if any(not 0.0 < share <= 1.0 for share in shares):
        raise ConfigError("--arm: a share is above 0 and at most 1")
    total = sum(shares)
    if abs(total - 1.0) > _ROUNDING:
        raise ConfigError(f"--arm: the shares add up to {total:g}, not to 1")


def is_recorded(arms: Sequence[SplitRelease]) -> bool:
    """Tell whether the shares of a checked split are told by its records."""
    return bool(arms) and arms[0].share is None


def shares_at(arms: Sequence[SplitRelease], arm: int, probability: float) -> tuple[float, ...]:
    """Return the share of each release when a record was made: its own arm had ``probability`` then."""
    return tuple(
        each.share if each.share is not None else probability if number == arm else 1.0 - probability
        for number, each in enumerate(arms)
    )


def left_out(shares: Sequence[float], least: float) -> Left | None:
    """Return why records of such a moment are not estimated from, None where they are.

    It depends on the moment alone and not on what was done in it, so that what is left is a random split as before.
    """
    if min(shares) <= _ROUNDING:
        return Left.UNSPLIT
    return Left.THIN if min(shares) < least - _ROUNDING else None


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
            yield stage, completed(head.scorers[stage].fingerprint), asdict(declared)
