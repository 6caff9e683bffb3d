"""What a release says of its load levels: what each does otherwise than the release as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from cascade.policy.budget import Budgets
from cascade.policy.depth_rules import DepthSpec, FixedDepth
from cascade.policy.escalation_rules import EscalationSpec, NoEscalation
from cascade.policy.frozen import Frozen
from cascade.policy.stage_specs import Stages

__all__ = ["LevelSpec", "whole_at"]


class LevelSpec(Frozen):
    """One load level: a name, and what it overrides."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$", description="Its name, in a header, logs and reports"
    )
    depth: DepthSpec | None = Field(default=None, description="In place of the release's; an integer means fixed")
    escalation: EscalationSpec | None = Field(
        default=None, description="In place of the release's; it reads the release's own calibration or none"
    )
    stages: Literal["none"] | None = Field(
        default=None, description="`none`: no stage is asked, and the answer is first-stage order"
    )
    budgets: Budgets | None = Field(default=None, description="In place of the release's, all of them")

    @property
    def overrides(self) -> dict[str, Any]:
        """Return the fields that are set, by name."""
        named = {"depth": self.depth, "escalation": self.escalation, "stages": self.stages, "budgets": self.budgets}
        return {name: value for name, value in named.items() if value is not None}

    @model_validator(mode="after")
    def _nothing_beside_no_stages(self) -> Self:
        if self.stages is not None and len(self.overrides) > 1:
            raise ValueError("stages none answers in first-stage order; leave depth, escalation and budgets out")
        return self


def whole_at(release: Mapping[str, Any], level: LevelSpec) -> dict[str, Any]:
    """Return the fields of the release that a level is: those of ``release`` by name, overridden.

    A stage that nothing reaches at the level is left out, as a release without levels would have to.
    """
    whole = {**release, "levels": (), **level.overrides}
    if level.stages is not None:
        return {**whole, "stages": Stages(), "depth": FixedDepth(kind="fixed", depth=0), "escalation": NoEscalation()}
    if isinstance(whole["escalation"], NoEscalation):
        whole["stages"] = Stages(small=whole["stages"].small)
    return whole
