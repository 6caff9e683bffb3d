"""What the report that a release names tells of the quality of its load levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.calibration.broken_rules import broken_rules
from cascade.errors import ConfigError
from cascade.rollout.bundle import evidence_of
from cascade.rollout.load import LoadedRelease
from cascade.rollout.source import Source

__all__ = ["LevelQuality", "MeasuredLevels", "measured_levels", "not_measured"]


class _Read(BaseModel):
    """What is read of a report; the rest of it is for people."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, strict=True, allow_inf_nan=False)


class _Line(_Read):
    name: str
    ndcg: float | None
    minus_always_large: float | None


class _Described(_Read):
    policy_digest: str | None = None


class _Conditions(_Read):
    policy: _Described | None = None


class _Report(_Read):
    report: Literal["cascade eval"]
    conditions: _Conditions
    levels: Annotated[tuple[_Line, ...], Field(strict=False)] = ()


@dataclass(frozen=True, slots=True)
class LevelQuality:
    """The mean nDCG of a level, and what it is above always-large; None where a table without judgements told none."""

    ndcg: float | None
    minus_always_large: float | None


@dataclass(frozen=True, slots=True)
class MeasuredLevels:
    """What is known beforehand of the levels, by name, and in ``fault`` why nothing is."""

    levels: Mapping[str, LevelQuality] = field(default_factory=dict)
    fault: str | None = None


def measured_levels(loaded: LoadedRelease, source: Source) -> MeasuredLevels:
    """Return what the release's report says of its levels, as far as it is a report of this policy."""
    digest = evidence_of(loaded).get("report")
    if digest is None:
        return MeasuredLevels(fault="it names no report")
    try:
        report = _read(source.artefacts.read(digest), digest)
    except ConfigError as error:
        return MeasuredLevels(fault=str(error))
    of = None if report.conditions.policy is None else report.conditions.policy.policy_digest
    if of is None:
        return MeasuredLevels(fault="its report is of no release; evaluate it with cascade eval --release")
    if of != loaded.policy_digest:
        return MeasuredLevels(fault=f"its report is of the policy {of}, and this one is {loaded.policy_digest}")
    return MeasuredLevels({line.name: LevelQuality(line.ndcg, line.minus_always_large) for line in report.levels})


def not_measured(names: Sequence[str], measured: MeasuredLevels) -> Iterator[str]:
    """Name the levels of a release, of those that it has, whose quality is not known beforehand."""
    for name in names:
        known = measured.levels.get(name)
        if known is None or known.minus_always_large is None:
            yield name


def _read(data: bytes, digest: str) -> _Report:
    try:
        return _Report.model_validate_json(data)
    except ValidationError as error:
        told = broken_rules(error)
    raise ConfigError(f"{digest} is no report of cascade eval: {told}")
