"""The signals that a release's rules read, as far as a score table tells them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from cascade.errors import ConfigError
from cascade.replay.queries import ReplayedQuery
from cascade.signals.catalogue import CLASS, SCRIPT
from cascade.signals.compute import Signals, compute
from cascade.signals.history import History, difficulty
from cascade.signals.view import Inputs
from cascade.types import QueryClass

__all__ = ["COLUMNS", "check_told", "never_told", "replayed_signals"]

COLUMNS: Final = {CLASS: "q_class", "query.tokens": "q_tokens", "query.identifiers": "q_identifiers"}
"""Signals of the query's text that a table has a column for."""
_HISTORY: Final = "history.difficulty"


def check_told(names: Collection[str], queries: Sequence[ReplayedQuery]) -> None:
    """Raise ConfigError where a rule reads a signal whose column the tables lack, or a class that there is not."""
    wanted = {COLUMNS[name] for name in names if name in COLUMNS} | ({COLUMNS[CLASS]} if _HISTORY in names else set())
    lacking = sorted(name for name in wanted if any(query.features.get(name) is None for query in queries))
    if lacking:
        raise ConfigError(f"the release's rules read columns that the tables lack: {', '.join(lacking)}")
    if COLUMNS[CLASS] in wanted:
        known = set(map(str, QueryClass))
        unknown = next((query.id for query in queries if str(query.features[COLUMNS[CLASS]]) not in known), None)
        if unknown is not None:
            raise ConfigError(f"column {COLUMNS[CLASS]}: query {unknown} has none of {', '.join(sorted(known))}")


def replayed_signals(names: Collection[str], query: ReplayedQuery, history: History | None) -> Signals:
    """Return the named signals of a query; NaN for those that need a text.

    No table names tenants: historical difficulty is that of the class.
    """
    computed = compute([name for name in names if name not in COLUMNS], Inputs(channels=dict(query.channels)))
    values = dict(computed.values)
    values |= {name: float(query.features[COLUMNS[name]]) for name in names if name in COLUMNS and name != CLASS}
    told = query.features.get(COLUMNS[CLASS]) if {CLASS, _HISTORY} & set(names) else None
    query_class = None if told is None else QueryClass(told)
    if _HISTORY in names and query_class is not None:
        values[_HISTORY] = difficulty(history, query_class, None)
    return Signals(values, query_class if CLASS in names else None, None)


def never_told(names: Collection[str], signals: Sequence[Signals]) -> list[str]:
    """Return the signals that no query has, so that conditions on them never held."""
    absent = [
        name for name in names if name not in {CLASS, SCRIPT} and all(math.isnan(one.get(name)) for one in signals)
    ]
    return sorted([*absent, *({SCRIPT} & set(names))])
