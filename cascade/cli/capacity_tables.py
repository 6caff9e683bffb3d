"""The short form of a plan on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["print_plan"]

_SITUATIONS: Final = {
    "all_up": "all up",
    "failure": "failed",
    "update": "update",
    "failure_during_update": "both",
}


def print_plan(plan: Mapping[str, Any], console: Console) -> None:
    """Print what arrives, what each level makes of it, what it needs, and what the replicas at hand carry."""
    arrivals = plan["arrivals"]
    error = arrivals["peak_standard_error_qps"]
    at_peak = f"{_number(arrivals['peak_qps'])} at peak" + ("" if error is None else f" (+- {_number(error)})")
    _line(
        console,
        f"release {plan['conditions']['release']}: {_number(arrivals['mean_qps'])} queries a second on average, {at_peak}; "
        f"planned for {_number(arrivals['planned_qps'])}",
    )
    for note in plan["notes"]:
        console.print(Text(note, style="bold"), soft_wrap=True)
    console.print(_work(plan))
    if plan["carried"]["replicas"]:
        console.print(_replicas(plan))
        console.print(_carried(plan))
        for line in _levels_that_carry(plan):
            _line(console, line)
    else:
        _line(console, "no replica is planned")


def _line(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)


def _table(title: str, *columns: str, left: int) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < left else "right", no_wrap=True)
    return table


def _work(plan: Mapping[str, Any]) -> Table:
    table = _table(
        "Work: at mean / peak / planned rate; tokens with padding",
        "level",
        "stage",
        "known from",
        "pairs/query",
        "pairs/s",
        "tokens/s",
        left=3,
    )
    for level in plan["levels"]:
        for name, stage in level["stages"].items():
            table.add_row(
                level["name"],
                name,
                stage["pairs_from"],
                *_work_of(stage),
            )
        if not level["stages"]:
            table.add_row(level["name"], "none", "", *["-"] * 3)
    return table


def _work_of(stage: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return pairs of a query, pairs and tokens a second; of a stage that orders lists these, and no tokens."""
    if stage["unit"] == "lists":
        return f"{_number(stage['lists_per_query'])} lists", _moments(stage["at"], "lists_per_s"), "-"
    pairs, tokens = _moments(stage["at"], "pairs_per_s"), _moments(stage["at"], "computed_tokens_per_s")
    return _number(stage["pairs_per_query"]), pairs, tokens


def _moments(at: Mapping[str, Any], key: str) -> str:
    return "/".join(_number(moment[key]) for moment in at.values())


def _replicas(plan: Mapping[str, Any]) -> Table:
    headroom = plan["conditions"]["headroom"]
    title = (
        f"Replicas needed for at most {headroom['utilisation']:.0%} busy with all up, and {headroom['most_utilisation']:.0%} "
        f"with {headroom['failures']} failed, {headroom['max_unavailable']} in update"
        f"{', or both' if headroom['failure_during_update'] else ''}. Share busy at mean and peak rate, and planned:"
    )
    table = _table(title, "level", "pool", "needed", "mean", "peak", *_SITUATIONS.values(), left=2)
    for level in plan["levels"]:
        for name, pool in level["pools"].items():
            busy = pool["utilisation"]
            table.add_row(
                level["name"],
                name,
                str(pool["replicas"]),
                *(_share(busy[moment]["all_up"]) for moment in ("mean", "peak")),
                *(_share(busy["planned"][each]) for each in _SITUATIONS),
            )
    return table


def _carried(plan: Mapping[str, Any]) -> Table:
    carried = plan["carried"]
    replicas = ", ".join(f"{pool}={count}" for pool, count in carried["replicas"].items())
    table = _table(
        f"Queries a second that {replicas} carry ({carried['replicas_from']})",
        "level",
        "fails first",
        "safe",
        *_SITUATIONS.values(),
        left=2,
    )
    for level in carried["levels"]:
        rates = [level["safe_qps"], *(level["qps"][each] for each in _SITUATIONS)]
        table.add_row(
            level["name"], level["fails_first"] or "-", *("any" if rate is None else _number(rate) for rate in rates)
        )
    return table


def _levels_that_carry(plan: Mapping[str, Any]) -> list[str]:
    carried = plan["carried"]
    found = carried["level_at_planned_qps"]
    told = ", ".join(f"{name}: {found[each] or 'NONE'}" for each, name in _SITUATIONS.items())
    lines = [f"first level that carries {_number(plan['arrivals']['planned_qps'])} queries a second: {told}"]
    if carried["share_of_time"]:
        shares = ", ".join(f"{each['level'] or 'NONE'} {each['share']:.1%}" for each in carried["share_of_time"])
        lines.append(f"first level that carries each window, by time: {shares}")
    return lines


def _share(value: float | None) -> str:
    return "none up" if value is None else f"{value:.0%}"


def _number(value: float) -> str:
    """Return a number to three digits: 0.123, 12.3, 1.23k, 123k, 1.23M."""
    short = float(f"{value:.3g}")
    for divisor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if short >= divisor:
            return f"{short / divisor:.3g}{unit}"
    return f"{short:.3g}"
