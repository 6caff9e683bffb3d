"""The sections that tell what decisions were worth, all of them: columns of a partition, and what they say of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from cascade.calibration.calibrated import Calibration
from cascade.replay.baselines import Ranks
from cascade.replay.intervals import resampled
from cascade.replay.measure import Contest
from cascade.replay.part import Part
from cascade.replay.policy import Played, Policy
from cascade.replay.queries import ReplayedQuery
from cascade.replay.question import Question
from cascade.replay.sections import ceiling, depth_sweep, oracle, per_query, regret, reliability, support, tests
from cascade.replay.sweep import Sweep

__all__ = ["columns", "told"]


def columns(
    queries: Sequence[ReplayedQuery],
    question: Question,
    most: int,
    *,
    static: Sweep,
    ranks: Sequence[Ranks],
    calibration: Calibration | None,
    policy: Policy | None,
    played: Played | None,
) -> dict[str, NDArray[Any]]:
    """Return the columns (Q, ...) of every section. ``ranks`` are those of the small and, if fitted, the fused order."""
    return {
        **regret.columns(queries, static, played, question),
        **oracle.columns(queries, ranks, played, question, most),
        **ceiling.columns(queries, most),
        **depth_sweep.columns(queries, question, policy, most),
        **support.columns(queries, played, question, most),
        **reliability.columns(queries, calibration, most),
        **per_query.columns(played),
    }


def told(part: Part, contest: Contest, question: Question, most: int) -> dict[str, Any]:
    """Return what every section says under its key; ``support`` is there only where it was asked for."""
    names = [name for name in ("policy", "static") if name in contest.points]
    sent = {name: contest.points[name].mean(contest.points[name].sweep.pairs) for name in names}
    quality = {
        name: contest.points[name].mean(contest.points[name].sweep.quality) for name in ("small", "large", names[0])
    }
    drawn = resampled(len(part.ids), question.resamples, question.seed)
    found = regret.attributed(part.columns, quality[names[0]], sent[names[0]], question)
    supported = support.told(part.columns, contest.points["static"], question, drawn)
    facts = per_query.Facts(
        ids=part.ids,
        tables=part.tables,
        slices=part.slices,
        small=quality["small"],
        large=quality["large"],
        policy=quality[names[0]],
        pairs=sent[names[0]],
        name=names[0],
    )
    sections: Mapping[str, Any] = {
        "ceiling": ceiling.told(part.columns, most, drawn),
        "depth_sweep": depth_sweep.told(part.columns, most, drawn),
        **({} if supported is None else {"support": supported}),
        "reliability": reliability.told(part.columns, part.slices["q_class"], most),
        "regret": {"of": names[0], **regret.told(found, part.slices, drawn, question)},
        "oracle": oracle.told(part.columns, sent, question, most, fused=contest.sweeps.keys() >= {"static-fused"}),
        "tests": tests.told(
            {name: point.mean(point.sweep.quality) for name, point in contest.points.items()},
            part.tables,
            question.resamples,
            question.seed,
        ),
        **per_query.told(part.columns, facts, found),
    }
    return dict(sections)
