"""Historical difficulty, frozen with a release."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.signals import History, Seen
from cascade.signals.history import difficulty
from cascade.types import QueryClass

_OTHER, _SHORT = QueryClass.OTHER, QueryClass.SHORT_AMBIGUOUS
_HISTORY = History({_OTHER: 0.1}, {"acme": {_OTHER: Seen(0.3, 50)}, "new": {_OTHER: Seen(0.9, 0)}}, shrinkage=50.0)


def test_a_tenant_seen_as_often_as_the_shrinkage_lies_halfway() -> None:
    """50 queries against 50: the mean of 0.1 and 0.3."""
    assert difficulty(_HISTORY, _OTHER, "acme") == pytest.approx(0.2)


@pytest.mark.parametrize("tenant", ["unknown", "new", None])
def test_a_tenant_that_was_not_seen_has_its_class_mean(tenant: str | None) -> None:
    """So has a request without a tenant."""
    assert difficulty(_HISTORY, _OTHER, tenant) == 0.1


def test_a_class_without_a_mean_is_missing() -> None:
    """So is everything without a history."""
    assert math.isnan(difficulty(_HISTORY, _SHORT, "acme"))
    assert math.isnan(difficulty(None, _OTHER, "acme"))


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**6), st.floats(0.1, 1e4))
def test_shrinkage_lies_between_the_means(of_class: float, own: float, count: int, shrinkage: float) -> None:
    """However many were seen."""
    history = History({_OTHER: of_class}, {"acme": {_OTHER: Seen(own, count)}}, shrinkage)
    value = difficulty(history, _OTHER, "acme")
    assert min(of_class, own) - 1e-12 <= value <= max(of_class, own) + 1e-12
