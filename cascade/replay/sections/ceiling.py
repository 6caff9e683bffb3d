"""How many of the relevant documents an order over the candidates can bring to the top at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.metrics import recall_rows
from cascade.replay.actions import small_order
from cascade.replay.intervals import Resamples, undefined
from cascade.replay.queries import ReplayedQuery
from cascade.replay.report import split
from cascade.replay.sections.means import mean_figures

__all__ = ["columns", "heads_within", "told"]

_HEADS: Final = (1, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_SILVER: Final = "the table has no judgements"


def heads_within(most: int) -> tuple[int, ...]:
    """Return the lengths of the small order's head at which recall is told, where queries have at most so many."""
    return tuple(head for head in _HEADS if head <= most)


def columns(queries: Sequence[ReplayedQuery], most: int) -> dict[str, NDArray[Any]]:
    """Return the recall of the small order's heads (Q, M) and of all candidates (Q,); nothing without judgements.

    Of all judged relevant documents, found or not; 0 where a query has none. What the small stage
    did not score is behind, in first-stage order.
    """
    if queries[0].judgement.silver:
        return {}
    relevant = [query.judgement.relevant[small_order(query)] for query in queries]
    totals = [query.judgement.total for query in queries]
    heads = heads_within(most)
    return {
        "ceiling.recall_at": np.array(
            [[recall_rows(r, n, head) for head in heads] for r, n in zip(relevant, totals, strict=True)]
        ).reshape(len(queries), len(heads)),
        "ceiling.candidates": np.array([recall_rows(r, n, r.size) for r, n in zip(relevant, totals, strict=True)]),
    }


def told(columns: Mapping[str, NDArray[Any]], most: int, drawn: Resamples) -> dict[str, Any]:
    """Return recall at each head, as [head, recall], and of all candidates."""
    if "ceiling.candidates" not in columns:
        return {"recall_at": [], **split({"candidates": undefined(_SILVER)})}
    heads = heads_within(most)
    values = {str(head): columns["ceiling.recall_at"][:, at] for at, head in enumerate(heads)}
    found = split(mean_figures({**values, "candidates": columns["ceiling.candidates"]}, drawn))
    return {
        "recall_at": [[head, found[str(head)]] for head in heads],
        "candidates": found["candidates"],
        "intervals": {
            "recall_at": [found["intervals"][str(head)] for head in heads],
            "candidates": found["intervals"]["candidates"],
        },
        "reasons": found["reasons"],
    }
