"""How many candidates the small stage scores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.policy.depth import choose_depth
from cascade.policy.release import Depth, Limits


@pytest.mark.parametrize(
    ("depth", "limit", "candidates", "expected"), [(0, 200, 50, 0), (30, 200, 50, 30), (80, 60, 90, 60), (80, 60, 7, 7)]
)
def test_depth_is_the_fixed_one_within_limit_and_candidates(
    depth: int, limit: int, candidates: int, expected: int
) -> None:
    """The least of the release's depth, its limit and the candidates holds; zero stays zero."""
    assert choose_depth(Depth(depth=depth), Limits(max_candidates=limit), candidates) == expected


@given(st.integers(0, 300), st.integers(1, 300), st.integers(0, 300))
def test_depth_never_exceeds_any_of_its_bounds(depth: int, limit: int, candidates: int) -> None:
    """The depth is reached exactly where nothing bounds it."""
    chosen = choose_depth(Depth(depth=depth), Limits(max_candidates=limit), candidates)
    assert chosen <= min(depth, limit, candidates)
    assert chosen in (depth, limit, candidates)
