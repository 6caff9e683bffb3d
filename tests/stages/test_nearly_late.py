"""A stage before a server that batches, at steady overload: its limit does not grow until calls are late."""

from __future__ import annotations

import pytest

from .test_behind import _CAPACITY, _Batching, _play


@pytest.mark.parametrize(("times", "share"), [(1.5, 0.75), (2.0, 0.8)])
def test_under_steady_overload_the_server_is_kept_in_use_and_its_breaker_closed(times: float, share: float) -> None:
    """From the fifth second to the twentieth, where a limit that follows its own queue loses a fifth and opens it."""
    played = _play(_Batching(), lambda t: times, 20.0)
    assert played.states == []
    assert played.answered_between(5, 20) > 15 * share * _CAPACITY
