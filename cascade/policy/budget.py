"""Split the time of a request between its stages."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from cascade.policy.frozen import Frozen

__all__ = ["Budgets", "small_budget_ms"]


class Budgets(Frozen):
    """Split the time of a request, in milliseconds.

    A stage ends at its own budget or ``reserve_ms`` before the deadline, whichever is sooner.
    """

    total_ms: float = Field(gt=0, le=600_000, description="Deadline where the caller names none")
    small_ms: float = Field(gt=0, description="Longest time for the small stage")
    large_ms: float = Field(gt=0, description="Longest time for the large stage")
    reserve_ms: float = Field(ge=0, description="Kept for everything but stages")

    @model_validator(mode="after")
    def _reserve_fits(self) -> Self:
        if self.reserve_ms >= self.total_ms:
            raise ValueError("reserve_ms must be below total_ms")
        return self


def small_budget_ms(budgets: Budgets, usable_ms: float, *, large_follows: bool) -> float:
    """Return the longest time for the small stage, of ``usable_ms`` that the request has for stages.

    A caller in more of a hurry than the release shortens the small stage's time by the same factor, so
    that the large stage keeps its share. Where none follows, the small stage may use all there is.
    """
    planned_ms = budgets.total_ms - budgets.reserve_ms
    hurry = min(1.0, usable_ms / planned_ms) if large_follows else 1.0
    return budgets.small_ms * hurry
