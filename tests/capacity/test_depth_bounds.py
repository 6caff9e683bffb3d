"""Between which depths a rule may choose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from cascade.capacity.depth_bounds import depth_bounds
from cascade.policy.depth import AnyDepth, choose_depth
from cascade.policy.depth_rules import DepthSpec
from cascade.policy.release import Limits
from cascade.signals.catalogue import CLASS
from cascade.signals.compute import Signals
from cascade.types import QueryClass

_RULE: TypeAdapter[AnyDepth] = TypeAdapter(DepthSpec)
_GAIN = {"intercept": 0.0, "weights": [1.0], "missing": [0.0]}
_SIGNALS = [{"signal": "bm25.gap", "mean": 0.0, "sd": 1.0}]


@pytest.mark.parametrize(
    ("rule", "bounds"),
    [
        (50, (50, 50)),
        ({"kind": "skip", "default": 30}, (0, 30)),
        ({"kind": "greedy", "default": 50, "classes": {"identifier": 10, "other": 80}}, (10, 80)),
        (
            {"kind": "greedy", "default": 50, "least": 20, "most": 60, "classes": {"identifier": 10, "other": 80}},
            (20, 60),
        ),
        ({"kind": "greedy", "default": 50, "least": 20, "classes": {"identifier": "skip"}}, (0, 50)),
        ({"kind": "signals", "default": 40, "rules": []}, (40, 40)),
        (
            {
                "kind": "signals",
                "default": 40,
                "rules": [{"when": [{"query_class": ["other"]}], "depth": 100}],
            },
            (40, 100),
        ),
        (
            {
                "kind": "gain",
                "default": 50,
                "price_per_candidate": 0.1,
                "signals": _SIGNALS,
                "depths": [{"depth": 10, **_GAIN}, {"depth": 30, **_GAIN}],
            },
            (10, 30),
        ),
        (
            {
                "kind": "gain",
                "default": 5,
                "price_per_candidate": 0.1,
                "signals": _SIGNALS,
                "depths": [{"depth": 10, **_GAIN}, {"depth": 30, **_GAIN}],
            },
            (5, 30),
        ),
    ],
)
def test_bounds_by_hand(rule: Any, bounds: tuple[int, int]) -> None:
    """Of every depth that the rule names and its default, as it clamps them; a skip is not clamped."""
    assert depth_bounds(_RULE.validate_python(rule)) == bounds


_depths = st.integers(0, 120)
_adaptive = st.fixed_dictionaries(
    {"default": st.integers(5, 120), "least": st.integers(1, 5), "most": st.integers(5, 120)}
)
_rules = st.one_of(
    st.builds(lambda depth: {"kind": "fixed", "depth": depth}, _depths),
    st.builds(lambda default: {"kind": "skip", "default": default}, st.integers(1, 120)),
    st.builds(
        lambda bounds, depth: {"kind": "greedy", **bounds, "classes": {"other": depth}},
        _adaptive,
        _depths,
    ),
    st.builds(
        lambda bounds, depth: {
            "kind": "signals",
            **bounds,
            "rules": [{"when": [{"signal": "bm25.gap", "at_least": 0.5}], "depth": depth}],
        },
        _adaptive,
        _depths,
    ),
    st.builds(
        lambda bounds, depths: {
            "kind": "gain",
            **bounds,
            "price_per_candidate": 0.01,
            "signals": _SIGNALS,
            "depths": [{"depth": depth, **_GAIN, "intercept": place / 5} for place, depth in enumerate(sorted(depths))],
        },
        _adaptive,
        st.sets(st.integers(0, 120), min_size=2, max_size=3),
    ),
)
_values = st.fixed_dictionaries(
    {}, optional={name: st.floats(0, 5) for name in ("bm25.gap", "head.duplicate", "channels.separation")}
)


@given(_rules, _values, st.none() | st.sampled_from(QueryClass))
def test_every_choice_lies_within(rule: Any, values: dict[str, float], query_class: QueryClass | None) -> None:
    """Whatever the signals, vetoes included."""
    assert CLASS not in values
    parsed = _RULE.validate_python(rule)
    least, most = depth_bounds(parsed)
    chosen = choose_depth(parsed, Limits(max_candidates=1000), 1000, Signals(values, query_class))
    assert least <= chosen.depth <= most
