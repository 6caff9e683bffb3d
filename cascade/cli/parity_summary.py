"""The short form of a comparison on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from cascade.parity.live import Progress as Told

__all__ = ["print_parity", "progress_shown"]

_OF_SLICES: Final = "["
_MEGABYTE: Final = 1_000_000


@contextmanager
def progress_shown() -> Iterator[Told]:
    """Give a way to tell how far a side is, shown on stderr where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def told(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done)

        yield told


def print_parity(report: Mapping[str, Any], console: Console) -> None:
    """Print the verdict first, then limits, flips, slices, contrasts and what is gained."""
    coverage = report["coverage"]
    failed = [check for check in report["checks"] if check["passed"] is False]
    verdict = f"OUTSIDE {len(failed)} limits" if failed else "within every limit that could be measured"
    _line(console, f"{coverage['queries']} queries, {coverage['pairs']} pairs ({report['conditions']['pairs']})")
    console.print(Text(verdict, style="bold"), soft_wrap=True)
    for note in report["notes"]:
        _line(console, f"  {note}")
    console.print(_limits(report))
    for line in _not_measured(report):
        _line(console, line)
    if report["flips"]:
        console.print(_flips(report))
    if report["slices"]:
        console.print(_slices(report["slices"]))
    if report["contrast"] is not None:
        _line(console, _contrast(report["contrast"]))
    for line in _gained(report):
        _line(console, line)


def _line(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _limits(report: Mapping[str, Any]) -> Table:
    """Show every limit as a whole that could be measured, and those of slices that are not kept."""
    table = _table("Limits", "limit", "found", "allowed", "")
    for check in report["checks"]:
        if check["passed"] is False or (check["passed"] and _OF_SLICES not in check["name"]):
            kept = Text("kept") if check["passed"] else Text("NOT KEPT", style="bold")
            table.add_row(Text(check["name"]), _number(check["value"]), _number(check["limit"]), kept)
    return table


def _not_measured(report: Mapping[str, Any]) -> Iterator[str]:
    for check in report["checks"]:
        if check["passed"] is None:
            yield f"not measured: {check['name']}: {check['reason']}"


def _flips(report: Mapping[str, Any]) -> Table:
    table = _table(
        "Orders that CAND turns round, by REF's margin",
        "margin in deviations",
        "in scores",
        "compared",
        "turned",
        "tied",
    )
    for bucket in report["flips"]:
        table.add_row(
            _from_to(bucket["low_sd"], bucket["high_sd"]),
            _from_to(bucket["low"], bucket["high"]),
            str(bucket["comparisons"]),
            str(bucket["flipped"]),
            str(bucket["tied"]),
        )
    return table


def _slices(slices: list[Mapping[str, Any]]) -> Table:
    table = _table("Slices", "slice", "pairs", "max error", "mean error", "tau", "overlap", "nDCG delta")
    for part in slices:
        found, quality = part["agreement"], part["quality"]
        table.add_row(
            Text(f"{part['attribute']}: {part['value']}"),
            str(found["pairs"]),
            _number(found["max_error"]),
            _number(found["mean_error"]),
            _number(found["kendall"] and found["kendall"]["mean"]),
            _number(found["overlap"] and found["overlap"]["mean"]),
            _number(quality and quality["ndcg"]["delta"]),
        )
    return table


def _contrast(contrasts: list[Mapping[str, Any]]) -> str:
    told = []
    for name in ("ref", "cand"):
        margins = [each[f"{name}_margin"] for each in contrasts if each[f"{name}_margin"] is not None]
        if margins:
            told.append(f"{name.upper()} {sum(margin > 0 for margin in margins)} of {len(margins)}")
    lost = ", ".join(each["name"] for each in contrasts if each["lost"])
    return f"Contrast pairs right: {'; '.join(told)}" + (f"; lost by CAND: {lost}" if lost else "")


def _gained(report: Mapping[str, Any]) -> Iterator[str]:
    quality = report["quality"]
    if quality is not None:
        for name in ("ndcg", "mrr"):
            found = quality[name]
            interval = "" if found["interval"] is None else f" [{', '.join(map(_number, found['interval']))}]"
            yield (
                f"{name} {_number(found['ref'])} -> {_number(found['cand'])}, {_number(found['delta'])}{interval} over "
                f"{quality['queries']} judged queries"
            )
    for name in ("ref", "cand"):
        side = report[name]
        taken = side["ms_per_pair"]
        timed = "not timed" if taken is None else f"{_number(taken['mean'])} ms a pair (p95 {_number(taken['p95'])})"
        memory = "" if side["memory_bytes"] is None else f", {side['memory_bytes'] / _MEGABYTE:.0f} MB"
        yield f"{name.upper()}: {timed}{memory}"
    gained = report["gain"]["speed"]
    if gained is not None:
        quartiles = f"{_number(gained['low'])} to {_number(gained['high'])}"
        yield f"CAND is {_number(gained['median'])} times as fast as REF (quartiles over queries {quartiles})"


def _from_to(low: float, high: float | None) -> str:
    return f"above {_number(low)}" if high is None else f"{_number(low)} to {_number(high)}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
