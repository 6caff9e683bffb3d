"""The signals that a release's rules read, as far as a decision record tells them."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

import numpy as np

from cascade.replay.record_lines import DecisionLine
from cascade.signals.catalogue import CLASS, SCRIPT
from cascade.signals.compute import Signals, compute
from cascade.signals.history import History, difficulty
from cascade.signals.view import Inputs

__all__ = ["signals_of_record", "untold_signals"]

_HISTORY: Final = "history.difficulty"
_OF_QUERY: Final = ("query.tokens", "query.identifiers")
_OF_DOCUMENTS: Final = "head.duplicate"
_BY_QUERY_LENGTH: Final = ".wig"


def untold_signals(names: Collection[str], record: DecisionLine) -> frozenset[str]:
    """Return which of the named signals read a text and were not kept by the release that made the record."""
    return frozenset(name for name in names if _reads_text(name) and name not in record.signals)


def _reads_text(name: str) -> bool:
    return name in {_OF_DOCUMENTS, SCRIPT} or name.endswith(_BY_QUERY_LENGTH)


def signals_of_record(names: Collection[str], record: DecisionLine, history: History | None) -> Signals:
    """Return the named signals of a record. One that reads a text is the one kept; NaN where none was.

    ``history`` is that of the release that decides.
    """
    if not names:
        return Signals()
    channels = {name: np.array(scores, dtype=np.float64) for name, scores in record.channels.items()}
    fresh = [name for name in names if not _reads_text(name) and name not in {CLASS, _HISTORY, *_OF_QUERY}]
    values = dict(compute(fresh, Inputs(channels=channels)).values)
    values |= {name: _kept(record, name) for name in names if _reads_text(name) and name != SCRIPT}
    counted = dict(zip(_OF_QUERY, (float(record.q_tokens), float(record.q_identifiers)), strict=True))
    values |= {name: counted[name] for name in names if name in counted}
    if _HISTORY in names:
        values[_HISTORY] = difficulty(history, record.q_class, record.tenant)
    return Signals(values, record.q_class if CLASS in names else None)


def _kept(record: DecisionLine, name: str) -> float:
    value = record.signals.get(name)
    return math.nan if value is None else value
