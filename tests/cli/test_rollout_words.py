"""Numbers and times of a rollout, in words."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.cli.rollout_words import duration, figure, headline, number, percent, short_digest, when
from tests.server.rollout_desk import idle, running, turned_down


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (200_000, "2.31 d"), (None, "-")],
)
def test_durations_have_the_largest_unit_that_tells(seconds: float | None, said: str) -> None:
    """Seconds up to two minutes, minutes up to two hours."""
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("name", "value", "signed", "said"),
    [
        ("late", 0.0123, False, "1.23%"),
        ("late", 0.0123, True, "+1.23%"),
        ("late", -0.5, True, "-50%"),
        ("cost", 0.25, False, "0.25"),
        ("cost", 0.25, True, "+25%"),
        ("ranking_loss", 0.001234, True, "+0.00123"),
        ("late", None, True, "-"),
        ("late", float("nan"), False, "-"),
    ],
)
def test_a_guardrail_is_told_in_its_unit(name: str, value: float | None, signed: bool, said: str) -> None:
    """Shares in percent, the cost's difference too; what is not there is a dash."""
    assert figure(name, value, signed=signed) == said


def test_numbers_and_shares() -> None:
    """Counts in full, measures to three digits."""
    assert (number(123456), number(0.12345), number(None), number(True)) == ("123456", "0.123", "-", "-")
    assert (percent(0.05), percent(1.0), percent(0.0495), percent("x")) == ("5%", "100%", "4.95%", "-")
    assert (short_digest("sha256:abcdef", 4), short_digest(None, 4)) == ("abcd", "-")


@pytest.mark.parametrize(
    ("written", "day", "said"),
    [
        ("2026-11-30T10:00:00+02:00", "", "2026-11-30 08:00:00"),
        ("2026-11-30T10:00:00.123Z", "2026-11-30", "10:00:00"),
        ("2026-11-29T10:00:00Z", "2026-11-30", "11-29 10:00"),
        (None, "2026-11-30", "-"),
        ("no time\x1b", "", "no time?"),
        ("0001-01-01T00:00:00+14:00", "", "0001-01-01T00:00:00+14:00"),
    ],
)
def test_times_are_of_utc(written: str | None, day: str, said: str) -> None:
    """With the day where it is another; what is no time is shown as it is."""
    assert when(written, day) == said


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (idle(), "no rollout is under way; r-2026-10 decides all traffic"),
        (idle(stable=None), "no rollout is under way; - decides all traffic"),
        (running(share=0.0), "r-2026-11 is scored beside the answers of r-2026-10, without traffic"),
        (
            running(state="activating", activation_step="probe"),
            "r-2026-11 is being activated, at the step probe; r-2026-10 decides all traffic",
        ),
        (idle(state="completed"), "r-2026-10 decides all traffic"),
        (turned_down("refused", step="smoke"), "r-2026-11 was refused at smoke; r-2026-10 decides all traffic"),
        (turned_down("aborted"), "r-2026-11 was aborted; r-2026-10 decides all traffic"),
        (idle(state="of a later version"), "no rollout is under way; r-2026-10 decides all traffic"),
    ],
)
def test_a_sentence_says_where_it_stands(status: dict[str, Any], said: str) -> None:
    """One for each state."""
    assert headline(status) == said
