"""The short form of a report on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from cascade.cli.eval_findings import findings
from cascade.replay.evaluate import Advance

__all__ = ["print_summary", "queries_shown"]

_WITH_INTERVAL: Final = "0.95"
_HELPS: Final = {
    "shown": "the large stage is better than the small one",
    "not shown": "it is NOT SHOWN that the large stage is better than the small one",
    "harms": "the large stage is WORSE than the small one",
}


@contextmanager
def queries_shown() -> Iterator[Advance]:
    """Give what shows on a terminal's stderr how many queries are replayed, and of how many."""
    console = Console(stderr=True)
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("replaying", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_summary(report: Mapping[str, Any], console: Console) -> None:
    """Print what a reader asks first: does the large stage help, what does each policy get, and at what cost."""
    conditions = report["conditions"]
    quality = "SILVER ndcg, no judgements" if conditions["judgements"] == "silver" else conditions["metric"]
    lines = [
        f"{report['queries']} queries, {conditions['small']} -> {conditions['large']}, {quality}, k = {conditions['k']}",
        f"{_told(report, 'gap', signed=True)}: {_HELPS[report['large_helps']]}",
        _engaged(report["engaged"]),
    ]
    _lines(console, lines)
    for note in report["notes"]:
        console.print(Text(note, style="bold"), soft_wrap=True)
    console.print(_policies(report["policies"]))
    console.print(_costs(report))
    console.print("Paired differences")
    told = [each for each in report["differences"] if each["name"] != "random"]
    _lines(console, map(_difference, told) if told else ["  nothing but baselines was replayed"])
    _lines(console, findings(report))


def _lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _engaged(share: float) -> str:
    if share == 1.0:
        return "engaged 1.000: every query was reranked"
    return f"engaged {share:.3f}: a reranker saw only this share of the queries; do not call the result reranked"


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _policies(policies: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(
        "At one setting each; pairs are those of the large stage",
        "policy",
        "ndcg",
        "mrr",
        "pairs",
        "share",
        "regret",
        "engaged",
    )
    for policy in policies:
        table.add_row(
            policy["name"],
            _told(policy, "ndcg"),
            _number(policy["mrr"]),
            _number(policy["large_pairs"], 1),
            _number(policy["large_share"]),
            _number(policy["regret"]),
            _number(policy["engaged"]),
        )
    return table


def _costs(report: Mapping[str, Any]) -> Table:
    costs, intervals = report["cost_at_recovered"], report["intervals"]["cost_at_recovered"]
    levels = sorted(next(iter(costs.values())))
    table = _table("Share of large pairs at which a share of the difference is recovered", "policy", *levels, "area")
    for name, found in costs.items():
        told = [
            _with_interval(found[level], intervals[name][level] if level == _WITH_INTERVAL else None)
            for level in levels
        ]
        table.add_row(name, *told, _with_interval(report["area_10_50"][name], report["intervals"]["area_10_50"][name]))
    return table


def _difference(each: Mapping[str, Any]) -> str:
    costs, intervals = each["cost_at_recovered"], each["intervals"]["cost_at_recovered"]
    cost = _with_interval(costs[_WITH_INTERVAL], intervals[_WITH_INTERVAL], signed=True)
    return (
        f"  {each['name']} minus {each['baseline']}: area {_told(each, 'area_10_50', signed=True)}, "
        f"cost at {_WITH_INTERVAL} {cost}, quality at equal cost {_told(each, 'at_equal_cost', signed=True)}"
    )


def _told(figures: Mapping[str, Any], name: str, *, signed: bool = False) -> str:
    return _with_interval(figures[name], figures["intervals"][name], signed=signed)


def _with_interval(value: float | None, interval: Sequence[float | None] | None, *, signed: bool = False) -> str:
    told = _number(value, signed=signed)
    return told if interval is None else f"{told} ({' '.join(map(_number, interval))})"


def _number(value: float | None, digits: int = 3, *, signed: bool = False) -> str:
    """Return a number as tables print it: .709, 40.0, +.041, and - where there is none."""
    if value is None:
        return "-"
    told = f"{value:{'+' if signed else ''}.{digits}f}"
    return told.replace("0.", ".", 1) if told.lstrip("+-").startswith("0.") and digits > 1 else told
