"""From runs to figures: added latency, medians and spread over repetitions, and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import Final

__all__ = ["FIGURES", "Cell", "aims", "medians", "spread", "table"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One target under one load in one repetition.

    ``added_p50_ms`` and ``added_p99_ms`` are the percentile end to end minus the fake's service time:
    the sum, over the calls on the path, of the median straight at the fake with as many documents.
    """

    added_p50_ms: float
    added_p99_ms: float
    cpu_us: float
    per_second: float
    failed: int


FIGURES: Final = tuple(item.name for item in fields(Cell))
Runs = Mapping[str, Mapping[str, Sequence[Cell]]]
Medians = dict[str, dict[str, dict[str, float]]]


def medians(runs: Runs) -> Medians:
    """Return the median of each figure over the repetitions, by target and load."""
    return {
        target: {
            load: {name: round(median(float(getattr(cell, name)) for cell in cells), 4) for name in FIGURES}
            for load, cells in loads.items()
            if cells
        }
        for target, loads in runs.items()
    }


def spread(runs: Runs) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Return the least and the greatest of each figure over the repetitions, by target and load."""
    return {
        target: {
            load: {name: _ends([float(getattr(cell, name)) for cell in cells]) for name in FIGURES}
            for load, cells in loads.items()
            if cells
        }
        for target, loads in runs.items()
    }


def _ends(values: Sequence[float]) -> list[float]:
    return [round(min(values), 4), round(max(values), 4)]


def table(runs: Runs, figure: str, *, digits: int, asked: Mapping[str, int]) -> str:
    """Return a Markdown table of one figure, loads down and targets across: the median, least and greatest behind it.

    ``asked`` is each open loop's rate; a star marks where a target answered fewer than 95 in 100 of it, and its
    latency is that of a queue that grows. ``!`` marks failed requests.
    """
    middle, ends = medians(runs), spread(runs)
    loads = list(dict.fromkeys(load for of_target in middle.values() for load in of_target))
    lines = [f"| load | {' | '.join(middle)} |", "|---|" + "---:|" * len(middle)]
    for load in loads:
        cells = []
        for target in middle:
            told = middle[target].get(load)
            if told is None:
                cells.append("")
                continue
            low, high = ends[target][load][figure]
            mark = "*" if told["per_second"] < 0.95 * asked.get(load, 0) else ""
            mark += "!" if ends[target][load]["failed"][1] else ""
            cells.append(f"{told[figure]:.{digits}f}{mark} ({low:.{digits}f} to {high:.{digits}f})")
        lines.append(f"| {load} | {' | '.join(cells)} |")
    return "\n".join(lines)


def aims(middle: Medians) -> list[str]:
    """Return what the project aims at beside what was measured, one line each; aims without figures are left out."""

    def added(target: str, load: str) -> float | None:
        return middle.get(target, {}).get(load, {}).get("added_p50_ms")

    lines = []
    for target, most in (("pass-through", 1.0), ("deciding", 1.5)):
        if (at := added(target, "rate-200")) is not None:
            lines.append(f"{target} at 200/s: {at:.2f} ms added at the median; at most {most} ms is the aim")
    own, proxy = added("pass-through", "rate-200"), added("nginx", "rate-200")
    if own is not None and proxy is not None and proxy > 0:
        lines.append(f"pass-through to nginx at 200/s: {own / proxy:.1f} times; at most 6 is the aim")
    own, other = added("pass-through", "rate-20"), added("litellm", "rate-20")
    if own is not None and other is not None and own > 0:
        lines.append(f"LiteLLM to pass-through at 20/s: {other / own:.1f} times; at least 8 is the aim")
    return lines
