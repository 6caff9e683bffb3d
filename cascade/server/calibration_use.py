"""Whether the calibration that a release names is used, and why it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from cascade.calibration.calibrated import Calibration
from cascade.pipeline import Pipeline
from cascade.rollout.bundle import Bundle
from cascade.rollout.identity import fitted_for_others
from cascade.stages.base import Observed
from cascade.types import StageName

__all__ = ["CalibrationState", "CalibrationUse", "calibration_use"]


class CalibrationState(StrEnum):
    """What decides the escalation."""

    NONE = "none"
    USED = "used"
    SAFE_MODE = "safe_mode"


@dataclass(slots=True)
class CalibrationUse:
    """What is known of a release's calibration.

    ``digest`` is None where the release names none. ``unfit`` says why it cannot be used at all: it is
    missing, altered, or fitted for other stages. ``unlike`` says by stage where a server is not, or no longer, as
    declared: then ``safe`` decides in place of ``calibrated`` for as long as that holds; both are pipelines by load
    level. ``uncompared`` says
    what the calibration does not know of its stages, ``first`` is what each server said at first, and
    ``told`` the reasons that the log has.
    """

    digest: str | None = None
    unfit: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()
    calibrated: tuple[Pipeline, ...] | None = None
    safe: tuple[Pipeline, ...] | None = None
    unlike: dict[StageName, tuple[str, ...]] = field(default_factory=dict)
    first: dict[StageName, Observed] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    @property
    def state(self) -> CalibrationState:
        """Return what decides the escalation."""
        if self.digest is None:
            return CalibrationState.NONE
        return CalibrationState.SAFE_MODE if self.reasons else CalibrationState.USED

    @property
    def reasons(self) -> list[str]:
        """Return why the calibration is not used, one sentence each."""
        return [*self.unfit, *(f"{name} stage: {line}" for name, lines in self.unlike.items() for line in lines)]


def calibration_use(
    bundle: Bundle, make: Callable[[Calibration | None], tuple[Pipeline, ...]]
) -> tuple[tuple[Pipeline, ...], CalibrationUse]:
    """Hold a release's calibration against its stages as declared; return the pipelines that decide at first.

    ``make`` gives those of every load level with a calibration, or with none: the safe mode. Raises ConfigError for
    a serializer that does not exist.
    """
    release, calibration = bundle.loaded.release, bundle.calibration
    unfit = [] if bundle.fault is None else [bundle.fault]
    uncompared: list[str] = []
    for one in () if calibration is None else fitted_for_others(release, calibration.artefact):
        (unfit if one.known else uncompared).append(f"{one.stage} stage: {one.what}")
    safe = make(None)
    calibrated = make(calibration) if calibration is not None and not unfit else None
    use = CalibrationUse(release.calibration, tuple(unfit), tuple(uncompared), calibrated, safe)
    return calibrated or safe, use
