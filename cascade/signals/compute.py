"""Compute the signals that are asked for, and no others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cascade.signals.catalogue import CLASS, SCRIPT, resolve
from cascade.signals.channel import MISSING
from cascade.signals.script import Script
from cascade.signals.view import Inputs, View
from cascade.types import QueryClass

__all__ = ["Signals", "compute"]


@dataclass(frozen=True, slots=True)
class Signals:
    """Signals of one query by name; NaN where the inputs are missing or say nothing.

    ``query_class`` and ``script`` are None where they were not asked for, or there is no query.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    query_class: QueryClass | None = None
    script: Script | None = None

    def get(self, name: str) -> float:
        """Return a signal, NaN where it is missing or was not computed."""
        return self.values.get(name, MISSING)

    @property
    def missing(self) -> frozenset[str]:
        """Return which of the signals asked for have no value."""
        return frozenset(name for name, value in self.values.items() if math.isnan(value))


def compute(names: Collection[str], inputs: Inputs) -> Signals:
    """Return the named signals; ``query.class`` and ``query.script`` ask for those two.

    Pure and total: scores that are missing, infinite, equal or huge give a value in the signal's range or
    NaN. Raises ConfigError for a name of no signal.
    """
    view = View(inputs)
    values = {name: resolve(name)(view) for name in names if name not in {CLASS, SCRIPT}}
    return Signals(values, view.query_class if CLASS in names else None, view.script if SCRIPT in names else None)
