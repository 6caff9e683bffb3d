"""Whether the calibration that a release names is used, and why it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cascade.calibration.calibrated import Calibration
from cascade.policy.release import Release
from cascade.rollout.bundle import Bundle
from cascade.rollout.identity import first_said, fitted_for_others, fitted_on_other_weights, not_as_declared
from cascade.stages.base import Observed, Stage
from cascade.stages.build import specs_of
from cascade.telemetry.logs import note
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
    missing, altered, or fitted for other stages; then ``calibration`` is None. ``unlike`` says by stage where a server
    is not, or no longer, as declared, or weights are not those that it was fitted on: then the safe mode decides for as long as that holds. ``uncompared`` says what
    the calibration does not know of its stages, ``first`` is what each server said at first, and ``told`` the reasons
    that the log has.
    """

    digest: str | None = None
    unfit: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()
    calibration: Calibration | None = None
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

    def look(self, release: Release, stages: Mapping[StageName, Stage]) -> None:
        """Hold what servers say against what the release declares. What one has not been asked leaves what was known."""
        for name, spec in specs_of(release).items():
            observed = stages[name].observed
            if observed is not None:
                self.first[name] = first_said(self.first.get(name), observed)
                lines = not_as_declared(spec, self.first[name], observed)
                if self.calibration is not None:
                    lines += fitted_on_other_weights(name, self.calibration.artefact, observed)
                self.unlike[name] = tuple(lines)

    def tell(self, **of: str) -> None:
        """Write to the log what has changed since it was last told, with the fields ``of``."""
        reasons = self.reasons
        if reasons and reasons != self.told:
            note("warning", "safe mode", calibration=self.digest, why=reasons, **of)
        elif self.told and not reasons:
            note("info", "safe mode ended", calibration=self.digest, **of)
        self.told = reasons


def calibration_use(bundle: Bundle) -> CalibrationUse:
    """Hold a release's calibration against its stages as declared.

    Raises ConfigError for a serializer that does not exist.
    """
    release, calibration = bundle.loaded.release, bundle.calibration
    unfit = [] if bundle.fault is None else [bundle.fault]
    uncompared: list[str] = []
    for one in () if calibration is None else fitted_for_others(release, calibration.artefact):
        (unfit if one.known else uncompared).append(f"{one.stage} stage: {one.what}")
    return CalibrationUse(release.calibration, tuple(unfit), tuple(uncompared), None if unfit else calibration)
