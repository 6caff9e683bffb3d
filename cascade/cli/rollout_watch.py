"""Show a rollout again and again until told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cascade.cli.rollout_admin import NoAnswer
from cascade.cli.rollout_tables import status_view
from cascade.cli.rollout_words import duration, headline, plain, state_of, when

__all__ = ["watch"]

_LOOK_S: Final = 1.0

Look = Callable[[], Mapping[str, Any]]


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
            _lines(look, console, sleep, now)
    except KeyboardInterrupt:
        return


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
            live.update(Group(*shown, Text(), trouble), refresh=True)
            sleep(_LOOK_S)


def _lines(look: Look, console: Console, sleep: Callable[[float], None], now: Callable[[], datetime]) -> None:
    last = None
    while True:
        try:
            status = look()
            line = f"{state_of(status)}: {headline(status)}"
        except NoAnswer as error:
            line = f"no news: {plain(error)}; asked again"
        if line != last:
            console.print(Text(f"{when(now())}  {line}"), soft_wrap=True)
        last = line
        sleep(_LOOK_S)
