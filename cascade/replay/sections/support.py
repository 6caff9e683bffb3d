"""How often an answer reads a relevant document: within its first k, and within its budget of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.errors import ConfigError
from cascade.replay.actions import small_order
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.intervals import Resamples
from cascade.replay.points import Point
from cascade.replay.policy import Played
from cascade.replay.queries import ReplayedQuery
from cascade.replay.question import Question
from cascade.replay.report import split
from cascade.replay.sections.means import mean_figures
from cascade.replay.serving import ranks_by_score, served_orders

__all__ = ["columns", "told"]

_FIXED: Final = ("first-stage", "small", "large")
_WITHIN: Final = ("within_k", "within_tokens")


def columns(
    queries: Sequence[ReplayedQuery], played: Played | None, question: Question, most: int
) -> dict[str, NDArray[Any]]:
    """Return of each policy whether a relevant document is within k, and within the tokens (Q, 2); nothing if unasked.

    ``support.static`` has it for the top m of the small order from ``most`` to 0 (Q, most + 1, 2), as the
    sweep's settings stand. Raises ConfigError without judgements, and where a candidate's tokens are not told.
    """
    if question.support_tokens is None:
        return {}
    settings = np.arange(most, -1, -1)
    found: dict[str, list[NDArray[np.bool_]]] = {}
    for at, query in enumerate(queries):
        orders = {"first-stage": np.arange(query.small.size)[None], "small": small_order(query)[None]}
        within = np.arange(query.small.size) < query.pairs
        sent = (ranks_by_score(query.small) < settings[:, None]) & within
        orders["static"] = served_orders(sent, query.small, query.large)
        orders["large"] = orders["static"][:1]
        if played is not None:
            orders["policy"] = played.orders[at][None]
        supported = _supported(query, np.concatenate([*orders.values()]), question.k, question.support_tokens)
        starts = np.cumsum([each.shape[0] for each in orders.values()])[:-1]
        for name, each in zip(orders, np.split(supported, starts), strict=True):
            found.setdefault(f"support.{name}", []).append(each if name == "static" else each[0])
    return {name: np.stack(each) for name, each in found.items()}


def _supported(query: ReplayedQuery, orders: IntArray, k: int, budget: int) -> NDArray[np.bool_]:
    """Return whether the first relevant document of each order (S, n) is within k, and ends within the tokens (S, 2)."""
    if query.judgement.silver:
        raise ConfigError("--support-tokens: support needs judgements, and the tables have none")
    if query.tokens is None:
        raise ConfigError("--support-tokens: no column tokens")
    if not np.isfinite(query.tokens).all():
        raise ConfigError(f"--support-tokens: column tokens: query {query.id} has candidates without a number")
    relevant = query.judgement.relevant[orders]
    first = np.argmax(relevant, axis=1)[:, None]
    spent = np.take_along_axis(np.cumsum(query.tokens[orders], axis=1), first, axis=1)[:, 0]
    within = np.stack([first[:, 0] < k, spent <= budget], axis=1)
    within[~relevant.any(axis=1)] = False
    return within


def told(
    columns: Mapping[str, NDArray[Any]], static: Point, question: Question, drawn: Resamples
) -> dict[str, Any] | None:
    """Return the share of queries supported under each policy, None where it was not asked for.

    ``static`` is where that policy is reported; its settings are those of its sweep.
    """
    if question.support_tokens is None:
        return None
    values: dict[str, FloatArray] = {}
    for name in (*_FIXED, "static", "policy"):
        if f"support.{name}" not in columns:
            continue
        found = columns[f"support.{name}"]
        for at, within in enumerate(_WITHIN):
            if name == "static":
                used = np.flatnonzero(static.odds)
                values[f"{name}/{within}"] = found[:, used, at] @ static.odds[used]
            else:
                values[f"{name}/{within}"] = found[:, at].astype(np.float64)
    figures = mean_figures(values, drawn)
    names = dict.fromkeys(key.split("/")[0] for key in values)
    policies = {name: {within: figures[f"{name}/{within}"] for within in _WITHIN} for name in names}
    return {"k": question.k, "tokens": question.support_tokens, **split({"policies": policies})}
