"""A rollout that is watched, on a terminal and in a file."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from cascade.cli.rollout_admin import Admin, NoAnswer
from cascade.cli.rollout_watch import watch
from cascade.errors import ConfigError
from cascade.telemetry.logs import configure_logging
from tests.logs import logging_given_back
from tests.server.admin_listener import admin_listener
from tests.server.rollout_desk import FakeDesk, idle, running, turned_down

Looked = dict[str, Any] | Exception


@pytest.fixture(autouse=True)
def _log_of_its_own() -> Iterator[None]:
    with logging_given_back():
        configure_logging("info", io.BytesIO())
        yield


def _watched(looks: list[Looked], *, is_terminal: bool, height: int = 60) -> tuple[str, list[float]]:
    """Watch what looks give in turn, then press Ctrl-C; return what was written, and the pauses."""
    file, pauses = io.StringIO(), list[float]()
    console = Console(file=file, force_terminal=is_terminal, width=100, height=height, legacy_windows=False)

    def look() -> dict[str, Any]:
        if not looks:
            raise KeyboardInterrupt
        seen = looks.pop(0)
        if isinstance(seen, Exception):
            raise seen
        return seen

    now = datetime(2026, 11, 30, 9, tzinfo=UTC)
    watch(
        look,
        console,
        sleep=pauses.append,
        clock=lambda: float(sum(pauses)),
        now=lambda: now + timedelta(seconds=sum(pauses)),
    )
    return file.getvalue(), pauses


def test_a_terminal_shows_each_look_and_what_it_cannot_see() -> None:
    """Each second; while nobody answers, what was seen last stays, and since when it is old is told."""
    written, pauses = _watched([running(), NoAnswer("gone"), NoAnswer("gone"), turned_down()], is_terminal=True)
    assert pauses == [1.0] * 4
    assert "decides 5% of the traffic" in written
    assert written.index("no news for 0 s: gone") < written.index("no news for 1 s: gone")
    last = written[written.rindex("no news for 1 s") :]
    assert "was rolled back" in last
    assert "Ctrl-C ends this view, not the rollout" in last
    assert "\x1b[1;31mrolled back" in last


def test_a_low_terminal_shows_that_there_is_no_news() -> None:
    """What is cut off is below it."""
    looks: list[Looked] = [running(), NoAnswer("gone"), NoAnswer("gone")]
    written, _ = _watched(looks, is_terminal=True, height=24)
    assert "no news for 0 s: gone" in written  # the last look alone is written whole when it ends


def test_a_file_has_a_line_for_each_change() -> None:
    """With its time; no control of a cursor, no colour, nothing twice."""
    looks: list[Looked] = [idle(), idle(), running(), NoAnswer("gone"), NoAnswer("gone"), running(), turned_down()]
    written, _ = _watched(looks, is_terminal=False)
    assert written.splitlines() == [
        "2026-11-30 09:00:00  idle: no rollout is under way; r-2026-10 decides all traffic",
        "2026-11-30 09:00:02  running: r-2026-11 decides 5% of the traffic, r-2026-10 the rest",
        "2026-11-30 09:00:03  no news: gone; asked again",
        "2026-11-30 09:00:05  running: r-2026-11 decides 5% of the traffic, r-2026-10 the rest",
        "2026-11-30 09:00:06  rolled back: r-2026-11 was rolled back; r-2026-10 decides all traffic",
    ]


def test_a_key_that_does_not_open_it_ends_the_view() -> None:
    """It would not tomorrow either."""
    with pytest.raises(ConfigError, match="not known"):
        _watched([running(), ConfigError("the key is not known")], is_terminal=True)


def test_a_sidecar_that_is_restarted_is_seen_again() -> None:
    """At the same address, over a real socket, without anybody starting the view anew."""
    with admin_listener(FakeDesk(running())) as before:
        admin = Admin(before.url)
        port = int(before.url.rsplit(":", 1)[1])
        assert admin.get("/rollout")["state"] == "running"

    def stopped(look: Callable[[], dict[str, Any]]) -> str:
        with pytest.raises(NoAnswer) as raised:
            look()
        return str(raised.value)

    assert stopped(lambda: admin.get("/rollout")).startswith(f"{before.url} does not answer: ")
    with admin_listener(FakeDesk(turned_down()), port=port):
        assert admin.get("/rollout")["state"] == "rolled_back"
    admin.close()
