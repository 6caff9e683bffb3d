"""The tables of a rollout on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cascade.cli.rollout_words import (
    duration,
    figure,
    headline,
    number,
    percent,
    plain,
    short_digest,
    state_of,
    steps_of,
    when,
)

__all__ = ["guardrails_table", "status_view", "within_table"]

_WIDE: Final = 120
_WIDEST: Final = 160
_STATES: Final = {
    "completed": "green",
    "rolled_back": "bold red",
    "refused": "bold red",
    "aborted": "yellow",
    "replaced": "yellow",
}
_VERDICTS: Final = {"pass": "green", "fail": "bold red", "inconclusive": "yellow"}  # nosec B105 # no password
_TIMES: Final = ("asked_at", "downloaded_at", "activated_at")
_TURNED_DOWN: Final = frozenset({"rolled_back", "refused", "aborted", "replaced"})


def status_view(status: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    """Yield what stands on a terminal of so many columns: a sentence, the releases, the guardrails, what is waited for."""
    state = Text(state_of(status), style=_STATES.get(str(status["state"]), "bold"))
    yield Text.assemble(state, ": ", headline(status))
    if status["steps"]:
        yield Text(f"steps: {steps_of(status)}")
    yield from _refused(status)
    yield Text()
    yield _releases(status, width)
    fault = (status.get("desired") or {}).get("fault")
    if fault:
        yield Text(f"what is desired cannot be used: {plain(fault)}", style="bold red")
    if status["guardrails"]:
        yield Text()
        yield guardrails_table(status["guardrails"], width)
    if status["waits_for"]:
        yield Text()
        yield Text("the step waits for")
        yield from (Text(f"  {plain(each)}") for each in status["waits_for"])


def _refused(status: Mapping[str, Any]) -> Iterator[Text]:
    refused = status.get("refused")
    if refused and status["state"] in _TURNED_DOWN:
        yield Text(f"since {when(refused.get('at'))}, because")
        yield from (Text(f"  {plain(each)}") for each in refused["why"])


def _releases(status: Mapping[str, Any], width: int) -> Table:
    """Return desired, stable and candidate with their times, which are of UTC."""
    letters = 64 if width >= _WIDEST else 8
    table = _table("", "release", "share", "digest", "asked for", "downloaded", "activated", numbers=(2,), width=width)
    shares = {"stable": 1 - status["share"], "candidate": status["share"]}
    roles = {role: status[role] for role in ("desired", "stable", "candidate") if status.get(role)}
    day = "" if width >= _WIDE else max(when(told.get(name))[:10] for told in roles.values() for name in _TIMES)
    for role, told in roles.items():
        times = (when(told.get(name), day) for name in _TIMES)
        share = percent(shares[role]) if role in shares else ""
        table.add_row(role, plain(told.get("release") or "-"), share, short_digest(told.get("digest"), letters), *times)
    table.columns[1].no_wrap = False
    table.columns[1].overflow = "fold"
    table.caption = Text(f"UTC, of {day} where no day is told" if day else "UTC", style="dim")
    table.caption_justify = "left"
    return table


def guardrails_table(guardrails: Sequence[Mapping[str, Any]], width: int) -> Table:
    """Return the guardrails with their numbers; where there is room, with why they say so."""
    columns = ["guardrail", "verdict", "n", "stable", "canary", "differs", "limit", "p harm", "p pass"]
    table = _table(*columns, *(["why"] if width >= _WIDE else []), numbers=range(2, len(columns)), width=width)
    for each in guardrails:
        name = plain(each["name"])
        verdict = plain(each["verdict"])
        said = verdict if each.get("needed", True) else f"{verdict}*"
        row: list[RenderableType] = [
            name,
            Text(said, style=_VERDICTS.get(verdict, "")),
            number(each.get("n")),
            figure(name, each.get("stable")),
            figure(name, each.get("canary")),
            figure(name, each.get("difference"), signed=True),
            figure(name, each.get("limit"), signed=name == "cost").lstrip("+"),
            _p_value(each.get("p_harm")),
            _p_value(each.get("p_pass")),
        ]
        table.add_row(*row, *([Text(plain(each.get("why", "")))] if width >= _WIDE else []))
    if width >= _WIDE:
        table.columns[-1].no_wrap = False
    notes = [] if all(each.get("needed", True) for each in guardrails) else ["* the step does not wait for it"]
    if any(each["name"] == "cost" for each in guardrails):
        notes.append("cost: of a request, in the unit of prices")
    if notes:
        table.caption = Text("; ".join(notes), style="dim")
        table.caption_justify = "left"
    return table


def within_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return how soon each harm is rolled back; seconds only where there is traffic."""
    table = _table(
        "harm to", "so much worse", "share looked at", "answers", "rolled back within", numbers=range(1, 5), width=_WIDE
    )
    for each in rows:
        shown = each["queries"] is not None
        within = duration(each["seconds"]) if each["seconds"] is not None else ("no traffic" if shown else "-")
        harm = figure(plain(each["guardrail"]), each["harm"], signed=True)
        answers = number(each["queries"]) if shown else "too many"
        table.add_row(plain(each["guardrail"]), harm, percent(each["share"]), answers, within)
    return table


def _p_value(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, int | float) else "-"


def _table(*columns: str, numbers: Sequence[int], width: int) -> Table:
    padding = (0, 1, 0, 0) if width >= _WIDE else 0
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place in numbers else "left", no_wrap=True)
    return table
