"""What a policy does to each query, at each of its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade.metrics import hit_rows, ndcg_rows, recall_rows, reciprocal_rank_rows
from cascade.replay.coded import Coded, Decoding, Values, decoded, taken, whole_numbers
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.queries import ReplayedQuery
from cascade.replay.serving import served_orders

__all__ = ["Metric", "Outcome", "Sweep", "outcome", "sweep_of"]


class Metric(StrEnum):
    """What a replay measures of a served order. MRR is of the whole order, the others are at k."""

    NDCG = "ndcg"
    MRR = "mrr"
    RECALL = "recall"
    HIT = "hit"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One query at each of S settings; arrays (S,).

    ``judged`` is the share of the first k that is judged. ``engaged`` tells whether anything went to
    a reranker. ``tokens`` is None where the table does not count them.
    """

    metrics: Mapping[Metric, FloatArray]
    judged: FloatArray
    pairs: FloatArray
    tokens: FloatArray | None
    engaged: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One policy at each of S settings, safest (most pairs) to cheapest, on Q queries; arrays (S, Q).

    ``quality`` is the metric that curves are drawn of, one of ``metrics``. ``pairs`` and ``tokens``
    count what went to the large stage. A compact sweep says the same in less room: its counts are
    narrow integers, and ``metrics`` are decoded each time they are read.
    """

    name: str
    settings: tuple[float, ...]
    quality: FloatArray
    pairs: FloatArray
    tokens: FloatArray | None
    metrics: Mapping[Metric, FloatArray]
    judged: Values
    engaged: NDArray[np.bool_]

    def kept(self) -> Mapping[Metric, Values]:
        """Return the metrics as they are kept, coded or not."""
        return self.metrics.kept if isinstance(self.metrics, Decoding) else self.metrics

    def compact(self) -> Sweep:
        """Return the same sweep in less room. nDCG and ``quality`` have too many values to be coded."""
        return replace(
            self,
            pairs=whole_numbers(self.pairs),
            tokens=None if self.tokens is None else whole_numbers(self.tokens),
            metrics=Decoding(
                {
                    metric: values if metric is Metric.NDCG or values is self.quality else Coded.of(values)
                    for metric, values in self.kept().items()
                }
            ),
            judged=Coded.of(self.judged),
        )

    def take(self, queries: IntArray) -> Sweep:
        """Return the sweep on some of the queries."""
        return self._at(self.settings, lambda values: taken(values, (slice(None), queries)))

    def used(self, settings: IntArray) -> Sweep:
        """Return the sweep at some of its settings."""
        return self._at(tuple(self.settings[at] for at in settings), lambda values: taken(values, settings))

    def _at(self, settings: tuple[float, ...], part: Callable[[Any], Any]) -> Sweep:
        kept = {metric: part(values) for metric, values in self.kept().items()}
        return Sweep(
            name=self.name,
            settings=settings,
            quality=part(self.quality),
            pairs=part(self.pairs),
            tokens=None if self.tokens is None else part(self.tokens),
            metrics=Decoding(kept) if isinstance(self.metrics, Decoding) else kept,
            judged=part(self.judged),
            engaged=part(self.engaged),
        )

    @classmethod
    def side_by_side(cls, sweeps: Sequence[Sweep]) -> Sweep:
        """Return the queries of all sweeps of one policy, in their order, as one. They must have the same settings."""
        first = sweeps[0]
        if any(sweep.settings != first.settings for sweep in sweeps):
            raise ValueError(f"{first.name}: the parts have different settings")
        counted = [sweep.tokens for sweep in sweeps if sweep.tokens is not None]
        return cls(
            first.name,
            first.settings,
            np.concatenate([sweep.quality for sweep in sweeps], axis=1),
            np.concatenate([sweep.pairs for sweep in sweeps], axis=1),
            np.concatenate(counted, axis=1) if len(counted) == len(sweeps) else None,
            {metric: np.concatenate([sweep.metrics[metric] for sweep in sweeps], axis=1) for metric in first.metrics},
            np.concatenate([decoded(sweep.judged) for sweep in sweeps], axis=1),
            np.concatenate([sweep.engaged for sweep in sweeps], axis=1),
        )


def outcome(
    query: ReplayedQuery,
    sent: NDArray[np.bool_],
    k: int,
    *,
    small: FloatArray | None = None,
    block: FloatArray | None = None,
) -> Outcome:
    """Serve a query with each set of candidates ``sent`` (S, n) to the large stage, and measure at ``k``.

    ``small`` are the small scores that the policy had, where these are not all of the query's, and ``block``
    what it orders the scored candidates by, where that is not the large scores.
    """
    scores = query.small if small is None else small
    orders = served_orders(sent, scores, query.large if block is None else block)
    judgement = query.judgement
    top = orders[:, :k]
    metrics = {Metric.NDCG: ndcg_rows(judgement.gains[top], judgement.ideal, k)}
    if not judgement.silver:
        relevant = judgement.relevant[orders]
        metrics[Metric.MRR] = reciprocal_rank_rows(relevant)
        metrics[Metric.RECALL] = recall_rows(relevant, judgement.total, k)
        metrics[Metric.HIT] = hit_rows(relevant, k)
    pairs = sent.sum(axis=1).astype(np.float64)
    return Outcome(
        metrics=metrics,
        judged=judgement.judged[top].mean(axis=1),
        pairs=pairs,
        tokens=None if query.tokens is None else sent @ query.tokens,
        engaged=(pairs > 0) | bool(np.isfinite(scores).any()),
    )


def sweep_of(name: str, settings: Sequence[float], outcomes: Iterable[Outcome], metric: Metric) -> Sweep:
    """Put the outcomes of each query side by side."""
    columns = tuple(outcomes)
    metrics = {each: np.stack([column.metrics[each] for column in columns], axis=1) for each in columns[0].metrics}
    counted = [column.tokens for column in columns if column.tokens is not None]
    return Sweep(
        name=name,
        settings=tuple(settings),
        quality=metrics[metric],
        pairs=np.stack([column.pairs for column in columns], axis=1),
        tokens=np.stack(counted, axis=1) if len(counted) == len(columns) else None,
        metrics=metrics,
        judged=np.stack([column.judged for column in columns], axis=1),
        engaged=np.stack([column.engaged for column in columns], axis=1),
    )
