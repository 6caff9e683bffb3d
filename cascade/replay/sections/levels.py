"""Every load level of a release, replayed on the same queries: what each loses, and what it gives the stages to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.decision import Action
from cascade.replay import baselines
from cascade.replay.columns import FloatArray
from cascade.replay.economics import STAGES, Work
from cascade.replay.intervals import Resamples, figure, undefined
from cascade.replay.policy import Played, Policy, play
from cascade.replay.queries import ReplayedQuery
from cascade.replay.question import Question
from cascade.replay.report import split
from cascade.replay.sections.means import mean_figures
from cascade.replay.sweep import Metric, Sweep

__all__ = ["columns", "told", "work_of"]

_NORMAL: Final = "it is the release as it stands"
_SILVER: Final = "the table has no judgements"
_COUNTED: Final = ("small_pairs", "large_pairs", "small_calls", "large_calls")


def columns(
    queries: Sequence[ReplayedQuery],
    levels: Mapping[str, Policy | None],
    question: Question,
    played: Played | None = None,
) -> dict[str, NDArray[Any]]:
    """Return quality and work of each query (Q,) at each level, under ``levels.<name>.``.

    A level without a policy asks no stage: first-stage order. ``played`` is the first level's policy where it
    has been replayed already.
    """
    found: dict[str, NDArray[Any]] = {}
    for place, (name, policy) in enumerate(levels.items()):
        known = played if place == 0 else None
        for what, values in _at(queries, policy, question, known).items():
            found[f"levels.{name}.{what}"] = values
    return found


def _at(
    queries: Sequence[ReplayedQuery], policy: Policy | None, question: Question, played: Played | None
) -> dict[str, NDArray[Any]]:
    if policy is None:
        sweep = baselines.first_stage(queries, question.k, question.metric)
        nothing = np.zeros(len(queries), dtype=np.int32)
        return {**_quality(sweep, 0), **dict.fromkeys(_COUNTED, nothing), **_measured(queries, None)}
    done = played or play(queries, policy, question.k, question.metric, prices=())
    steps = done.steps
    small = np.array([0 if step.action is Action.DIRECT else step.depth for step in steps], dtype=np.int32)
    return {
        **_quality(done.sweep, done.own),
        "small_pairs": small,
        "large_pairs": np.array([step.sent.sum() for step in steps], dtype=np.int32),
        "small_calls": (small > 0).astype(np.int32),
        "large_calls": np.array([step.rounds for step in steps], dtype=np.int32),
        **_measured(queries, done),
    }


def _quality(sweep: Sweep, own: int) -> dict[str, NDArray[Any]]:
    told = {metric.value: sweep.metrics[metric][own] for metric in (Metric.NDCG, Metric.MRR) if metric in sweep.metrics}
    return {"quality": sweep.quality[own], **told}


def _measured(queries: Sequence[ReplayedQuery], played: Played | None) -> dict[str, FloatArray]:
    """Return the milliseconds (Q,) that the table measured for the pairs that each stage scored, NaN where untold."""
    spent: dict[str, list[float]] = {"small_ms": [], "large_ms": []}
    for at, query in enumerate(queries):
        within = np.arange(query.small.size)
        step = None if played is None else played.steps[at]
        reached = 0 if step is None or step.action is Action.DIRECT else step.depth
        scored = {"small": within < reached, "large": within < 0 if step is None else step.sent}
        for stage in STAGES:
            spent[f"{stage}_ms"].append(float(query.ms[stage][scored[stage]].sum()) if stage in query.ms else np.nan)
    return {name: np.array(values) for name, values in spent.items()}


def work_of(columns: Mapping[str, NDArray[Any]], name: str) -> Work:
    """Return what a level gives the stages to do."""
    lead = f"levels.{name}"
    return Work(
        pairs={stage: columns[f"{lead}.{stage}_pairs"] for stage in STAGES},
        calls={stage: columns[f"{lead}.{stage}_calls"] for stage in STAGES},
        measured_ms={stage: columns[f"{lead}.{stage}_ms"] for stage in STAGES},
    )


def told(
    columns: Mapping[str, NDArray[Any]], names: Sequence[str], large: Sweep, drawn: Resamples
) -> list[dict[str, Any]]:
    """Return a row for each of the levels, best first: quality, paired differences, and pairs a query.

    ``large`` is always-large on the same queries: differences are to it and to the first level, in the metric
    that the evaluation is of, above zero where the level is better.
    """
    return [{"name": name, **split(_row(columns, name, names[0], large, drawn))} for name in names]


def _row(columns: Mapping[str, NDArray[Any]], name: str, normal: str, large: Sweep, drawn: Resamples) -> dict[str, Any]:
    lead = f"levels.{name}"
    quality = columns[f"{lead}.quality"]
    values = {
        "ndcg": columns[f"{lead}.ndcg"],
        "mrr": columns.get(f"{lead}.mrr"),
        "minus_always_large": quality - large.quality[0],
        "minus_normal": quality - columns[f"levels.{normal}.quality"] if name != normal else None,
        "small_pairs": columns[f"{lead}.small_pairs"],
        "large_pairs": columns[f"{lead}.large_pairs"],
    }
    means = mean_figures({each: found for each, found in values.items() if found is not None}, drawn)
    absent = {"mrr": undefined(_SILVER), "minus_normal": undefined(_NORMAL)}
    pairs = drawn.means(np.stack([columns[f"{lead}.large_pairs"], large.pairs[0]]))
    share = figure(pairs[:, 0] / pairs[:, 1], drawn.queries, "")
    ordered = {each: means.get(each, absent.get(each)) for each in values}
    return {**ordered, "large_share": share}
