"""The tables of a rollout on a terminal."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cascade.cli.rollout_words import (
    duration,
    figure,
    headline,
    notes,
    number,
    percent,
    plain,
    short_digest,
    state_of,
    steps_of,
    when,
)

__all__ = ["guardrails_table", "status_view", "within_table"]

_USUAL: Final = 80
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
_RELEASES: Final = {
    "": 0, "release": 0, "share": 0, "digest": _USUAL, "asked for": _USUAL, "downloaded": _USUAL, "activated": 0,
}  # fmt: skip
_GUARDRAILS: Final = {
    "guardrail": 0, "verdict": 0, "n": 0, "stable": _USUAL, "canary": _USUAL, "differs": 0, "limit": 0, "p harm": _USUAL,
    "p pass": _USUAL, "why": _WIDE,
}  # fmt: skip
"""Columns, each with the least width of a terminal that shows it."""
_NUMBERS: Final = _GUARDRAILS.keys() - {"guardrail", "verdict", "why"}
_TIMES: Final = ("asked_at", "downloaded_at", "activated_at")
_TURNED_DOWN: Final = frozenset({"rolled_back", "refused", "aborted", "replaced"})


def status_view(status: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    """Yield what stands on a terminal of so many columns: a sentence, the releases, the guardrails, what is waited for."""
    state = Text(state_of(status), style=_STATES.get(str(status["state"]), "bold"))
    yield Text.assemble(state, ": ", headline(status))
    if status["steps"]:
        yield Text(f"steps: {steps_of(status)}")
    yield from _refused(status)
    yield from (Text(each, style="bold red") for each in notes(status))
    yield Text()
    yield _releases(status, width)
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
    shares = {"stable": 1 - status["share"], "candidate": status["share"]}
    roles = {role: status[role] for role in ("desired", "stable", "candidate") if status.get(role)}
    day = "" if width >= _WIDE else max(when(told.get(name))[:10] for told in roles.values() for name in _TIMES)
    rows = [
        {
            "": role,
            "release": plain(told.get("release") or "-"),
            "share": percent(shares[role]) if role in shares else "",
            "digest": short_digest(told.get("digest"), letters),
            "asked for": when(told.get("asked_at"), day),
            "downloaded": when(told.get("downloaded_at"), day),
            "activated": when(told.get("activated_at"), day),
        }
        for role, told in roles.items()
    ]
    table = _table(_RELEASES, rows, width, numbers={"share"}, breaks="release")
    _captioned(table, f"UTC, of {day} where no day is told" if day else "UTC")
    return table


def guardrails_table(guardrails: Sequence[Mapping[str, Any]], width: int) -> Table:
    """Return the guardrails with their numbers, where there is room for them all; with more of it also why they say so."""
    table = _table(_GUARDRAILS, map(_guardrail, guardrails), width, numbers=_NUMBERS, breaks="why")
    notes = [] if all(each.get("needed", True) for each in guardrails) else ["* the step does not wait for it"]
    if any(each["name"] == "cost" for each in guardrails):
        notes.append("cost: of a request, in the unit of prices")
    if notes:
        _captioned(table, "; ".join(notes))
    return table


def _guardrail(each: Mapping[str, Any]) -> dict[str, RenderableType]:
    name, verdict = plain(each["name"]), plain(each["verdict"])
    return {
        "guardrail": name,
        "verdict": Text(verdict if each.get("needed", True) else f"{verdict}*", style=_VERDICTS.get(verdict, "")),
        "n": number(each.get("n")),
        "stable": figure(name, each.get("stable")),
        "canary": figure(name, each.get("canary")),
        "differs": figure(name, each.get("difference"), signed=True),
        "limit": figure(name, each.get("limit"), signed=name == "cost").lstrip("+"),
        "p harm": _p_value(each.get("p_harm")),
        "p pass": _p_value(each.get("p_pass")),
        "why": Text(plain(each.get("why", ""))),
    }


def within_table(told: Sequence[Mapping[str, Any]]) -> Table:
    """Return how soon each harm is rolled back; seconds only where there is traffic."""
    rows = [
        {
            "harm to": plain(each["guardrail"]),
            "so much worse": figure(plain(each["guardrail"]), each["harm"], signed=True),
            "share looked at": percent(each["share"]),
            "answers": "too many" if each["queries"] is None else number(each["queries"]),
            "rolled back within": _within(each),
        }
        for each in told
    ]
    columns = dict.fromkeys(rows[0], 0)
    return _table(columns, rows, _WIDE, numbers=columns.keys() - {"harm to"})


def _within(each: Mapping[str, Any]) -> str:
    if each["seconds"] is not None:
        return duration(each["seconds"])
    return "-" if each["queries"] is None else "no traffic"


def _p_value(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, int | float) else "-"


def _table(
    columns: Mapping[str, int],
    rows: Iterable[Mapping[str, RenderableType]],
    width: int,
    *,
    numbers: Container[str],
    breaks: str | None = None,
) -> Table:
    """Return a table of the columns that so wide a terminal has room for; of ``breaks`` the lines are broken, none is cut off."""
    shown = [name for name, least in columns.items() if width >= least]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0) if width >= _WIDE else 0)
    for name in shown:
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        is_whole = name == breaks
        table.add_column(name, justify=justify, no_wrap=not is_whole, overflow="fold" if is_whole else "ellipsis")
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    return table


def _captioned(table: Table, words: str) -> None:
    table.caption = Text(words, style="dim")
    table.caption_justify = "left"
