"""The tutorial's traffic is enough for what the tutorial does with it."""

from __future__ import annotations

from evals.tutorial_traffic import queries


def test_each_part_has_what_fitting_takes_and_none_of_the_other() -> None:
    """`calibrate` wants 100 queries, and `certify` leaves out what trained."""
    first, second = queries(1), queries(2)
    assert min(len(set(first)), len(set(second))) >= 110
    assert set(first) & set(second) == set()
