"""Choose which candidates the large stage scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from cascade.policy.release import NoEscalation, StaticEscalation

__all__ = ["choose_escalated"]


def choose_escalated(rule: StaticEscalation | NoEscalation, order: Sequence[int]) -> tuple[int, ...]:
    """Return the indices to escalate, in the order given.

    ``order`` is the best order known among the candidates within depth. The static rule takes its top m.
    """
    match rule:
        case NoEscalation():
            return ()
        case StaticEscalation():
            return tuple(order[: rule.top_m])
        case _:
            assert_never(rule)
