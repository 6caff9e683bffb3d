"""What signals are computed from, each part prepared once and only when a signal reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cascade.signals.channel import Curve, FloatArray
from cascade.signals.history import History
from cascade.signals.query import classify, count_identifiers
from cascade.signals.script import Script, main_script
from cascade.text import Text
from cascade.types import QueryClass

__all__ = ["SMALL", "Inputs", "View"]

SMALL: Final = "small"
"""The name under which signals read the small stage's scores like a channel's."""

_EMPTY: Final = Curve(np.zeros(0))


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything known when a decision is taken. What is not known stays at its default.

    ``channels`` maps a first-stage channel to its scores and ``small`` are the small stage's, each (n,)
    float64 in first-stage order with NaN for a missing score. ``head`` are the first documents in
    first-stage order, of which three are read. ``noise_sd`` is the measured noise of one small score, in
    its own unit.
    """

    channels: Mapping[str, FloatArray] = field(default_factory=dict)
    query: Text | None = None
    head: tuple[Text, ...] = ()
    tenant: str | None = None
    history: History | None = None
    small: FloatArray | None = None
    noise_sd: float | None = None


class View:
    """Inputs with their sorted curves and the query's features, kept once computed."""

    __slots__ = ("_class", "_curves", "_identifiers", "_script", "inputs")

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self._curves: dict[str, Curve] = {}
        self._identifiers: int | None = None
        self._class: QueryClass | None = None
        self._script: Script | None = None

    def curve(self, channel: str) -> Curve:
        """Return a channel's curve, or an empty one for a channel that the request does not carry."""
        curve = self._curves.get(channel)
        if curve is None:
            scores = self.inputs.small if channel == SMALL else self.inputs.channels.get(channel)
            curve = self._curves[channel] = _EMPTY if scores is None else Curve(scores)
        return curve

    def curves(self) -> list[Curve]:
        """Return the curves of all first-stage channels, in name order."""
        return [self.curve(channel) for channel in sorted(self.inputs.channels) if channel != SMALL]

    @property
    def query(self) -> str | None:
        """Return the query's text, None where it is absent or blank."""
        query = self.inputs.query
        return None if query is None or query.is_blank else query.reveal()

    @property
    def identifiers(self) -> int | None:
        """Return how many exact identifiers the query holds, None without a query."""
        if self._identifiers is None and self.query is not None:
            self._identifiers = count_identifiers(self.query)
        return self._identifiers

    @property
    def query_class(self) -> QueryClass | None:
        """Return the query's class, None without a query."""
        if self._class is None and self.query is not None:
            self._class = classify(self.query, self.identifiers)
        return self._class

    @property
    def script(self) -> Script | None:
        """Return the query's main script, None without a query."""
        if self._script is None and self.query is not None:
            self._script = main_script(self.query)
        return self._script
