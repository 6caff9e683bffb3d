"""What every signal of the table keeps, whatever it is given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.signals import SIGNALS, Inputs, Signal, compute, signal_names
from tests.signals.drawn import SHIFT_FREE, any_scores, array, exact_scores, inputs_of, names_of, range_of

_ALL = [name for signal in SIGNALS for name in names_of(signal)]


def _moving_with(what: str) -> list[str]:
    return [name for signal in SIGNALS if what in signal.moves_with for name in names_of(signal)]


@given(any_scores, any_scores, any_scores, st.one_of(st.none(), st.floats()))
def test_every_signal_is_missing_or_within_its_range(
    a: list[float], b: list[float], small: list[float], noise_sd: float | None
) -> None:
    """Missing, infinite, equal, huge and tiny scores in lists of any length give NaN or a value the table allows."""
    count = min(len(a), len(b), len(small))
    signals = compute(_ALL, inputs_of(a[:count], b[:count], small[:count], noise_sd))
    assert set(signals.values) == set(_ALL)
    for name, value in signals.values.items():
        least, most = range_of(name)
        assert math.isnan(value) or (least <= value <= most and math.isfinite(value)), name


@given(any_scores)
def test_scores_that_are_not_finite_count_as_missing(scores: list[float]) -> None:
    """Infinite scores change nothing against NaN in their place."""
    names = [name for name in _ALL if name.startswith(("a.", "channels."))]
    with_nan = [score if math.isfinite(score) else math.nan for score in scores]
    one = compute(names, Inputs({"a": array(scores)}))
    other = compute(names, Inputs({"a": array(with_nan)}))
    assert one.values == pytest.approx(other.values, nan_ok=True, rel=0, abs=0)


@given(exact_scores, st.integers(-1000, 1000), st.data())
def test_a_constant_added_to_a_channel_moves_only_signals_that_say_so(
    scores: list[float], constant: int, data: st.DataObject
) -> None:
    """All but gap, nqc and smv are the same to the last bit."""
    other = data.draw(st.permutations(scores))
    names = [name for signal in SHIFT_FREE for name in names_of(signal)]
    moved, also = [score + constant for score in scores], [score + constant for score in other]
    before, after = compute(names, inputs_of(scores, other, scores)), compute(names, inputs_of(moved, also, moved))
    assert after.values == pytest.approx(before.values, nan_ok=True, rel=0, abs=0)


@given(exact_scores, st.integers(-6, 6))
def test_a_channel_in_another_unit_moves_only_signals_that_say_so(scores: list[float], power: int) -> None:
    """All but wig are the same where a channel's scores are multiplied by a power of two."""
    names = [
        name
        for signal in SIGNALS
        if "scale" not in signal.moves_with
        for name in names_of(signal)
        if not name.startswith("small.flips")
    ]
    other = scores[::-1]
    moved = [score * 2.0**power for score in scores]
    before, after = (
        compute(names, inputs_of(scores, other, scores)),
        compute(names, inputs_of(moved, moved[::-1], moved)),
    )
    assert after.values == pytest.approx(before.values, nan_ok=True, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", _moving_with("shift"))
def test_signals_that_say_they_move_with_the_zero_do(name: str) -> None:
    """The mark is not put on signals that do not need it."""
    scores = [9.0, 4.0, 3.0, 1.0]
    plain, moved = (compute([name], inputs_of(at, at, at)).get(name) for at in (scores, [s + 1 for s in scores]))
    assert plain != pytest.approx(moved, rel=1e-3)


def test_only_wig_is_in_the_unit_of_the_scores() -> None:
    """It doubles with the scores; no other signal is marked."""
    assert {name.partition(".")[2] for name in _moving_with("scale")} == {"wig"}
    scores = [9.0, 4.0, 3.0, 1.0]
    one, two = (compute(["a.wig"], inputs_of(at, at, at)).get("a.wig") for at in (scores, [s * 2 for s in scores]))
    assert two == pytest.approx(2 * one)


@given(st.integers(3, 60), st.integers(-1000, 1000))
def test_equal_scores_say_nothing(count: int, score: int) -> None:
    """A constant channel has no gap and no separation, full entropy and no tau."""
    same = [float(score)] * count
    signals = compute(_ALL, inputs_of(same, same, same))
    assert signals.get("a.gap_tail") == signals.get("a.separation") == signals.get("a.gap") == 0.0
    assert signals.get("a.entropy") == 1.0
    assert signals.get("a.shape_uniform") == 0.0
    assert {"kendall.a.b", "small.kendall_first"} <= signals.missing


@given(exact_scores, st.integers(min_value=0), st.data())
def test_signals_of_scores_alone_do_not_depend_on_the_candidates_order(
    scores: list[float], seed: int, data: st.DataObject
) -> None:
    """Candidates that come in another order, with other ranks among equals, leave each channel's shape as it was."""
    names = [name for name in _ALL if name.startswith("a.")]
    other = data.draw(st.permutations(scores))
    before, after = compute(names, inputs_of(scores, [], [])), compute(names, inputs_of(other, [], []))
    assert after.values == pytest.approx(before.values, nan_ok=True, rel=1e-12)


@given(any_scores, any_scores)
def test_signals_are_deterministic_and_leave_their_inputs_alone(a: list[float], b: list[float]) -> None:
    """Twice the same inputs give the same values, and the arrays are as they were."""
    count = min(len(a), len(b))
    inputs = inputs_of(a[:count], b[:count], a[:count])
    once, twice = compute(_ALL, inputs), compute(_ALL, inputs)
    assert once.values == pytest.approx(twice.values, nan_ok=True, rel=0, abs=0)
    assert np.array_equal(inputs.channels["a"], array(a[:count]), equal_nan=True)


@pytest.mark.parametrize("signal", SIGNALS, ids=signal_names())
def test_the_table_says_everything_of_a_signal(signal: Signal) -> None:
    """A generated page finds a unit, a range, a formula and a source for each."""
    assert signal.unit
    assert signal.formula
    assert signal.source
    assert signal.least < signal.most
    assert signal.moves_with <= {"shift", "scale"}


def test_names_in_the_table_are_distinct() -> None:
    """No two signals share a name."""
    assert len(set(signal_names())) == len(SIGNALS)
