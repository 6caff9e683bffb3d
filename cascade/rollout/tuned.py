"""The tunings that a release names: its numbers filled in from them, and where they are not of this machine or stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cascade.errors import ConfigError
from cascade.policy.release import OnePair, OnnxStage, Release
from cascade.policy.tuning import Tuning, filled_from, parse_tuning
from cascade.rollout.artefacts import Artefacts
from cascade.stages.machine import Machine
from cascade.types import StageName

__all__ = ["StageTuning", "Tunings", "elsewhere", "named_tunings", "not_of_stage", "tuned_release", "tunings_of"]

Sha256 = Mapping[str, str]
"""Digests of files, by name."""
_UNKNOWN: Final[Mapping[StageName, Sha256]] = {}
_COMPARED: Final = ("cpu", "instructions", "cores", "onnxruntime", "tokenizers", "cascade")


@dataclass(frozen=True, slots=True)
class StageTuning:
    """A tuning and its digest, of the stage that names it."""

    digest: str
    tuning: Tuning


@dataclass(frozen=True, slots=True)
class Tunings:
    """The tunings of a release by stage, and in ``faults`` by stage why one that it names cannot be used."""

    by_stage: Mapping[StageName, StageTuning] = field(default_factory=dict)
    faults: Mapping[StageName, str] = field(default_factory=dict)


def named_tunings(release: Release) -> dict[StageName, str]:
    """Return the digests of the tunings that a release names, by stage."""
    return {name: spec.tuning for name, spec in _onnx(release).items() if spec.tuning is not None}


def tunings_of(release: Release, artefacts: Artefacts) -> Tunings:
    """Read the tunings that a release names. What is missing, altered or unreadable is told, not raised."""
    found: dict[StageName, StageTuning] = {}
    faults: dict[StageName, str] = {}
    for name, digest in named_tunings(release).items():
        try:
            found[name] = StageTuning(digest, parse_tuning(artefacts.read(digest), digest))
        except ConfigError as error:
            faults[name] = f"{name} stage, tuning: {error}"
    return Tunings(found, faults)


def tuned_release(release: Release, tunings: Tunings) -> Release:
    """Return the release with the tuned numbers where it states none of its own."""
    specs = _onnx(release)
    filled = {str(name): filled_from(each.tuning, specs[name]) for name, each in tunings.by_stage.items()}
    return release.model_copy(update={"stages": release.stages.model_copy(update=filled)}) if filled else release


def not_of_stage(
    release: Release, tunings: Tunings, here: Mapping[StageName, Sha256] = _UNKNOWN
) -> Iterator[tuple[StageName, str]]:
    """Say, one sentence each, of which stage a tuning is not that names it, so that its figures say little.

    ``here`` are digests of the files of its weights on this machine; without them those that the release states count.
    """
    for name, spec in _onnx(release).items():
        if name in tunings.by_stage:
            tuning, weights = tunings.by_stage[name].tuning, here.get(name, spec.weights.sha256)
            yield from ((name, what) for what in _differing(spec, tuning, weights))


def _differing(spec: OnnxStage, tuning: Tuning, weights: Sha256) -> Iterator[str]:
    if spec.max_length != tuning.max_length:
        yield f"max_length is {spec.max_length}, and it was measured with {tuning.max_length}"
    others = [file for file, said in weights.items() if tuning.weights.sha256.get(file, said) != said]
    if others:
        yield f"it was measured with other weights ({tuning.weights.name}): {', '.join(sorted(others))}"
    modes = spec.batching.mode, tuning.chosen.batching.mode
    if modes[0] != modes[1]:
        lost = "" if isinstance(spec.batching, OnePair) else "; none of its numbers is taken"
        yield f"batching is {modes[0]}, and it chose {modes[1]}{lost}"


def elsewhere(tuning: Tuning, machine: Machine, threads: int) -> list[str]:
    """Return where this machine, its versions and the setting ``embedded_threads`` are not those of a tuning."""
    told = []
    for name in _COMPARED:
        was, here = getattr(tuning.conditions, name), getattr(machine, name)
        if was != here:
            told.append(_difference(name, was, here))
    if threads != tuning.chosen.threads:
        told.append(f"embedded_threads is {threads} here, and it chose {tuning.chosen.threads}")
    return told


def _difference(name: str, was: object, here: object) -> str:
    if not isinstance(was, tuple) or not isinstance(here, tuple):
        return f"{name} is {here} here, and was {was}"
    lost, gained = sorted(set(was) - set(here)), sorted(set(here) - set(was))
    parts = [f"without {', '.join(lost)}"] * bool(lost) + [f"with {', '.join(gained)}"] * bool(gained)
    return f"{name}: here {' and '.join(parts)}"


def _onnx(release: Release) -> dict[StageName, OnnxStage]:
    specs = {StageName.SMALL: release.stages.small, StageName.LARGE: release.stages.large}
    return {name: spec for name, spec in specs.items() if isinstance(spec, OnnxStage)}
