"""Figures of the overload benchmark: from the sidecar's lines, the generator's log and the checking client's answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from statistics import fmean
from typing import Any, Final

import orjson

from evals.bench.generator import Sent, percentile
from evals.bench.overload_release import DEADLINE_MS, FIRST_STAGE, LEVELS, quality

__all__ = ["Cell", "Checked", "Decided", "aims", "cell", "conditions_line", "decided", "mean_cell", "table", "written"]

_PLANNED: Final = "load_level"


@dataclass(frozen=True, slots=True)
class Decided:
    """One request as the sidecar told of it: when it came in seconds, and what became of it.

    ``whole`` tells that it had all the work that its level plans.
    """

    came: float
    whole: bool
    undegraded: bool
    quality: float
    level: str


@dataclass(frozen=True, slots=True)
class Checked:
    """One request of the checking client: when it was due, how long after that it was answered, and what was wrong with it."""

    came: float
    took_ms: float
    fault: str | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One controller at one load. Shares are of what was sent; ``gain`` is quality above first-stage order, of the most there is."""

    goodput: float
    quality_goodput: float
    gain_goodput: float
    undegraded: float
    late: float
    lost: int
    wrong: int
    p50_ms: float
    p99_ms: float
    switches_per_min: float
    sent: int
    checked: int


def decided(lines: Iterable[bytes]) -> list[Decided]:
    """Read the sidecar's lines of decided requests."""
    found = []
    for line in lines:
        if b'"event":"rerank"' not in line or not line.endswith(b"}\n"):
            continue
        told = orjson.loads(line)
        if told["outcome"] != "answered":
            continue
        at = datetime.fromisoformat(told["timestamp"]).timestamp()
        level = told["load_level"]
        plan = LEVELS[level]
        stage = "large" if plan.large else "small" if plan.small else "retrieval"
        found.append(
            Decided(
                came=at - told["total_ms"] / 1000,
                whole=told["stage"] == stage and set(told["degraded"]) <= {_PLANNED},
                undegraded=not told["degraded"],
                quality=quality(told["stage"], told["depth"], len(told["escalated"])),
                level=level,
            )
        )
    return found


def cell(
    window: tuple[float, float],
    *,
    planned: int,
    requests: Sequence[Decided],
    sent: Sequence[Sent],
    checked: Sequence[Checked],
    switches: float,
) -> Cell:
    """Sum up what came within a window of time, in seconds.

    What is late is told by the callers, what an answer is by the sidecar; a late one is taken to have been whole, and as
    good as the mean, since the two cannot be joined. ``planned`` is what the generator was to send over its whole run: what was
    not answered 200 of it was lost.
    """
    begin, end = window
    own = [each for each in requests if begin <= each.came < end]
    posted = [each for each in sent if begin <= each.began_us / 1e6 < end]
    seen = [each for each in checked if begin <= each.came < end]
    answered = [each.took_us / 1000 for each in posted if each.status == 200]
    answered += [each.took_ms for each in seen if each.fault is None or each.fault == "order"]
    if not answered or not own:
        raise RuntimeError("no request was answered with 200")
    lost = planned - sum(each.status == 200 for each in sent) + sum(each.fault == "lost" for each in checked)
    all_sent = len(posted) + len(seen)
    late = sum(ms > DEADLINE_MS for ms in answered) / all_sent
    in_time = len(answered) / all_sent - late
    worth = fmean(each.quality for each in own)
    return Cell(
        goodput=max(0.0, fmean(each.whole for each in own) - (1 - in_time)),
        quality_goodput=worth * in_time,
        gain_goodput=(worth - FIRST_STAGE) / (1 - FIRST_STAGE) * in_time,
        undegraded=max(0.0, fmean(each.undegraded for each in own) - (1 - in_time)),
        late=late,
        lost=lost,
        wrong=sum(each.fault == "order" for each in checked),
        p50_ms=percentile(answered, 0.50),
        p99_ms=percentile(answered, 0.99),
        switches_per_min=switches * 60 / (end - begin),
        sent=all_sent,
        checked=len(checked),
    )


def mean_cell(cells: Sequence[Cell]) -> dict[str, float]:
    """Return the means over repetitions, but the sums of what is counted."""
    counted = {"lost", "wrong", "sent", "checked"}
    rows = [asdict(each) for each in cells]
    return {name: (sum if name in counted else fmean)(row[name] for row in rows) for name in rows[0]}


def written(cells: Mapping[str, Mapping[str, Sequence[Cell]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return what the JSON file says, by controller and load."""
    return {controller: {load: mean_cell(runs) for load, runs in loads.items()} for controller, loads in cells.items()}


def table(cells: Mapping[str, Mapping[str, Sequence[Cell]]], loads: Sequence[str]) -> str:
    """Return all figures in Markdown, by load and controller; in brackets the least and the greatest of the repetitions."""
    heads = (
        "goodput",
        "quality",
        "gain",
        "not degraded",
        "late",
        "lost",
        "wrong",
        "p50 ms",
        "p99 ms",
        "switches/min",
        "sent",
    )
    lines = ["| load | controller | " + " | ".join(heads) + " |", "|---|---|" + "---:|" * len(heads)]
    for load in loads:
        for controller, of in cells.items():
            if load in of:
                lines.append(f"| {load} | {controller} | {_row(of[load])} |")
    return "\n".join(lines)


def _row(runs: Sequence[Cell]) -> str:
    mean = mean_cell(runs)

    def spread(name: str, digits: int) -> str:
        values = [float(getattr(each, name)) for each in runs]
        around = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
        return f"{mean[name]:.{digits}f}{around}"

    shares = [spread(name, 3) for name in ("goodput", "quality_goodput", "gain_goodput", "undegraded")]
    rest = [f"{mean['late']:.2%}", f"{mean['lost']:.0f}", f"{mean['wrong']:.0f} of {mean['checked']:.0f}"]
    rest += [f"{mean['p50_ms']:.0f}", spread("p99_ms", 0), f"{mean['switches_per_min']:.0f}", f"{mean['sent']:.0f}"]
    return " | ".join(shares + rest)


def aims(figures: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Return each aim of issue 6, what came of it, and whether it was met."""
    adaptive = figures.get("adaptive", {})
    fixed = [of for name, of in figures.items() if name.startswith("fixed-")]
    lines = []

    def tell(what: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
        met = (least is None or value >= least) and (most is None or value <= most)
        bound = f">= {least:g}" if least is not None else f"<= {most:g}"
        lines.append(f"{'met   ' if met else 'MISSED'} {what}: {value:.4g} (aim {bound})")

    if adaptive:
        tell("lost, all loads", sum(of["lost"] for of in adaptive.values()), most=0)
        tell("wrong orders, all loads", sum(of["wrong"] for of in adaptive.values()), most=0)
    for load, of in adaptive.items():
        tell(f"late at {load}", of["late"], most=0.001)
        if load in {"4x", "10x"}:
            tell(f"goodput at {load}", of["goodput"], least=0.99 if load == "4x" else 0.95)
        if load == "hover":
            tell("switches a minute while hovering", of["switches_per_min"], most=6)
        for name in ("quality_goodput", "gain_goodput"):
            best = max((each[load][name] for each in fixed if load in each), default=0.0)
            if best > 0:
                tell(f"{name} of the best fixed level at {load}", of[name] / best, least=0.95)
    return lines


def conditions_line(conditions: Mapping[str, Any]) -> str:
    """Return the conditions in one line."""
    return ", ".join(f"{name} {value}" for name, value in conditions.items())
