"""Which requests are scored beside their answer."""

from __future__ import annotations

from cascade.rollout.arms import place

__all__ = ["is_shadowed"]


def is_shadowed(decision_id: str, salt: str, share: float) -> bool:
    """Tell whether a decision is among the ``share`` that is scored beside, by a keyed hash of its id.

    By the decision, not by the query: a query that is asked often is in the sample as often as in the traffic, and
    the pairs are of independent draws. ``salt`` is the candidate's digest, so that another one has another sample.
    """
    return place(decision_id, f"shadow {salt}") < share
