"""What queries had at each depth of the small stage, and the signals of them that a score table tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cascade.errors import ConfigError
from cascade.metrics import ndcg_rows
from cascade.replay.queries import ReplayedQuery
from cascade.replay.serving import ranks_by_score, served_orders
from cascade.replay.signals import COLUMNS, replayed_signals
from cascade.signals.catalogue import CLASS, SIGNALS, Family, resolve
from cascade.types import QueryClass

__all__ = ["DIFFICULTY", "Observed", "large_quality", "observe", "told_signals"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

DIFFICULTY: Final = "history.difficulty"
_WEIGHTED_BY_TEXT: Final = ".wig"


@dataclass(frozen=True, slots=True)
class Observed:
    """What each of Q queries had at each of D depths.

    ``depths`` ascend, at least two, and 0 is skip; ``quality`` (Q, D) is that of the final order, in [0, 1]; ``signals`` (Q, p) are
    the signals ``names``, NaN where missing; ``classes`` are the queries' classes. ``counts`` (Q,) is how many
    candidates each has, None where all have as many as the greatest depth.
    """

    depths: tuple[int, ...]
    quality: FloatArray
    names: tuple[str, ...]
    signals: FloatArray
    classes: tuple[QueryClass | None, ...]
    counts: IntArray | None = None

    @property
    def cost(self) -> FloatArray:
        """Return how many candidates are scored (Q, D) at each depth: no more than there are."""
        depths = np.tile(np.array(self.depths, dtype=np.float64), (len(self.quality), 1))
        return depths if self.counts is None else np.minimum(depths, self.counts[:, None])

    def take(self, queries: IntArray) -> Observed:
        """Return the observations of some queries."""
        return replace(
            self,
            quality=self.quality[queries],
            signals=self.signals[queries],
            classes=tuple(self.classes[query] for query in queries),
            counts=None if self.counts is None else self.counts[queries],
        )

    def with_history(self, difficulty: Mapping[QueryClass, float]) -> Observed:
        """Return the observations with the historical difficulty of the queries' classes as one more signal."""
        column = [np.nan if name is None else difficulty.get(name, np.nan) for name in self.classes]
        signals = np.column_stack([self.signals, np.array(column, dtype=np.float64)])
        return replace(self, names=(*self.names, DIFFICULTY), signals=signals)


def observe(queries: Sequence[ReplayedQuery], k: int, depths: Sequence[int], sent: int = 0) -> Observed:
    """Return nDCG@k of the order served at each depth, and every signal that the tables tell.

    At depth d the first d candidates are in small order, the others behind them in first-stage order, and the
    first ``sent`` of the small order are in large order on top. Queries
    for which no order could gain anything are left out. Raises ConfigError for a query class that there is not,
    and for a channel whose name no signal can have.
    """
    kept = [query for query in queries if query.judgement.ideal > 0.0]
    names = told_signals(queries)
    told = [replayed_signals({*names, CLASS}, query, None) for query in kept]
    return Observed(
        depths=tuple(depths),
        quality=_quality(kept, [query.small for query in kept], k, depths, sent),
        names=names,
        signals=np.array([[signals.get(name) for name in names] for signals in told]).reshape(-1, len(names)),
        classes=tuple(signals.query_class for signals in told),
        counts=np.array([query.pairs for query in kept], dtype=np.intp),
    )


def large_quality(queries: Sequence[ReplayedQuery], k: int, depths: Sequence[int]) -> FloatArray:
    """Return nDCG@k (Q, D) of the order of the large stage, had it scored all of the first d candidates.

    The queries are those that :func:`observe` keeps.
    """
    kept = [query for query in queries if query.judgement.ideal > 0.0]
    return _quality(kept, [query.large for query in kept], k, depths)


def _quality(
    queries: Sequence[ReplayedQuery], scores: Sequence[FloatArray], k: int, depths: Sequence[int], sent: int = 0
) -> FloatArray:
    rows = [_quality_of(query, one, k, depths, sent) for query, one in zip(queries, scores, strict=True)]
    return np.array(rows, dtype=np.float64).reshape(-1, len(depths))


def _quality_of(query: ReplayedQuery, scores: FloatArray, k: int, depths: Sequence[int], sent: int) -> FloatArray:
    places = np.arange(scores.size)
    tops = []
    for depth in depths:
        known = np.where(places < depth, scores, np.nan)
        block = np.isfinite(known) & (ranks_by_score(known) < sent)
        tops.append(served_orders(block[None], known, query.large)[0, :k])
    return ndcg_rows(query.judgement.gains[np.array(tops)], query.judgement.ideal, k)


def told_signals(queries: Sequence[ReplayedQuery]) -> tuple[str, ...]:
    """Return the names of the numeric signals that scores and the tables' columns tell, none that needs a text.

    They are those of each channel, of each pair in name order, and of all; historical difficulty is not among
    them, as it is fitted. Raises ConfigError as :func:`observe` does.
    """
    if {query.features.get(COLUMNS[CLASS]) for query in queries} - {None, *QueryClass}:
        raise ConfigError(f"column {COLUMNS[CLASS]}: query classes are {', '.join(QueryClass)}")
    channels = sorted({name for query in queries for name in query.channels})
    return (
        *(name for channel in channels for name in _of_channel(channel)),
        *_of_pairs(channels),
        "channels.diversity",
        "channels.separation",
        *(name for name in COLUMNS if name != CLASS and _is_told(name, queries)),
    )


def _is_told(name: str, queries: Sequence[ReplayedQuery]) -> bool:
    return all(query.features.get(COLUMNS[name]) is not None for query in queries)


def _of_channel(channel: str) -> list[str]:
    patterns = [signal.name for signal in SIGNALS if signal.family is Family.CHANNEL]
    names = [name.replace("<channel>", channel) for name in patterns if not name.endswith(_WEIGHTED_BY_TEXT)]
    try:
        for name in names:
            resolve(name)
    except ConfigError:
        raise ConfigError(f"column {channel}: no signal can read a channel of this name") from None
    return names


def _of_pairs(channels: Sequence[str]) -> Iterator[str]:
    for signal in SIGNALS:
        if signal.family is Family.PAIR:
            for at, one in enumerate(channels):
                for other in channels[at + 1 :]:
                    yield signal.name.replace("<a>.<b>", f"{one}.{other}")
