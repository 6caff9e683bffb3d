"""The best of few actions for each query: as good as it looks, and as good as it is on judgements it was not chosen by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.replay.actions import action_names, few_actions, quality_rows
from cascade.replay.baselines import Ranks
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.halves import cut_of_half, half_of, in_second_half, only
from cascade.replay.intervals import resampled, undefined
from cascade.replay.policy import Played
from cascade.replay.queries import ReplayedQuery
from cascade.replay.question import Question
from cascade.replay.report import split
from cascade.replay.sections.means import mean_figures

__all__ = ["columns", "told"]

_SILVER: Final = "the table has no judgements"
_NO_HALVES: Final = "no query has a relevant candidate in both halves"
_SAME: Final = 1e-12


def columns(
    queries: Sequence[ReplayedQuery], ranks: Sequence[Ranks], played: Played | None, question: Question, most: int
) -> dict[str, NDArray[Any]]:
    """Return what each action is worth on either half of the judgements (Q, A, 2), and the pairs that it sends (Q, A).

    ``ranks`` are those of the small order and, where there is a calibration, of its fused order. The metric is
    of the order without the other half's candidates, at half the cut-off. ``usable`` (Q,) tells where both halves
    have a relevant candidate. Nothing without judgements.
    """
    if queries[0].judgement.silver:
        return {}
    rows = [
        _halved(query, [each[at] for each in ranks], None if played is None else played.orders[at], question, most)
        for at, query in enumerate(queries)
    ]
    found = {
        "oracle.usable": np.array([row.usable for row in rows]),
        "oracle.quality": np.stack([row.quality for row in rows]),
        "oracle.pairs": np.stack([row.pairs for row in rows]).astype(np.int32),
    }
    return found if played is None else {**found, "oracle.policy": np.stack([row.policy for row in rows])}


@dataclass(frozen=True, slots=True)
class _Halved:
    usable: bool
    quality: NDArray[np.float32]
    pairs: NDArray[np.int64]
    policy: NDArray[np.float32]


def _halved(
    query: ReplayedQuery,
    ranks: Sequence[IntArray],
    own: IntArray | None,
    question: Question,
    most: int,
) -> _Halved:
    """Measure each action, and the policy's ``own`` order (n,) behind them, on either half."""
    orders, pairs = few_actions(query, ranks, most)
    if own is not None:
        orders = np.concatenate([orders, own[None]])
    second, k = in_second_half(query), cut_of_half(question.k)
    quality = np.stack(
        [
            quality_rows(half_of(query.judgement, half, k), only(orders, half), k, question.metric)
            for half in (~second, second)
        ],
        axis=1,
    ).astype(np.float32)
    relevant = query.judgement.relevant
    usable = bool((relevant & second).any() and (relevant & ~second).any())
    return _Halved(usable, quality[: pairs.size], pairs, quality[-1])


def told(
    columns: Mapping[str, NDArray[Any]], pairs: Mapping[str, FloatArray], question: Question, most: int, *, fused: bool
) -> dict[str, Any]:
    """Return the oracle chosen and scored by the same half, the one scored by the other half, and the difference.

    Both halves count the same. ``pairs`` has what ``policy``, where there is one, and ``static`` send of each
    query (Q,). An advantage is in utility over the first of these; ``constant`` names the action that is
    best for all queries together.
    """
    names, price = action_names(most, fused=fused), question.price
    usable = columns.get("oracle.usable", np.zeros(0, dtype=np.bool_))
    head = {
        "actions": list(names),
        "k_of_half": cut_of_half(question.k),
        "queries": int(usable.sum()),
        "left_out": int((~usable).sum()),
    }
    if not usable.any():
        return {**head, **split({"inflation": undefined(_NO_HALVES if usable.size else _SILVER)})}
    quality = columns["oracle.quality"][usable].astype(np.float64)
    sent = columns["oracle.pairs"][usable].astype(np.float64)
    constants = {name: _Chosen(quality[:, at].mean(axis=1), sent[:, at]) for at, name in enumerate(names)}
    best = max(names, key=lambda name: constants[name].utility(price).mean())
    served = {name: constants[name] for name in ("first-stage", "small", "large")}
    served["static"] = _static(names, constants, float(pairs["static"][usable].mean()))
    if "policy" in pairs:
        own = columns["oracle.policy"][usable].astype(np.float64).mean(axis=1)
        served["policy"] = _Chosen(own, pairs["policy"][usable])
    chosen = _chosen_by_half(quality - price * sent[:, :, None])
    oracles = {"in_sample": _of(quality, sent, chosen), "crossfit": _of(quality, sent, chosen[:, ::-1])}
    over = {"advantage": served[next(iter(pairs))].utility(price), "over_constant": constants[best].utility(price)}
    values = {name: each.values(price) for name, each in served.items()}
    for name, each in oracles.items():
        gained = {over_what: each.utility(price) - theirs for over_what, theirs in over.items()}
        values[name] = {**each.values(price), **gained}
    values[""] = {"inflation": oracles["in_sample"].utility(price) - oracles["crossfit"].utility(price)}
    return {**head, "constant": best, **split(_nested(values, tuple(served), question))}


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What something serves on the mean of both halves: quality and pairs of each query (Q,)."""

    quality: FloatArray
    pairs: FloatArray

    def utility(self, price: float) -> FloatArray:
        return self.quality - price * self.pairs

    def values(self, price: float) -> dict[str, FloatArray]:
        return {"quality": self.quality, "large_pairs": self.pairs, "utility": self.utility(price)}


def _chosen_by_half(utilities: FloatArray) -> NDArray[np.int64]:
    """Return the action (Q, 2) of the greatest utility (Q, A, 2) by each half, the first of equals."""
    return np.asarray(np.argmax(utilities >= utilities.max(axis=1, keepdims=True) - _SAME, axis=1))


def _of(quality: FloatArray, pairs: FloatArray, actions: NDArray[np.int64]) -> _Chosen:
    """Return what the actions (Q, 2) give, the first scored by the first half, the second by the second."""
    found = np.take_along_axis(quality, actions[:, None, :], axis=1)[:, 0]
    return _Chosen(found.mean(axis=1), np.take_along_axis(pairs, actions, axis=1).mean(axis=1))


def _static(names: Sequence[str], constants: Mapping[str, _Chosen], wanted: float) -> _Chosen:
    """Return what tops of the small order give at as many pairs a query, by a coin between two neighbours."""
    along = [constants[name] for name in names if name in {"small", "large"} or name.startswith("top-")]
    sent = np.array([each.pairs.mean() for each in along])
    place = float(np.interp(wanted, sent, np.arange(sent.size)))
    low = min(int(place), sent.size - 2)
    odds = place - low
    few, many = along[low], along[low + 1]
    return _Chosen(
        (1.0 - odds) * few.quality + odds * many.quality,
        (1.0 - odds) * few.pairs + odds * many.pairs,
    )


def _nested(
    values: Mapping[str, Mapping[str, FloatArray]], policies: Sequence[str], question: Question
) -> dict[str, Any]:
    """Return the figures of all values, drawn at once: policies under ``policies``, the unnamed group at the top."""
    flat = {f"{group}/{name}": each for group, found in values.items() for name, each in found.items()}
    count = next(iter(flat.values())).size
    figures = mean_figures(flat, resampled(count, question.resamples, question.seed))
    groups = {group: {name: figures[f"{group}/{name}"] for name in found} for group, found in values.items()}
    others = {group: found for group, found in groups.items() if group and group not in policies}
    return {"policies": {name: groups[name] for name in policies}, **others, **groups[""]}
