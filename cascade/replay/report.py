"""``report.json``: what was measured, on what, and how sure it is. No text of a query or document is in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cascade.replay.intervals import CONFIDENCE, Figure
from cascade.replay.measure import Contest, Difference, Measured

__all__ = ["REPORT_VERSION", "Evaluation", "large_helps", "number", "report", "split"]

REPORT_VERSION: Final = 2
_SILVER_NOTE: Final = (
    "NO JUDGEMENTS: quality is silver, nDCG with gain 1/rank of the large order. It tells how near a policy comes to "
    "the large order, never how good an answer is, and it cannot show that the large stage helps."
)
_NOT_SHOWN_NOTE: Final = (
    "It is not shown that the large stage is better than the small one on these queries. Shares recovered are "
    "undefined; look at absolute_curves."
)
_HARMS_NOTE: Final = (
    "The large stage is WORSE than the small one on these queries, beyond its interval. Shares recovered are "
    "undefined; look at absolute_curves, and escalate nothing."
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything that a report is made of.

    ``slices`` maps an attribute to its values. ``reference`` names the policy whose cost the others
    are reported at. ``extra`` is what only some evaluations have.
    """

    conditions: Mapping[str, Any]
    contest: Contest
    measured: Measured
    slices: Mapping[str, Mapping[str, Measured]]
    reference: str
    silver: bool
    notes: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


def large_helps(measured: Measured, *, silver: bool) -> str:
    """Return ``shown``, ``not shown`` or ``harms``: what judgements say of Q_large - Q_small."""
    if silver:
        return "not shown"
    high = measured.gap.interval[1] if measured.gap.interval else None
    return "shown" if measured.shown else "harms" if high is not None and high < 0.0 else "not shown"


def report(evaluation: Evaluation) -> dict[str, Any]:
    """Return the report as plain data: every number finite, None where one is undefined, with its reason.

    Beside each mapping of numbers stand ``intervals`` and, only for what is undefined or unbounded,
    ``reasons``, with the same keys.
    """
    measured = evaluation.measured
    helps = large_helps(measured, silver=evaluation.silver)
    notes = [*evaluation.notes, *([_SILVER_NOTE] if evaluation.silver else [])]
    notes += [_HARMS_NOTE] if helps == "harms" else [_NOT_SHOWN_NOTE] if not measured.shown else []
    return {
        "report": "cascade eval",
        "version": REPORT_VERSION,
        "conditions": {**evaluation.conditions, "confidence": CONFIDENCE},
        "notes": notes,
        "large_helps": helps,
        "engaged": number(measured.policies[evaluation.reference]["engaged"].value),
        **_told(measured, evaluation.contest),
        "curves": {name: _rounded(points) for name, points in measured.curves.items()},
        "absolute_curves": {name: _rounded(points) for name, points in measured.absolute_curves.items()},
        "curve_settings": {name: [number(each) for each in told] for name, told in measured.curve_settings.items()},
        "slices": {
            attribute: {value: _told(part, evaluation.contest) for value, part in values.items()}
            for attribute, values in evaluation.slices.items()
        },
        **evaluation.extra,
    }


def _told(measured: Measured, contest: Contest) -> dict[str, Any]:
    figures = {
        "gap": measured.gap,
        "cost_at_recovered": measured.cost_at_recovered,
        "area_10_50": measured.area_10_50,
    }
    return {
        "queries": measured.queries,
        "policies": [_policy(name, figures, contest) for name, figures in measured.policies.items()],
        **split(figures),
        "differences": [_difference(each) for each in measured.differences],
    }


def _policy(name: str, figures: Mapping[str, Figure], contest: Contest) -> dict[str, Any]:
    point = contest.points[name]
    return {
        "name": name,
        "settings": [[number(setting), number(odds)] for setting, odds in point.settings()],
        "chosen": point.chosen,
        "reranked": figures["engaged"].value == 1.0,
        **split(figures),
    }


def _difference(difference: Difference) -> dict[str, Any]:
    figures = {
        "area_10_50": difference.area_10_50,
        "cost_at_recovered": difference.cost_at_recovered,
        "at_equal_cost": difference.at_equal_cost,
    }
    return {"name": difference.name, "baseline": difference.baseline, **split(figures)}


_Figures = Mapping[str, Any]
"""Figures by name, or mappings of them."""


def split(figures: _Figures) -> dict[str, Any]:
    """Return the values by name, and beside them their intervals and reasons."""
    return {**_values(figures), "intervals": _intervals(figures), "reasons": _reasons(figures)}


def _values(figures: _Figures) -> dict[str, Any]:
    return {
        name: number(found.value) if isinstance(found, Figure) else _values(found) for name, found in figures.items()
    }


def _intervals(figures: _Figures) -> dict[str, Any]:
    return {
        name: (found.interval and [number(end) for end in found.interval])
        if isinstance(found, Figure)
        else _intervals(found)
        for name, found in figures.items()
    }


def _reasons(figures: _Figures) -> dict[str, Any]:
    told = {name: found.reason if isinstance(found, Figure) else _reasons(found) for name, found in figures.items()}
    return {name: reason for name, reason in told.items() if reason}


def _rounded(points: Sequence[tuple[float, float]] | None) -> list[list[float | None]] | None:
    return None if points is None else [[number(share), number(value)] for share, value in points]


def number(value: float | None) -> float | None:
    """Return a finite number to nine significant digits: what lies beyond depends on the machine."""
    if value is None:
        return None
    if not math.isfinite(value):
        raise ValueError("a report holds finite numbers only")
    return float(f"{value:.9g}")
