"""Hold a release against the certificate that it names."""

from __future__ import annotations

from collections.abc import Iterator

from cascade.calibration.certificate import Certificate, parse_certificate
from cascade.errors import ConfigError
from cascade.rollout.bundle import evidence_of
from cascade.rollout.identity import Difference, fitted_for_others
from cascade.rollout.load import LoadedRelease
from cascade.rollout.source import Source

__all__ = ["certificate_fault", "not_certified"]


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


def certificate_fault(loaded: LoadedRelease, source: Source) -> str | None:
    """Return why the certificate that a release names does not hold for it, None where it does or none is named."""
    digest = evidence_of(loaded).get("certificate")
    if digest is None:
        return None
    try:
        for one in not_certified(loaded, parse_certificate(source.artefacts.read(digest), digest)):
            if isinstance(one, str):
                return one
            if one.known:
                return f"{one.stage} stage: {one.what}"
    except ConfigError as error:
        return str(error)
    return None
