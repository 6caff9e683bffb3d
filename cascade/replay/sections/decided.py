"""What the policy did at its own price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.decision import Action
from cascade.replay.policy import Played

__all__ = ["ACTIONS", "columns", "told"]

ACTIONS: Final = tuple(Action)
"""Actions by the number that stands for them in ``decided.action``."""


def columns(played: Played | None) -> dict[str, NDArray[Any]]:
    """Return the action, by its place in :data:`ACTIONS`, the rounds and the depth of each query (Q,)."""
    if played is None:
        return {}
    return {
        "decided.action": np.array([ACTIONS.index(step.action) for step in played.steps], dtype=np.int8),
        "decided.rounds": np.array([step.rounds for step in played.steps], dtype=np.int16),
        "decided.depth": np.array([step.depth for step in played.steps], dtype=np.int32),
    }


def told(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return shares of the queries by action, and means over them; empty without a policy."""
    if "decided.action" not in columns:
        return {}
    taken = np.bincount(columns["decided.action"], minlength=len(ACTIONS)) / columns["decided.action"].size
    return {
        "decided": {
            "actions": {action.value: float(share) for action, share in zip(ACTIONS, taken, strict=True) if share},
            "rounds": float(columns["decided.rounds"].mean()),
            "depth": float(columns["decided.depth"].mean()),
        }
    }
