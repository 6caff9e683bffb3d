"""Arms by keyed hash: sticky, nested, alike everywhere, and even."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from cascade.rollout.arms import UNIT_NUMBERS, place, unit_number

_UNITS = [f"user-{number}" for number in range(20_000)]


@given(unit=st.text(), salt=st.text())
def test_a_place_is_from_zero_to_below_one_and_always_the_same(unit: str, salt: str) -> None:
    """Any text has one, also text that is not valid Unicode."""
    for each in (unit, unit + "\ud800"):
        assert 0 <= place(each, salt) < 1
        assert place(each, salt) == place(each, salt)


def test_places_are_as_documented() -> None:
    """Whoever knows a unit and the release's digest can tell its arm elsewhere: these do not change with versions."""
    assert [round(place(unit, "sha256:a"), 12) for unit in ("user-1", "user-2", "größe", "")] == [
        0.821562134653,
        0.749745695282,
        0.233360322159,
        0.140650341245,
    ]


def test_two_processes_decide_alike() -> None:
    """Neither the hash seed nor the order of questions makes a difference."""
    code = (
        "from cascade.rollout.arms import place\n"
        "print([place(f'user-{number}', 'sha256:a') for number in reversed(range(50))])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert told == {str([place(f"user-{number}", "sha256:a") for number in reversed(range(50))])}


@given(unit=st.text(max_size=20), shares=st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_a_larger_share_only_adds_members(unit: str, shares: list[float]) -> None:
    """Who is in stays in, step by step; nobody is in at 0, and all are at 1."""
    inside = [place(unit, "sha256:a") < share for share in (0.0, *sorted(shares), 1.0)]
    assert inside == sorted(inside)
    assert (inside[0], inside[-1]) == (False, True)


def test_members_are_as_many_as_the_share_says() -> None:
    """Within three standard errors at each usual step."""
    for share in (0.01, 0.05, 0.25, 0.5):
        inside = sum(place(unit, "sha256:b") < share for unit in _UNITS)
        error = math.sqrt(len(_UNITS) * share * (1 - share))
        assert abs(inside - len(_UNITS) * share) < 3 * error


def test_places_are_even() -> None:
    """Chi-square over 20 bins of 20,000 units is below its 99.9% quantile at 19 degrees of freedom."""
    bins = [0] * 20
    for unit in _UNITS:
        bins[int(place(unit, "sha256:c") * 20)] += 1
    expected = len(_UNITS) / 20
    assert sum((count - expected) ** 2 / expected for count in bins) < 43.8


def test_another_release_draws_other_members() -> None:
    """Of the members of 10% by one salt, a tenth are members by another: no user bears every rollout."""
    salts = ("sha256:a", "sha256:b", "sha256:c")
    members = {salt: {unit for unit in _UNITS if place(unit, salt) < 0.1} for salt in salts}
    for one, other in itertools.combinations(salts, 2):
        both = len(members[one] & members[other])
        assert abs(both - 200) < 3 * math.sqrt(200)


def test_the_number_of_a_unit_says_nothing_of_its_arm() -> None:
    """Units of a small share have numbers as any others, and seldom two the same."""
    numbers = [unit_number(place(unit, "sha256:b")) for unit in _UNITS]
    few = [unit_number(place(unit, "sha256:b")) for unit in _UNITS if place(unit, "sha256:b") < 0.01]
    assert len(set(numbers)) > 0.999 * len(_UNITS)
    assert 0.3 < sum(few) / len(few) / UNIT_NUMBERS < 0.7
    assert all(0 <= number < UNIT_NUMBERS for number in numbers)
