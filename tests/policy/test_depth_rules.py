"""What a release may say of depth, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from cascade.policy.depth import AnyDepth
from cascade.policy.depth_rules import DepthSpec, FixedDepth, GreedyDepth, HistoryNumbers, SignalsDepth
from cascade.signals import History, Seen, signal_names
from cascade.types import QueryClass

_READ: TypeAdapter[AnyDepth] = TypeAdapter(DepthSpec)
_GAP = "bm25.gap_tail"


def _rules(*when: dict[str, Any], depth: object = 10, **more: Any) -> dict[str, Any]:
    return {"kind": "signals", "default": 50, "rules": [{"when": list(when), "depth": depth}], **more}


def _gain(**more: Any) -> dict[str, Any]:
    at = {"intercept": 0.0, "weights": [0.1], "missing": [0.0]}
    return {
        "kind": "gain",
        "default": 50,
        "price_per_candidate": 0.001,
        "signals": [{"signal": _GAP, "mean": 0.0, "sd": 1.0}],
        "depths": [{"depth": 10, **at}, {"depth": 50, **at}],
        **more,
    }


def test_a_bare_integer_is_a_fixed_depth() -> None:
    """As in a level; zero is a depth."""
    assert _READ.validate_python(30) == FixedDepth(depth=30)
    assert _READ.validate_python(0) == FixedDepth(depth=0)


def test_skip_is_another_word_for_zero() -> None:
    """In rules and in classes."""
    rule = _READ.validate_python(_rules({"signal": _GAP, "above": 1}, depth="skip"))
    assert isinstance(rule, SignalsDepth)
    assert rule.rules[0].depth == 0
    greedy = _READ.validate_python({"kind": "greedy", "default": 50, "classes": {"identifier": "skip"}})
    assert isinstance(greedy, GreedyDepth)
    assert greedy.classes == {QueryClass.IDENTIFIER: 0}


def _refused(data: object) -> str:
    with pytest.raises(ValidationError) as caught:
        _READ.validate_python(data)
    return "; ".join(fault["msg"] for fault in caught.value.errors(include_input=False, include_url=False))


@pytest.mark.parametrize("signal", [_GAP, "small.entropy", "rbo.bm25.dense", "query.tokens", "any-channel.gap"])
def test_a_signal_of_the_table_is_taken(signal: str) -> None:
    """Whatever the channel is called: which channels there are, only requests tell."""
    rule = _READ.validate_python(_rules({"signal": signal, "above": 1.0}))
    assert isinstance(rule, SignalsDepth)
    assert rule.rules[0].when[0].signal == signal


@pytest.mark.parametrize("signal", ["secret", "secret.gaps", "rbo.secret.bm25", "small.gap"])
def test_a_signal_that_is_not_of_the_table_is_refused_with_the_names_there_are(signal: str) -> None:
    """And is not repeated."""
    says = _refused(_rules({"signal": signal, "above": 1.0}))
    assert all(name in says for name in signal_names())
    assert "secret" not in says


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (_rules({}), "exactly one of signal, query_class and script"),
        (_rules({"signal": _GAP, "query_class": ["other"], "above": 1.0}), "exactly one of"),
        (_rules({"signal": _GAP}), "a signal needs a bound"),
        (_rules({"query_class": ["other"], "above": 1.0}), "nothing else takes one"),
        (_rules({"query_class": []}), "at least 1 item"),
        (_rules({"query_class": ["secret"]}), "Input should be 'identifier'"),
        (_rules({"script": ["klingon"]}), "Input should be 'latin'"),
        (_rules({"signal": _GAP, "over": 1.0}), "Extra inputs"),
        (_rules({"signal": _GAP, "above": float("nan")}), "finite"),
        (_rules(), "at least 1 item"),
        (_rules({"signal": _GAP, "above": 1.0}, depth=-1), "greater than or equal to 0"),
        (_rules({"signal": _GAP, "above": 1.0}, depth="deep"), "valid integer"),
        (_rules({"signal": _GAP, "above": 1.0}, depth=True), "valid integer"),
        (_rules({"script": ["latin"]}, least=60), "least must not be above default or most"),
        (_rules({"script": ["latin"]}, least=30, most=20), "least must not be above default or most"),
        ({"kind": "greedy", "default": 50, "classes": {"secret": 10}}, "Input should be 'identifier'"),
        ({"kind": "greedy", "default": 0, "classes": {}}, "greater than or equal to 1"),
        ({"kind": "skip", "default": 0}, "greater than or equal to 1"),
        ({"kind": "skip", "duplicate_head": 1.5}, "less than or equal to 1"),
        ({"kind": "fixed", "depth": -1}, "greater than or equal to 0"),
        ({"kind": "deep"}, "does not match any of the expected tags"),
        (True, "valid dictionary"),
        (_gain(price_per_candidate=-0.1), "greater than or equal to 0"),
        (_gain(depths=[]), "at least 1 item"),
        (_gain(signals=[]), "one weight and one missing term"),
        (_gain(signals=[{"signal": _GAP, "mean": 0.0, "sd": 0.0}]), "greater than 0"),
        (_gain(signals=[{"signal": "gap", "mean": 0.0, "sd": 1.0}]), "no such signal"),
        (_gain(depths=[{"depth": 0, "intercept": 0.0, "weights": [0.0], "missing": [0.0]}]), "above 0 is needed"),
    ],
)
def test_what_cannot_be_meant_is_refused(data: object, says: str) -> None:
    """With the rule that is broken, and without the value."""
    message = _refused(data)
    assert says in message
    assert "secret" not in message


def test_depths_of_a_gain_ascend() -> None:
    """Equal and falling ones are refused."""
    at = {"intercept": 0.0, "weights": [0.1], "missing": [0.0]}
    for depths in ((50, 10), (10, 10)):
        with pytest.raises(ValidationError, match="depths must ascend"):
            _READ.validate_python(_gain(depths=[{"depth": depth, **at} for depth in depths]))


def test_history_is_read_once_into_frozen_numbers() -> None:
    """Class means, and a tenant's with its count."""
    numbers = HistoryNumbers.model_validate(
        {"classes": {"other": 0.1}, "tenants": {"acme": {"other": {"mean": 0.3, "count": 12}}}, "shrinkage": 20.0}
    )
    assert numbers.frozen() == History({QueryClass.OTHER: 0.1}, {"acme": {QueryClass.OTHER: Seen(0.3, 12)}}, 20.0)
    assert HistoryNumbers.model_validate({"classes": {}}).frozen() == History({}, {}, 50.0)


@pytest.mark.parametrize("shrinkage", [0.0, -1.0])
def test_history_without_shrinkage_is_refused(shrinkage: float) -> None:
    """One query of a tenant would be all that is known of it."""
    with pytest.raises(ValidationError, match="greater than 0"):
        HistoryNumbers.model_validate({"classes": {}, "shrinkage": shrinkage})
