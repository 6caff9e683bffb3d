"""Check everything that can be known of a release before it serves, without calling a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import assert_never

import orjson

from cascade.calibration.artefact import CalibrationArtefact
from cascade.calibration.calibrated import Calibration
from cascade.calibration.certificate import Certificate, parse_certificate
from cascade.errors import ConfigError
from cascade.policy.levels import level_names
from cascade.policy.release import Release
from cascade.rollout.bundle import Bundle, check_signed, evidence_of, load_bundle
from cascade.rollout.evidence import evidence_held, not_certified
from cascade.rollout.identity import FINGERPRINT_FIELDS, fitted_for_others, on_other_weights
from cascade.rollout.level_sanity import levels_not_meant
from cascade.rollout.load import LoadedRelease, offline, variables_of
from cascade.rollout.loadable import not_loadable, weights_here
from cascade.rollout.measured import measured_levels, not_measured
from cascade.rollout.nameable import NameableEnvironment
from cascade.rollout.sanity import not_meant
from cascade.rollout.shadow.gold import parse_gold
from cascade.rollout.signing import ReleaseKeys
from cascade.rollout.source import Source
from cascade.rollout.tuned import elsewhere, not_of_stage
from cascade.stages.base import Observed
from cascade.stages.machine import this_machine
from cascade.stages.weights import digest_of
from cascade.types import StageName

__all__ = ["Finding", "Severity", "Verification", "verify"]


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, in a sentence."""

    severity: Severity
    what: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found of a release, errors first."""

    loaded: LoadedRelease
    calibration: Calibration | None
    findings: tuple[Finding, ...]

    def passes(self, *, strict: bool) -> bool:
        """Tell whether the release may be rolled out; ``strict`` lets no warning pass."""
        return not any(strict or finding.severity is Severity.ERROR for finding in self.findings)


def verify(
    path: Path,
    environment: Mapping[str, str],
    digest: str | None = None,
    keys: ReleaseKeys | None = None,
    *,
    load: bool = False,
) -> Verification:
    """Check the release at ``path``: that it is the one of ``digest`` and signed with one of ``keys``, where given.

    With ``load`` its stages are built here too, as they are before a start, and its tunings are held against this machine
    and, with calibration and certificate, against the weights on it. Variables need not be set: what they would say of a stage is then not compared; one that
    ``environment`` lets no release name is an error. Raises ConfigError where it is no release at all.
    """
    bundle = load_bundle(path, offline(environment))
    every = [*_signature(bundle, keys), *_findings(bundle, environment, digest)]
    here = weights_here(bundle.loaded.release) if load else {}
    if load:
        every += [Finding(Severity.ERROR, one) for one in not_loadable(bundle.loaded.release, environment)]
        every += [Finding(Severity.ERROR, one) for one in _fitted_elsewhere(bundle, here)]
        every += [Finding(Severity.WARNING, one) for one in _tuned_elsewhere(bundle)]
    odd = not_of_stage(bundle.loaded.release, bundle.tunings, here)
    every += [Finding(Severity.WARNING, f"{name} stage, tuning: {one}") for name, one in odd]
    found = sorted(every, key=lambda one: one.severity is not Severity.ERROR)
    return Verification(bundle.loaded, bundle.calibration, tuple(found))


def _signature(bundle: Bundle, keys: ReleaseKeys | None) -> Iterator[Finding]:
    if keys is None:
        return
    try:
        check_signed(bundle.source, bundle.loaded, keys)
    except ConfigError as error:
        yield Finding(Severity.ERROR, str(error))


def _findings(bundle: Bundle, environment: Mapping[str, str], digest: str | None) -> Iterator[Finding]:
    loaded, release = bundle.loaded, bundle.loaded.release
    artefact = None if bundle.calibration is None else bundle.calibration.artefact
    if digest is not None and digest != loaded.digest:
        yield Finding(Severity.ERROR, f"its digest is {loaded.digest}, not the one asked for")
    yield from (Finding(Severity.WARNING, f"{name}: no file of a bundle") for name in bundle.source.strays)
    if isinstance(environment, NameableEnvironment):
        refused = environment.refused(variables_of(loaded.written), release)
        yield from (Finding(Severity.ERROR, sentence) for sentence in refused)
    unset = sorted(_compared(loaded) - set(environment))
    if unset:
        yield Finding(Severity.WARNING, f"variables are not set, and what they say is not compared: {', '.join(unset)}")
    if bundle.fault is not None:
        yield Finding(Severity.ERROR, bundle.fault)
    if artefact is not None:
        yield from _benefit(release, artefact)
    yield from (Finding(Severity.ERROR, sentence) for sentence in bundle.tunings.faults.values())
    yield from _identity(release, artefact)
    yield from _evidence(bundle.source, loaded)
    yield from _gold(bundle.source, release)
    odd = (*not_meant(release, artefact), *levels_not_meant(release, artefact))
    yield from (Finding(Severity.WARNING, sentence) for sentence in odd)


def _fitted_elsewhere(bundle: Bundle, here: Mapping[StageName, Mapping[str, str]]) -> Iterator[str]:
    """Say where the weights on this machine are not those whose scores the calibration or the certificate is of."""
    loaded = {name: Observed(weights_sha256=digest_of(files)) for name, files in here.items()}
    artefact = None if bundle.calibration is None else bundle.calibration.artefact
    yield from (f"calibration, {one}" for one in on_other_weights(artefact, loaded))
    held = evidence_held(bundle, measured_levels(bundle.loaded, bundle.source))
    yield from (f"evidence, certificate, {one}" for one in held.unlike(loaded))


def _tuned_elsewhere(bundle: Bundle) -> Iterator[str]:
    """Say where tunings were measured on other machines; of threads nothing is known here."""
    for name, each in bundle.tunings.by_stage.items():
        told = elsewhere(each.tuning, this_machine(), each.tuning.chosen.threads)
        yield from (f"{name} stage, tuning: {one}" for one in told)


def _compared(loaded: LoadedRelease) -> set[str]:
    """Return the variables that say what a stage is; an address or where a key is kept is not compared."""
    stages = (stage for stage in loaded.written["stages"].values() if stage is not None)
    return variables_of([value for stage in stages for name, value in stage.items() if name in FINGERPRINT_FIELDS])


def _benefit(release: Release, artefact: CalibrationArtefact) -> Iterator[Finding]:
    """Hold an escalation against what fitting found of it. Mode observe answers by the large stage all the same."""
    match artefact.benefit.status:
        case "none-found":
            severity = Severity.WARNING if release.mode == "observe" else Severity.ERROR
            yield Finding(
                severity, "it escalates, and by judgements the large stage does not help: escalation should be none"
            )
        case "not-shown":
            yield Finding(Severity.WARNING, "it escalates, and that the large stage helps is not shown")
        case "shown":
            return
        case _:
            assert_never(artefact.benefit.status)


def _identity(release: Release, artefact: CalibrationArtefact | None) -> Iterator[Finding]:
    if artefact is None:
        return
    try:
        differences = fitted_for_others(release, artefact)
    except ConfigError as error:
        yield Finding(Severity.ERROR, str(error))
        return
    for one in differences:
        severity = Severity.ERROR if one.known else Severity.WARNING
        yield Finding(severity, f"calibration, {one.stage} stage: {one.what}")


def _evidence(source: Source, loaded: LoadedRelease) -> Iterator[Finding]:
    named = evidence_of(loaded)
    for kind in ("certificate", "report"):
        if kind not in named:
            yield Finding(Severity.WARNING, f"evidence: it names no {kind}")
            continue
        try:
            data = source.artefacts.read(named[kind])
            orjson.loads(data)
            if kind == "certificate":
                yield from _certificate(loaded, parse_certificate(data, named[kind]))
            else:
                yield from _levels(source, loaded)
        except ConfigError as error:
            yield Finding(Severity.ERROR, f"evidence, {kind}: {error}")
        except orjson.JSONDecodeError:
            yield Finding(Severity.ERROR, f"evidence, {kind}: {named[kind]} is not JSON")


def _gold(source: Source, release: Release) -> Iterator[Finding]:
    if release.rollout.gold is None:
        return
    try:
        parse_gold(source.artefacts.read(release.rollout.gold))
    except ConfigError as error:
        yield Finding(Severity.ERROR, f"rollout, {error}")


def _levels(source: Source, loaded: LoadedRelease) -> Iterator[Finding]:
    """Hold the release against its report: each level's quality must be known before load chooses it."""
    measured = measured_levels(loaded, source)
    if measured.fault is not None:
        yield Finding(Severity.ERROR, f"evidence, report: {measured.fault}")
        return
    for name in not_measured(level_names(loaded.release), measured):
        yield Finding(Severity.WARNING, f"evidence, report: it does not tell the quality of the level {name}")


def _certificate(loaded: LoadedRelease, certificate: Certificate) -> Iterator[Finding]:
    for one in not_certified(loaded, certificate):
        if isinstance(one, str):
            yield Finding(Severity.ERROR, f"evidence, certificate: {one}")
        else:
            severity = Severity.ERROR if one.known else Severity.WARNING
            yield Finding(severity, f"evidence, certificate, {one.stage} stage: {one.what}")
