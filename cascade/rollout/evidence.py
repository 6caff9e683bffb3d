"""Whether what a release names as evidence holds for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cascade.calibration.certificate import Certificate, parse_certificate
from cascade.errors import ConfigError
from cascade.rollout.bundle import Bundle, evidence_of
from cascade.rollout.identity import Difference, fitted_for_others, on_other_weights
from cascade.rollout.load import LoadedRelease
from cascade.rollout.measured import MeasuredLevels
from cascade.rollout.source import Source
from cascade.stages.base import Observed
from cascade.types import StageName

__all__ = ["Evidence", "evidence_held", "not_certified"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The certificate of a release, None where it names none that holds, and by kind why what it names does not hold."""

    certificate: Certificate | None = None
    faults: Mapping[str, str] = field(default_factory=dict)

    def unlike(self, observed: Mapping[StageName, Observed]) -> list[str]:
        """Return where stages were loaded from other files than those whose scores the certificate is of."""
        return on_other_weights(self.certificate, observed)

    def told(self, observed: Mapping[StageName, Observed]) -> dict[str, str]:
        """Return by kind why what is named does not hold, for the files that stages were loaded from too."""
        unlike = self.unlike(observed)
        return {**self.faults, **({"certificate": "; ".join(unlike)} if unlike else {})}


def evidence_held(bundle: Bundle, measured: MeasuredLevels) -> Evidence:
    """Hold what a release names as evidence against it, as far as that can be known before its stages start."""
    faults = {} if measured.fault is None or "report" not in evidence_of(bundle.loaded) else {"report": measured.fault}
    try:
        return Evidence(_certificate(bundle.loaded, bundle.source), faults)
    except ConfigError as error:
        return Evidence(None, {"certificate": str(error)} | faults)


def not_certified(loaded: LoadedRelease, certificate: Certificate) -> Iterator[Difference | str]:
    """Return why a certificate does not speak of this release: another policy, or scores of other stages.

    A sentence is about the policy; a difference about a stage, which with ``known`` false cannot be told.
    Raises ConfigError for a serializer that does not exist.
    """
    digest = certificate.policy.policy_digest
    if digest is None:
        yield "it certifies a threshold and no release"
    elif digest != loaded.policy_digest:
        yield f"it certifies the policy {digest}, and this one is {loaded.policy_digest}"
    yield from fitted_for_others(loaded.release, certificate)


def _certificate(loaded: LoadedRelease, source: Source) -> Certificate | None:
    """Return the certificate that a release names, None where it names none. Raises ConfigError where it does not hold."""
    digest = evidence_of(loaded).get("certificate")
    if digest is None:
        return None
    certificate = parse_certificate(source.artefacts.read(digest), digest)
    for one in not_certified(loaded, certificate):
        if isinstance(one, str):
            raise ConfigError(one)
        if one.known:
            raise ConfigError(f"{one.stage} stage: {one.what}")
    return certificate
