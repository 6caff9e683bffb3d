"""Whether what a release names as evidence holds for it."""

from __future__ import annotations

from cascade.rollout.bundle import Bundle, evidence_of
from cascade.rollout.certified import certificate_fault
from cascade.rollout.measured import MeasuredLevels

__all__ = ["evidence_faults"]


def evidence_faults(bundle: Bundle, measured: MeasuredLevels) -> dict[str, str]:
    """Return why what a release names as evidence does not hold for it, by kind; nothing of what it does not name."""
    found = {"certificate": certificate_fault(bundle.loaded, bundle.source)}
    if "report" in evidence_of(bundle.loaded):
        found["report"] = measured.fault
    return {kind: why for kind, why in found.items() if why is not None}
