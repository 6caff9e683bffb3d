"""Split the time of a request between its stages."""

from __future__ import annotations

from cascade.policy.release import Budgets

__all__ = ["small_budget_ms"]


def small_budget_ms(budgets: Budgets, usable_ms: float, *, large_follows: bool) -> float:
    """Return the longest time for the small stage, of ``usable_ms`` that the request has for stages.

    A caller in more of a hurry than the release shortens the small stage's time by the same factor, so
    that the large stage keeps its share. Where none follows, the small stage may use all there is.
    """
    planned_ms = budgets.total_ms - budgets.reserve_ms
    hurry = min(1.0, usable_ms / planned_ms) if large_follows else 1.0
    return budgets.small_ms * hurry
