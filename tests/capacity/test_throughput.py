"""What one replica does in a second."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.capacity.pair_work import PairWork
from cascade.capacity.throughput import merged, parse_inline, throughputs_of
from cascade.errors import ConfigError
from cascade.types import StageName

_WORK = PairWork(sequences=1.5, tokens=200.0, computed=240.0, over_share=0.0)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"tokens_per_s": 24_000.0}, 0.01),
        ({"tokens_per_s": 24_000.0, "efficiency": 0.5}, 0.02),
        ({"pairs_per_s": 300.0}, 0.005),
        ({"pairs_per_s": 300.0, "efficiency": 0.5}, 0.01),
        ({"pairs_per_s": 300.0, "pair_tokens": 80.0}, 0.01),
        ({"lists_per_s": 4.0, "efficiency": 0.5}, 0.5),
    ],
)
def test_a_pair_keeps_a_replica_busy(given: dict[str, Any], seconds: float) -> None:
    """By its computed tokens, or by its sequences where pairs were counted and their length is not stated; a list whole."""
    found = throughputs_of({"small": given})
    assert found.stages[StageName.SMALL].seconds(_WORK) == pytest.approx(seconds)
    assert found.sidecar_requests_per_s is None


def test_a_sidecar_decides_requests() -> None:
    """What it reaches in live traffic counts."""
    found = throughputs_of({"sidecar": {"requests_per_s": 800.0, "efficiency": 0.75, "conditions": "one core"}})
    assert (found.sidecar_requests_per_s, found.stages) == (600.0, {})


def test_throughputs_are_written_in_one_line() -> None:
    """Several keys of a stage, and several stages."""
    assert parse_inline("small=pairs_per_s:400, pair_tokens:120,large=tokens_per_s:6e4") == {
        "small": {"pairs_per_s": 400.0, "pair_tokens": 120.0},
        "large": {"tokens_per_s": 60_000.0},
    }


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", "write STAGE=RATE:NUMBER"),
        ("small", "write STAGE=RATE:NUMBER"),
        ("small=400", "write STAGE=RATE:NUMBER"),
        ("=pairs_per_s:4", "write STAGE=RATE:NUMBER"),
        ("small=pairs_per_s:4,pairs_per_s:5", "write STAGE=RATE:NUMBER"),
        ("small=pairs_per_s:4,small=pairs_per_s:5", "small is given twice"),
        ("small=pairs_per_s:many", "small.pairs_per_s: not a number"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused(written: str, told: str) -> None:
    """The message shows how it is written."""
    with pytest.raises(ConfigError, match=told):
        parse_inline(written)


def test_a_stage_is_told_of_once() -> None:
    """Neither of two figures is taken silently."""
    assert merged([{"small": 1}, {"large": 2}]) == {"small": 1, "large": 2}
    with pytest.raises(ConfigError, match="large is given twice"):
        merged([{"large": 1}, {"small": 1, "large": 2}])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"medium": {"pairs_per_s": 1.0}}, "there is no medium"),
        ({"small": {"pairs_per_s": 0.0}}, "small.pairs_per_s: Input should be greater than 0"),
        ({"small": {"pairs_per_s": -1.0}}, "small.pairs_per_s: Input should be greater than 0"),
        ({"small": {"pairs_per_s": float("nan")}}, "small.pairs_per_s: Input should be a finite number"),
        ({"small": {"tokens_per_s": float("inf")}}, "small.tokens_per_s: Input should be a finite number"),
        ({"small": {"pairs_per_s": "400"}}, "small.pairs_per_s: Input should be a valid number"),
        ({"small": {}}, "exactly one of pairs_per_s, tokens_per_s and lists_per_s"),
        (
            {"small": {"pairs_per_s": 1.0, "tokens_per_s": 1.0}},
            "exactly one of pairs_per_s, tokens_per_s and lists_per_s",
        ),
        ({"small": {"tokens_per_s": 1.0, "pair_tokens": 9.0}}, "pair_tokens goes with pairs_per_s"),
        ({"large": {"lists_per_s": 1.0, "pair_tokens": 9.0}}, "pair_tokens goes with pairs_per_s"),
        ({"large": {"lists_per_s": 0.0}}, "large.lists_per_s: Input should be greater than 0"),
        ({"small": {"pairs_per_s": 1.0, "padding": 1.2}}, "padding and buckets count tokens"),
        ({"small": {"tokens_per_s": 1.0, "padding": 0.9}}, "small.padding: Input should be greater than or equal to 1"),
        ({"small": {"tokens_per_s": 1.0, "padding": 1.1, "buckets": [64]}}, "give one of padding and buckets"),
        ({"small": {"tokens_per_s": 1.0, "buckets": [64, 64]}}, "buckets must ascend"),
        ({"small": {"tokens_per_s": 1.0, "efficiency": 1.5}}, "small.efficiency"),
        ({"small": {"tokens_per_s": 1.0, "speed": 2.0}}, "small.speed: Extra inputs are not permitted"),
        ({"sidecar": {"pairs_per_s": 1.0}}, "sidecar.requests_per_s: Field required"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(given: dict[str, Any], told: str) -> None:
    """The stage, the key and the rule are named."""
    with pytest.raises(ConfigError, match=told):
        throughputs_of(given)


def test_buckets_and_padding_come_with_the_stage() -> None:
    """They say how its server pads."""
    found = throughputs_of(
        {"large": {"tokens_per_s": 1.0, "buckets": [64, 128]}, "small": {"tokens_per_s": 1.0, "padding": 1.25}}
    )
    assert found.stages[StageName.LARGE].buckets == (64, 128)
    assert found.stages[StageName.SMALL].padding == 1.25
