"""Every series that a process may show while it rolls a release out."""

from __future__ import annotations

from cascade.telemetry.metrics import Metrics
from cascade.types import Arm

__all__ = ["every_rollout_series"]


def every_rollout_series() -> dict[str, dict[str, set[str]]]:
    """Return each metric's name, and its labels with the values that they may have."""
    metrics = Metrics()
    metrics.arms.serve([("r1", "sha256:0", Arm.STABLE), ("r2", "sha256:1", Arm.CANARY)], 0.01)
    metrics.arms.rollout(0, 0.01, {"late": 0})
    seen: dict[str, dict[str, set[str]]] = {}
    for sample in (sample for family in metrics.registry.collect() for sample in family.samples):
        labels = seen.setdefault(sample.name, {})
        for label, value in sample.labels.items():
            labels.setdefault(label, set()).add(value)
    return seen
