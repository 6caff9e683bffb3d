"""What a release says of how its load levels are stepped."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from cascade.policy.frozen import Frozen

__all__ = ["Overload"]


class Overload(Frozen):
    """How load levels are stepped: down where requests wait or run short of time, up where there is room."""

    wait_target_ms: float | None = Field(
        default=None,
        gt=0,
        description="Step down where even the request that waits least waits longer. Unset: a tenth of "
        "`budgets.total_ms`, at least 5",
    )
    miss_share: float = Field(
        default=0.05, gt=0, lt=1, description="Step down where this share of requests runs short of time"
    )
    interval_ms: float = Field(default=250, ge=50, le=5000, description="Time between two looks")
    hold_s: float = Field(default=5, gt=0, description="Time without overload before a step up, give or take a fifth")
    longest_hold_s: float = Field(
        default=60, gt=0, description="What that is doubled up to, with each step up that is taken back"
    )
    most_busy: float = Field(
        default=0.7,
        gt=0,
        le=1,
        description="Step up only where the stages are foretold to be less busy than this at the level above",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.longest_hold_s < self.hold_s:
            raise ValueError("longest_hold_s must not be below hold_s")
        return self

    def target_ms(self, total_ms: float) -> float:
        """Return the wait above which a release of this deadline steps down."""
        return max(5.0, 0.1 * total_ms) if self.wait_target_ms is None else self.wait_target_ms
