"""What the log and `GET /status` say of the tunings that a release names."""

from __future__ import annotations

from typing import Any

from cascade.rollout.bundle import Bundle
from cascade.rollout.tuned import elsewhere
from cascade.stages.machine import this_machine
from cascade.telemetry.logs import note

__all__ = ["tell_tunings", "tuning_status"]


def tuning_status(bundle: Bundle, threads: int) -> dict[str, Any]:
    """Return why tunings cannot be used, and of each stage's its digest and where this process is not as it was then."""
    return {
        "faults": list(bundle.tunings.faults.values()),
        "stages": {
            str(name): {"digest": each.digest, "differs": elsewhere(each.tuning, this_machine(), threads)}
            for name, each in bundle.tunings.by_stage.items()
        },
    }


def tell_tunings(bundle: Bundle, threads: int) -> None:
    """Warn once of tunings that cannot be used, or that were measured under other conditions; they refuse nothing."""
    told = tuning_status(bundle, threads)
    for why in told["faults"]:
        note("warning", "tuning cannot be used", why=why)
    for name, stage in told["stages"].items():
        if stage["differs"]:
            note("warning", "tuned under other conditions", stage=name, differs=stage["differs"])
