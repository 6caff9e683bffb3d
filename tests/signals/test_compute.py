"""Asking for signals by name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.signals import CLASS, SCRIPT, History, Inputs, Script, Signals, compute, resolve, signal_names
from cascade.text import Text
from cascade.types import QueryClass
from tests.signals.drawn import array

_QUERY = Text("what is the tallest mountain")


def test_only_what_is_asked_for_is_computed() -> None:
    """Values hold the names asked for; class and script stand beside them."""
    signals = compute(["bm25.gap", CLASS], Inputs({"bm25": array([4.0, 2.0])}, _QUERY))
    assert dict(signals.values) == {"bm25.gap": 0.5}
    assert signals.query_class is QueryClass.OTHER
    assert signals.script is None
    assert compute([SCRIPT], Inputs(query=_QUERY)) == Signals({}, None, Script.LATIN)


def test_query_and_history_are_read_from_the_inputs() -> None:
    """Tokens are the estimate, identifiers the count, difficulty that of class and tenant."""
    history = History({QueryClass.IDENTIFIER: 0.25})
    inputs = Inputs(query=Text("foo_bar fails"), tenant="acme", history=history)
    signals = compute(["query.tokens", "query.identifiers", "history.difficulty"], inputs)
    assert list(signals.values.values()) == [4.0, 1.0, 0.25]


def test_separation_is_the_greatest_over_the_channels() -> None:
    """One channel that tells head from tail is enough; the small stage is no channel of this."""
    clear, flat = array([9.0, 9.0, 9.0, *range(8)]), np.ones(11)
    signals = compute(
        ["channels.separation", "clear.separation"],
        Inputs({"flat": flat, "clear": clear, "small": clear * 2}, small=clear),
    )
    assert signals.get("channels.separation") == signals.get("clear.separation") > 0.0


def test_what_is_not_there_is_missing_by_name() -> None:
    """Without query, channels, documents and small scores every signal is NaN, and says which it is."""
    names = [
        *("query.tokens", "query.identifiers", "history.difficulty", "head.duplicate", "channels.separation"),
        *("channels.diversity", "small.rbo_first", "small.flips_5", "bm25.gap", "bm25.wig", "rbo.bm25.dense"),
    ]
    signals = compute([*names, CLASS, SCRIPT], Inputs(query=Text("  ")))
    assert signals.missing == frozenset(names)
    assert signals.query_class is None
    assert signals.script is None


def test_a_signal_that_was_not_computed_is_missing() -> None:
    """Asking for it gives NaN."""
    assert math.isnan(Signals().get("bm25.gap"))
    assert Signals().missing == frozenset()


def test_the_small_stage_stands_for_a_channel() -> None:
    """Its shape is measured like a channel's, and a channel of that name does not take its place."""
    inputs = Inputs({"small": array([3.0, 3.0, 3.0])}, small=array([9.0, 1.0, 0.0]))
    assert compute(["small.gap_tail"], inputs).get("small.gap_tail") > 0.0


@pytest.mark.parametrize(
    "name",
    [
        "secret.gaps",
        "gap",
        "",
        "secret",
        "small.gap",
        "small.wig",
        "large.entropy",
        "query.gap_tail",
        "rbo.secret",
        "rbo.b.a",
        "rbo.a.a",
        "rbo.a.small",
        "overlap_7.a.b",
        "a b.gap",
        "rbo.a.b c",
        "a.b.gap",
        "query.class",
    ],
)
def test_a_name_of_no_signal_is_refused_with_the_names_there_are(name: str) -> None:
    """The name itself is not repeated: it may have come from a variable."""
    with pytest.raises(ConfigError, match="no such signal; the signals are ") as caught:
        resolve(name)
    assert all(known in str(caught.value) for known in signal_names())
    assert "secret" not in str(caught.value)
