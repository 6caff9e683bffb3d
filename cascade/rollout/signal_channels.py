"""Tell which first-stage channels the names of signals speak of."""

from __future__ import annotations

from collections.abc import Iterable

from cascade.signals.catalogue import SIGNALS, Family
from cascade.signals.view import SMALL

__all__ = ["channels_named"]


def channels_named(signals: Iterable[str]) -> set[str]:
    """Return the channels in the names of signals, each a valid one; the small stage is no channel."""
    whole = {signal.name for signal in SIGNALS if signal.family is Family.WHOLE}
    pairs = {signal.name.partition(".")[0] for signal in SIGNALS if signal.family is Family.PAIR}
    suffixes = {signal.name.partition(".")[2] for signal in SIGNALS if signal.family is Family.CHANNEL}
    found: set[str] = set()
    for name in signals:
        head, *rest = name.split(".")
        if name in whole:
            continue
        if len(rest) == 1 and rest[0] in suffixes:
            found.add(head)
        elif head in pairs:
            found.update(rest)
    return found - {SMALL}
