"""Which decisions the reference policy's regret comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.replay.actions import depths_within, quality_rows, tops_at
from cascade.replay.columns import FloatArray
from cascade.replay.intervals import Resamples, resampled
from cascade.replay.policy import Played
from cascade.replay.queries import ReplayedQuery
from cascade.replay.question import Question
from cascade.replay.regret import Best, Regret, split_regret
from cascade.replay.report import split
from cascade.replay.sections.means import mean_figures
from cascade.replay.sweep import Sweep

__all__ = ["attributed", "columns", "told"]

_SAME: Final = 1e-12


def columns(
    queries: Sequence[ReplayedQuery], static: Sweep, played: Played | None, question: Question
) -> dict[str, NDArray[Any]]:
    """Return of each query (Q,) what :class:`cascade.replay.regret.Best` holds, under the prefix ``regret.``.

    The actions are the first-stage order and, for the small stage at each depth of
    :func:`cascade.replay.actions.depths_within`, its order and the top m of it to the large stage for every
    m. The policy's depth is that of ``played``, without one all candidates within depth, as ``static`` has it.
    """
    rows = [
        _best(query, static.quality[::-1, at], None if played is None else played.steps[at].depth, question)
        for at, query in enumerate(queries)
    ]
    utility, deeper, reached, sends = zip(*rows, strict=True)
    return {
        "regret.best": np.array(utility),
        "regret.deeper": np.array(deeper),
        "regret.reached": np.array(reached),
        "regret.sends": np.array(sends),
    }


def _best(
    query: ReplayedQuery, static: FloatArray, own: int | None, question: Question
) -> tuple[float, bool, float, bool]:
    """Return the best utility, whether it needs more than the own depth, the best at that, and whether it sends.

    ``static`` is the quality of sending the top 0, 1, 2, ... of the small order of all candidates within depth.
    """
    k, metric, price = question.k, question.metric, question.price

    def utilities(depth: int) -> FloatArray:
        if not depth:
            first = np.arange(query.small.size)[None]
            return quality_rows(query.judgement, first, k, metric)
        if depth == query.pairs:
            return static[: depth + 1] - price * np.arange(depth + 1)
        return quality_rows(query.judgement, tops_at(query, depth), k, metric) - price * np.arange(depth + 1)

    at_depths = {depth: utilities(depth) for depth in (0, *depths_within(query.pairs))}
    best, best_depth = -np.inf, 0
    for depth, found in at_depths.items():  # of equals the shallowest
        if found.max() > best + _SAME:
            best, best_depth = float(found.max()), depth
    depth = query.pairs if own is None else own
    reached = at_depths[depth] if depth in at_depths else utilities(depth)
    at = int(np.argmax(reached >= reached.max() - _SAME))
    return best, best_depth > depth, float(reached.max()), at > 0


def attributed(
    columns: Mapping[str, NDArray[Any]], quality: FloatArray, pairs: FloatArray, question: Question
) -> Regret:
    """Return the regret of a policy of this quality (Q,) that sent as many ``pairs`` (Q,), and where it comes from."""
    best = Best(columns["regret.best"], columns["regret.deeper"], columns["regret.reached"], columns["regret.sends"])
    return split_regret(quality - question.price * pairs, pairs > 0, best)


def told(regret: Regret, slices: Mapping[str, Sequence[str]], drawn: Resamples, question: Question) -> dict[str, Any]:
    """Return the mean regret, its parts, and the same by the values of each slice."""
    every = {"total": regret.total, **{cause.value: part for cause, part in regret.parts.items()}}
    by: dict[str, dict[str, Any]] = {}
    for attribute, values in slices.items():
        labels = np.array(values)
        for value in sorted(set(values) - {""}):
            chosen = np.flatnonzero(labels == value)
            again = resampled(chosen.size, question.resamples, question.seed)
            part = {name: amounts[chosen] for name, amounts in every.items()}
            by.setdefault(attribute, {})[value] = {"queries": chosen.size, **split(mean_figures(part, again))}
    return {**split(mean_figures(every, drawn)), "by": by}
