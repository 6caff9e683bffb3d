"""Show a rollout again and again until told to stop, or until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cascade.cli.rollout_admin import NoAnswer, TurnedDown
from cascade.cli.rollout_tables import status_view
from cascade.cli.rollout_words import duration, headline, notes, plain, state_of, when
from cascade.errors import CascadeError

__all__ = ["TimeOver", "wait", "watch"]

_LOOK_S: Final = 1.0

Look = Callable[[], Mapping[str, Any]]


class TimeOver(CascadeError):
    """Say that a release neither decides all traffic nor was turned down in the time that was given."""


def watch(
    look: Look,
    console: Console,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Look each second, until Ctrl-C. A sidecar that does not answer, as one that is restarted, is asked again.

    Where there is no terminal a line is written at each change, with the time, in UTC.
    """
    try:
        if console.is_terminal:
            _live(look, console, sleep, clock)
        else:
            for _ in _lines(look, console, now):
                sleep(_LOOK_S)
    except KeyboardInterrupt:
        return


def wait(
    look: Look,
    console: Console,
    wanted: str,
    timeout_s: float | None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Look each second until a release, by its digest or name, decides all traffic; a line is written at each change.

    Raises TurnedDown where it was refused or taken back, and after ``timeout_s`` TimeOver, or NoAnswer where the last
    look found none.
    """
    ends_at = None if timeout_s is None else clock() + timeout_s
    for seen in _lines(look, console, now):
        if not isinstance(seen, NoAnswer) and _serves(seen, wanted):
            return
        if ends_at is not None and clock() >= ends_at:
            if isinstance(seen, NoAnswer):
                raise seen
            raise TimeOver(f"{plain(wanted)} does not decide all traffic after {duration(timeout_s)}")
        sleep(_LOOK_S)


def _serves(status: Mapping[str, Any], wanted: str) -> bool:
    """Tell whether a release decides all traffic. Raises TurnedDown where it was; one that comes by itself was not.

    Of a name that is used again what happens last counts.
    """
    stable, candidate, refused, desired = (
        one if (one := status[role]) and wanted in (one["digest"], one["release"]) else None
        for role in ("stable", "candidate", "refused", "desired")
    )
    if candidate is not None or _is_pending(desired):
        return False
    if refused is not None and (stable is None or _came_after(refused, stable)):
        if _is_pending(status["desired"]) and status["desired"]["digest"] is None:  # not looked at since a restart
            return False
        step = plain(refused["step"]).replace("_", " ")
        told = f"{plain(refused['release'])} was turned down ({step}) at {when(refused['at'])}"
        raise TurnedDown(told, tuple(map(plain, refused["why"])))
    return stable is not None


def _is_pending(desired: Mapping[str, Any] | None) -> bool:
    return desired is not None and bool(desired.get("pending"))


def _came_after(refused: Mapping[str, Any], stable: Mapping[str, Any]) -> bool:
    return bool(refused["digest"] != stable["digest"] and refused["at"] > stable["activated_at"])


def _live(look: Look, console: Console, sleep: Callable[[float], None], clock: Callable[[], float]) -> None:
    shown: list[RenderableType] = []
    lost_at: float | None = None
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            try:
                shown = list(status_view(look(), console.width))
                lost_at, trouble = None, Text("Ctrl-C ends this view, not the rollout", style="dim")
            except NoAnswer as error:
                lost_at = clock() if lost_at is None else lost_at
                trouble = Text(
                    f"no news for {duration(clock() - lost_at)}: {plain(error)}; asked again", style="bold red"
                )
            live.update(Group(trouble, Text(), *shown), refresh=True)  # a low terminal cuts off what is below
            sleep(_LOOK_S)


def _lines(look: Look, console: Console, now: Callable[[], datetime]) -> Iterator[Mapping[str, Any] | NoAnswer]:
    """Yield what each look finds, after a line was written where that says something new."""
    last = None
    while True:
        seen: Mapping[str, Any] | NoAnswer
        try:
            seen = look()
            line = "; ".join((f"{state_of(seen)}: {headline(seen)}", *notes(seen)))
        except NoAnswer as error:
            seen = error
            line = f"no news: {plain(error)}; asked again"
        if line != last:
            console.print(Text(f"{when(now())}  {line}"), soft_wrap=True)
        last = line
        yield seen
