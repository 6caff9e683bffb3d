"""What a soak showed, and what of it should not be."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from evals.soak.clients import Clients, Seen
from evals.soak.faults import FaultKind
from evals.soak.process import Held, Insides, Stall, growth_mb

__all__ = ["Run", "tables", "told", "wrong_with"]

_MOST_GROWTH_MB: Final = 8.0
_MORE_THAN_BEFORE: Final = 2
"""Descriptors and tasks that may be more at the end: a look at a server may be under way."""
_LATEST: Final = 10
_STAGES: Final = ("large", "small", "retrieval", "refused")


def _nobody() -> Clients:
    return Clients("", "", ())


@dataclass
class Run:
    """Everything that a soak saw."""

    began: str
    load_before: tuple[float, float, float]
    cached: bool = False
    warm: Clients = field(default_factory=_nobody)
    soak: Clients = field(default_factory=_nobody)
    after: Clients = field(default_factory=_nobody)
    before: tuple[Held, Insides] | None = None
    end: tuple[Held, Insides] | None = None
    seconds: float = 0.0
    calls: int = 0
    faults: Counter[FaultKind] = field(default_factory=Counter)
    met: dict[str, Sequence[FaultKind]] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    leaks: dict[str, int] = field(default_factory=dict)
    output_bytes: dict[str, int] = field(default_factory=dict)
    fault_lines: int = 0
    status: dict[str, Any] = field(default_factory=dict)
    metrics: str = ""


def wrong_with(run: Run, *, slack_ms: float) -> list[str]:
    """Return all that did not hold, in words."""
    found: list[str] = []
    stalls = _stalls(run)
    for name, part in (("before", run.warm), ("under faults", run.soak), ("after", run.after)):
        found += [f"{name}: {count} x {breach}" for breach, count in part.breaches.items()]
        found += [f"{name}: {count} requests lost, {why}" for why, count in part.lost.items()]
        late = sum(_is_late(seen, stalls, slack_ms) for seen in part.seen)
        found += [f"{name}: {late} late"] if late else []
        found += [f"{name}: text in {part.leaks} answers"] if part.leaks else []
    found += [f"text in {name}, {count} times" for name, count in run.leaks.items() if count]
    if faults := _metric(run.metrics, "cascade_internal_faults_total"):
        found.append(f"{faults:.0f} internal faults; {run.fault_lines} lines of the log tell of them")
    if run.cached and not _kept(run)["hit"]:
        found.append("no score came from the cache")
    return [*found, *_left(run)]


def _stalls(run: Run) -> Sequence[Stall]:
    """Return the sidecar's stalls and the clients'."""
    lags = [lag for part in (run.warm, run.soak, run.after) for lag in part.lags]
    return [*lags, *(run.end[1].stalls if run.end is not None else ())]


def _is_late(seen: Seen, stalls: Sequence[Stall], slack_ms: float) -> bool:
    """Tell whether an answer came later than a machine that had no core for either process explains."""
    return seen.over_ms > slack_ms and seen.over_ms > slack_ms + _without_core_ms(seen, stalls)


def _without_core_ms(seen: Seen, stalls: Sequence[Stall]) -> float:
    """Return how long the sidecar had no core, or the clients did not look, while a request was under way."""
    return sum(
        stall.without_core_ms
        for stall in stalls
        if stall.began_s < seen.ended_s and stall.began_s + stall.ms / 1000 > seen.began_s
    )


def _latest(run: Run) -> list[dict[str, Any]]:
    """Return the answers that came longest after their deadlines, with what the machine explains of it."""
    stalls = _stalls(run)
    latest = sorted(run.soak.seen, key=lambda seen: -seen.over_ms)[:_LATEST]
    return [
        {
            "over_ms": round(seen.over_ms, 1),
            "took_ms": round((seen.ended_s - seen.began_s) * 1000, 1),
            "without_core_ms": round(_without_core_ms(seen, stalls), 1),
            "stage": seen.judged.stage,
            "degraded": seen.judged.degraded,
            "met": run.met.get(seen.judged.decision_id[:32], ()),
            "decision": seen.judged.decision_id,
        }
        for seen in latest
    ]


def _left(run: Run) -> list[str]:
    """Return what is left behind when nothing is asked any more."""
    if run.before is None or run.end is None:
        return ["it did not run to its end"]
    (held, inside), (held_end, inside_end) = run.before, run.end
    found = []
    for name, early, late in (
        ("descriptors", held.descriptors, held_end.descriptors),
        ("sockets", held.sockets, held_end.sockets),
        ("tasks", inside.tasks, inside_end.tasks),
        ("threads", held.threads, held_end.threads),
    ):
        if late > early + _MORE_THAN_BEFORE:
            found.append(f"{late} {name} at the end, {early} before")
    growth = growth_mb(run.held)
    found += [f"memory grew by {growth} MB"] if growth > _MOST_GROWTH_MB else []
    admission = run.status["admission"]
    left = admission["held"] + sum(admission["seats"].values()) + sum(admission["waiting"].values())
    found += [f"{left} requests held, seated or waiting at the end"] if left else []
    for name, stage in run.status["stages"].items():
        guards = stage["guards"]
        kept = guards["in_flight_texts"] + guards["in_flight_tokens"] + guards["waiting_calls"]
        found += [f"{name}: {kept} in flight or waiting at the end"] if kept else []
        found += [f"{name}: breaker {guards['breaker']} at the end"] if guards["breaker"] != "closed" else []
    recent = run.after.seen[-len(run.after.seen) // 4 :]
    whole = sum(not seen.judged.degraded for seen in recent)
    asked = sum(seen.judged.degraded != ("deadline_too_short",) for seen in recent)
    if whole < 0.7 * asked:
        found.append(f"afterwards only {whole} of {asked} answers were whole")
    return found


def told(run: Run, *, slack_ms: float) -> dict[str, Any]:
    """Return all figures as plain data."""
    return {
        "began": run.began,
        "load_average_before": run.load_before,
        "seconds": round(run.seconds, 1),
        "requests": len(run.soak.seen) + run.soak.left.total() + run.soak.lost.total(),
        "calls": run.calls,
        "faults": {str(kind): run.faults[kind] for kind in FaultKind},
        "outcomes_by_fault": {kind: dict(row) for kind, row in _by_fault(run).items()},
        "reasons": dict(Counter(reason for seen in run.soak.seen for reason in seen.judged.degraded)),
        "lateness_ms": _lateness(run, slack_ms),
        "latest": _latest(run),
        "own_lag_ms": _own_lag_ms(run),
        "breaches": dict(run.soak.breaches),
        "examples": dict(run.soak.examples),
        "lost": dict(run.soak.lost),
        "before": [asdict(part) for part in run.before or ()],
        "end": [asdict(part) for part in run.end or ()],
        "held": [asdict(held) for held in run.held],
        "growth_mb": growth_mb(run.held),
        "leaks": run.leaks,
        "output_bytes": run.output_bytes,
        "metrics": _counted(run.metrics),
        "stages": {name: stage["guards"] for name, stage in run.status["stages"].items()},
    }


def tables(run: Run, *, slack_ms: float) -> str:
    """Return the figures for people."""
    head = (
        f"{run.seconds:.0f} s from {run.began}, load {run.load_before[0]:.1f} before: {len(run.soak.seen)} answers, "
        f"{run.soak.left.total()} clients left, {run.calls} calls of servers, {run.faults.total()} faults"
    )
    lines = [
        head,
        "",
        "| fault | count | requests that met it | large | small | first-stage | 503 as asked | not degraded |",
        "|---|---|---|---|---|---|---|---|",
    ]
    by_fault = _by_fault(run)
    for kind in FaultKind:
        row = by_fault.get(kind, Counter())
        cells = [str(row[name]) for name in ("requests", *_STAGES, "whole")]
        lines.append(f"| {kind} | {run.faults[kind]} | {' | '.join(cells)} |")
    lines += [
        "",
        f"lateness: {_lateness(run, slack_ms)}; own lag {_own_lag_ms(run)} ms at most",
        "",
    ]
    if run.cached:
        lines += [
            "scores asked of the cache: " + ", ".join(f"{count:.0f} {what}" for what, count in _kept(run).items()),
            "",
        ]
    lines += ["| second | memory, MB | descriptors | sockets | threads |", "|---|---|---|---|---|"]
    step = max(1, len(run.held) // 12)
    shown = [*([run.before[0]] if run.before else []), *run.held[::step], *([run.end[0]] if run.end else [])]
    lines += [f"| {h.at_s:.0f} | {h.rss_mb} | {h.descriptors} | {h.sockets} | {h.threads} |" for h in shown]
    if run.before is not None and run.end is not None:
        early, late = run.before[1], run.end[1]
        lines += ["", f"tasks {early.tasks} before, {late.tasks} at the end; objects {early.objects}, {late.objects}"]
    lines.append(f"memory grew by {growth_mb(run.held)} MB from the second fifth to the last")
    return "\n".join(lines)


def _by_fault(run: Run) -> dict[str, Counter[str]]:
    """Return what became of the requests whose calls met each kind; a request may have met several."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for seen in run.soak.seen:
        for kind in set(run.met.get(seen.judged.decision_id[:32], ())):
            row = found[kind]
            row["requests"] += 1
            row[seen.judged.stage] += 1
            row["whole"] += not seen.judged.degraded
            for reason in seen.judged.degraded:
                row[reason] += 1
    return dict(found)


def _own_lag_ms(run: Run) -> float:
    return round(max((lag.ms for lag in run.soak.lags), default=0.0), 1)


def _lateness(run: Run, slack_ms: float) -> dict[str, float]:
    stalls, of_sidecar = _stalls(run), run.end[1].stalls if run.end is not None else []
    over = sorted(each.over_ms for each in run.soak.seen) or [0.0]
    return {
        "p50": round(over[len(over) // 2], 1),
        "p99": round(over[len(over) * 99 // 100], 1),
        "p999": round(over[len(over) * 999 // 1000], 1),
        "most": round(over[-1], 1),
        "beyond_slack": sum(each > slack_ms for each in over),
        "late": sum(_is_late(each, stalls, slack_ms) for each in run.soak.seen),
        "longest_stall": round(max((stall.ms for stall in of_sidecar), default=0.0), 1),
        "longest_computed": round(max((stall.computed_ms for stall in of_sidecar), default=0.0), 1),
    }


def _metric(text: str, name: str, label: str = "") -> float:
    values = re.findall(rf"^{name}(?:\{{.*{label}.*\}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, values))


def _kept(run: Run) -> dict[str, float]:
    """Return what became of the documents whose score the cache was asked for."""
    outcomes = ("hit", "shared", "miss", "fault")
    return {each: _metric(run.metrics, "cascade_cache_lookups_total", f'outcome="{each}"') for each in outcomes}


def _counted(text: str) -> Mapping[str, float]:
    """Return the samples that tell of guards and faults."""
    wanted = re.compile(
        r"^(cascade_(?:retries|breaker_changes|internal_faults|admission|level_steps|abandoned|cache)\S*) (\S+)$"
    )
    found = (wanted.match(line) for line in text.splitlines())
    return {match[1]: float(match[2]) for match in found if match is not None}
