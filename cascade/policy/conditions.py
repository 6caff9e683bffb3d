"""Ask whether a condition of a release holds for a query's signals."""

from __future__ import annotations

import math

from cascade.policy.boundary import at_least, at_most
from cascade.policy.depth_rules import Condition
from cascade.signals.catalogue import CLASS, SCRIPT
from cascade.signals.compute import Signals

__all__ = ["holds", "signal_name"]


def signal_name(condition: Condition) -> str:
    """Return what has to be computed to judge a condition."""
    if condition.signal is not None:
        return condition.signal
    return CLASS if condition.query_class is not None else SCRIPT


def holds(condition: Condition, signals: Signals) -> bool:
    """Tell whether a condition holds. A missing signal holds nothing."""
    if condition.query_class is not None:
        return signals.query_class in condition.query_class
    if condition.script is not None:
        return signals.script in condition.script
    value = signals.get(condition.signal or "")
    return (
        not math.isnan(value)
        and (condition.at_least is None or at_least(value, condition.at_least))
        and (condition.above is None or not at_most(value, condition.above))
        and (condition.at_most is None or at_most(value, condition.at_most))
        and (condition.below is None or not at_least(value, condition.below))
    )
