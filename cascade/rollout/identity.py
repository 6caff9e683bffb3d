"""Hold what a stage is against what it should be: a calibration's scorer, or what its server says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Final, Protocol

from cascade.calibration.artefact import ScorerIdentity
from cascade.policy.release import HttpStage, Release, StageBase, TeiStage
from cascade.rollout.load import UNSET
from cascade.stages.base import Observed
from cascade.stages.doctor import is_version
from cascade.stages.fingerprint import completed, fingerprint_of
from cascade.stages.serializers import serializer
from cascade.types import Fingerprint, StageName

__all__ = [
    "FINGERPRINT_FIELDS",
    "Difference",
    "first_said",
    "fitted_for_others",
    "fitted_on_other_weights",
    "not_as_declared",
    "on_other_weights",
    "unlike_declared",
]

FINGERPRINT_FIELDS: Final = tuple(item.name for item in fields(Fingerprint))
_OPTIONAL: Final = frozenset({"revision", "tokenizer_revision"})
"""Fields whose None means that nobody said; that of an instruction means that there is none."""
_TOLD: Final = ("model", "revision", "dtype", "version", "max_length")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same, or with ``known`` false, that cannot be told."""

    stage: StageName
    what: str
    known: bool = True


class Scored(Protocol):
    """What was made of the scores of two stages: a calibration or a certificate."""

    @property
    def small(self) -> ScorerIdentity:
        """Return what the small scorer was."""
        ...

    @property
    def large(self) -> ScorerIdentity:
        """Return what the large scorer was."""
        ...


def fitted_for_others(release: Release, artefact: Scored) -> list[Difference]:
    """Return where the stages of a release are not the scorers that a calibration, or a certificate, is of.

    Raises ConfigError for a serializer that does not exist.
    """
    stages = (
        (StageName.SMALL, release.stages.small, artefact.small),
        (StageName.LARGE, release.stages.large, artefact.large),
    )
    return [
        difference
        for name, spec, identity in stages
        if spec is not None
        for difference in _differences(name, fingerprint_of(spec, serializer(spec.serializer)), identity)
    ]


def _differences(stage: StageName, declared: Fingerprint, identity: ScorerIdentity) -> Iterator[Difference]:
    if declared.score_space is not identity.space:
        yield Difference(stage, f"score_space: declared {declared.score_space}, fitted on {identity.space}")
    if identity.fingerprint is None:
        yield Difference(stage, f"fitted on {identity.name}, of which only the name is known", known=False)
        return
    has, known = asdict(declared), completed(identity.fingerprint)
    for name in FINGERPRINT_FIELDS:
        if name == "score_space":
            continue
        if name not in known:
            yield Difference(stage, f"{name}: the calibration does not know it", known=False)
            continue
        fitted, mine = known[name], has[name]
        if fitted == mine or (isinstance(mine, str) and UNSET in mine):  # what a variable that is not set would say
            continue
        unsaid = name in _OPTIONAL and (fitted is None or mine is None)
        yield Difference(stage, f"{name}: declared {mine}, fitted on {fitted}", known=not unsaid)


def fitted_on_other_weights(stage: StageName, artefact: Scored, observed: Observed) -> list[str]:
    """Return where a stage inside the sidecar was loaded from other files than those whose scores an artefact is of.

    Nothing is held against what either does not know.
    """
    identity = artefact.small if stage is StageName.SMALL else artefact.large
    fitted, loaded = identity.weights_sha256, observed.weights_sha256
    if None in (fitted, loaded) or fitted == loaded:
        return []
    return [f"weights: loaded from files of {_short(loaded)}, fitted on {_short(fitted)}"]


def on_other_weights(artefact: Scored | None, loaded: Mapping[StageName, Observed]) -> list[str]:
    """Return the same of all stages that are known, one sentence each; nothing without an artefact."""
    return [
        f"{name} stage: {line}"
        for name, told in loaded.items()
        if artefact is not None
        for line in fitted_on_other_weights(name, artefact, told)
    ]


def _short(digest: str | None) -> str:
    return f"sha256 {(digest or '')[:12]}…"


def unlike_declared(release: Release, observed: Mapping[StageName, Observed]) -> list[str]:
    """Return where what servers say is not what a release declares of its stages, one sentence each."""
    return [
        f"{name} stage: {line}"
        for name, told in observed.items()
        for line in not_as_declared(getattr(release.stages, name), told, told)
    ]


def not_as_declared(spec: StageBase, first: Observed, now: Observed) -> list[str]:
    """Return where what a server says is not what the release declares, or no longer what it first said.

    What the release does not say, a revision or a version of the engine, is held against ``first``. What
    a server does not say is never held against it.
    """
    declared = _declared(spec)
    told = []
    for name in _TOLD:
        said = getattr(now, name)
        if said is None:
            continue
        if name in declared:
            if not _agrees(name, declared[name], said):
                told.append(f"{name}: declared {declared[name]}, the server says {said}")
        elif (before := getattr(first, name)) is not None and before != said:
            told.append(f"{name}: the server said {before} at first, now {said}")
    return told


def first_said(before: Observed | None, now: Observed) -> Observed:
    """Return what a server said first of each thing; what it did not say before may be said now."""
    if before is None:
        return now
    return replace(before, **{name: getattr(now, name) for name in _TOLD if getattr(before, name) is None})


def _declared(spec: StageBase) -> dict[str, str | int]:
    """Return what a release says of what a server may tell. A model's name means the same only to TEI."""
    version = spec.engine.partition("/")[2]
    found: dict[str, str | int | None] = {"revision": spec.revision, "dtype": spec.dtype, "version": version or None}
    if isinstance(spec, TeiStage):
        found["model"] = spec.model
    if isinstance(spec, HttpStage):
        found["max_length"] = spec.max_length
    return {name: value for name, value in found.items() if value is not None}


def _agrees(name: str, declared: str | int, said: str | int) -> bool:
    if isinstance(declared, int) or isinstance(said, int):
        return int(declared) <= int(said)  # a server may take longer pairs than it is sent
    if name == "version":
        return is_version(declared, said)
    return declared == said
