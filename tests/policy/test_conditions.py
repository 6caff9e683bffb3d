"""Conditions of a release on a query's signals."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cascade.policy.conditions import holds, signal_name
from cascade.policy.depth_rules import Condition
from cascade.signals import CLASS, Signals
from cascade.signals.catalogue import SCRIPT
from cascade.signals.script import Script
from cascade.types import QueryClass

_GAP = "bm25.gap"


def _condition(**fields: Any) -> Condition:
    return Condition.model_validate(fields)


@pytest.mark.parametrize(
    ("bounds", "holds_at"),
    [
        ({"at_least": 0.3}, (False, True, True)),
        ({"above": 0.3}, (False, False, True)),
        ({"at_most": 0.3}, (True, True, False)),
        ({"below": 0.3}, (True, False, False)),
        ({"at_least": 0.3, "at_most": 0.3}, (False, True, False)),
        ({"above": 0.2, "below": 0.4}, (True, True, True)),
    ],
)
@pytest.mark.parametrize("tie", [0.3, 0.1 + 0.2, math.nextafter(0.3, 0.0)])
def test_bounds_are_inclusive_or_not_as_they_say(
    bounds: dict[str, float], holds_at: tuple[bool, ...], tie: float
) -> None:
    """Below, at and above a bound of .3; what rounding makes of .3 is .3."""
    condition = _condition(signal=_GAP, **bounds)
    assert tuple(holds(condition, Signals({_GAP: value})) for value in (0.29, tie, 0.31)) == holds_at


@pytest.mark.parametrize("name", ["at_least", "above", "at_most", "below"])
def test_a_missing_signal_holds_nothing(name: str) -> None:
    """Neither one that was not computed nor one that could not be."""
    condition = _condition(signal=_GAP, **{name: 0.0})
    assert not holds(condition, Signals())
    assert not holds(condition, Signals({_GAP: math.nan}))


def test_an_infinite_signal_is_beyond_every_bound() -> None:
    """On its side."""
    assert holds(_condition(signal=_GAP, above=1e300), Signals({_GAP: math.inf}))
    assert not holds(_condition(signal=_GAP, at_most=1e300), Signals({_GAP: math.inf}))


def test_a_class_and_a_script_are_among_those_named() -> None:
    """And a query of neither, or of none that is known, is not."""
    of_class = _condition(query_class=["identifier", "other"])
    of_script = _condition(script=[next(iter(Script))])
    assert holds(of_class, Signals({}, QueryClass.OTHER))
    assert not holds(of_class, Signals({}, QueryClass.MULTI_PART))
    assert not holds(of_class, Signals())
    assert holds(of_script, Signals({}, None, next(iter(Script))))
    assert not holds(of_script, Signals())


def test_each_condition_names_what_it_reads() -> None:
    """The signal, or what stands for the class or the script."""
    assert signal_name(_condition(signal=_GAP, above=0)) == _GAP
    assert signal_name(_condition(query_class=["other"])) == CLASS
    assert signal_name(_condition(script=[next(iter(Script))])) == SCRIPT
