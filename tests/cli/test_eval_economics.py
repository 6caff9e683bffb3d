"""Options that say what time and money are."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.cli.eval_economics import terms_of
from cascade.errors import ConfigError
from cascade.replay.economics import Device, Terms


def _terms(**changes: Any) -> Terms:
    options: dict[str, Any] = {
        "ms_per_pair": "",
        "ms_per_call": 0.0,
        "deadline_ms": None,
        "price_per_hour": "",
        "utilisation": 0.6,
        "devices": [],
    }
    return terms_of(**(options | changes))


def test_nothing_said_is_nothing_told() -> None:
    """Only the utilisation has a default."""
    assert _terms() == Terms(utilisation=0.6)


def test_options_become_terms() -> None:
    """Numbers by stage, and devices by name."""
    made = _terms(
        ms_per_pair="small=0.4, large=12",
        ms_per_call=2.5,
        deadline_ms=90.0,
        price_per_hour="large=1.2,small=0",
        devices=["cpu:ms=38,price=0.1", "gpu:price=1.1,ms=1.2"],
    )
    assert made == Terms(
        ms_per_pair={"small": 0.4, "large": 12.0},
        ms_per_call=2.5,
        deadline_ms=90.0,
        price_per_hour={"large": 1.2, "small": 0.0},
        utilisation=0.6,
        devices=(Device("cpu", 38.0, 0.1), Device("gpu", 1.2, 1.1)),
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ms_per_pair": "medium=1"}, "--ms-per-pair: write small=NUMBER,large=NUMBER"),
        ({"ms_per_pair": "small"}, "--ms-per-pair: write small=NUMBER,large=NUMBER"),
        ({"ms_per_pair": "small=1,small=2"}, "--ms-per-pair: small is there twice"),
        ({"ms_per_pair": "small=0"}, "--ms-per-pair: small must be a number above 0"),
        ({"ms_per_pair": "large=nan"}, "--ms-per-pair: large must be a number above 0"),
        ({"ms_per_pair": "large=fast"}, "--ms-per-pair: large must be a number above 0"),
        ({"price_per_hour": "large=-1"}, "--price-per-hour: large must be a number of at least 0"),
        ({"price_per_hour": "large=inf"}, "--price-per-hour: large must be a number of at least 0"),
        ({"ms_per_call": float("nan")}, "--ms-per-call: must be a number of at least 0"),
        ({"ms_per_call": -1.0}, "--ms-per-call: must be a number of at least 0"),
        ({"deadline_ms": 0.0}, "--deadline-ms: must be a number above 0"),
        ({"utilisation": 0.0}, "--utilisation: must be above 0, and at most 1"),
        ({"utilisation": 1.1}, "--utilisation: must be above 0, and at most 1"),
        ({"ms_per_pair": "large=1e13"}, "--ms-per-pair: large must lie between 1e-09 and 1e+12"),
        ({"ms_per_call": 1e13}, "--ms-per-call: must lie between 1e-09 and 1e+12"),
        ({"deadline_ms": 1e-10}, "--deadline-ms: must lie between 1e-09 and 1e+12"),
        ({"price_per_hour": "large=1e308"}, "--price-per-hour: large must lie between 1e-09 and 1e+12"),
        ({"devices": ["cpu:ms=1e-300,price=1"]}, "--device: ms must lie between 1e-09 and 1e+12"),
        ({"devices": ["cpu"]}, "--device: write NAME:ms=MS,price=P"),
        ({"devices": ["a b:ms=1,price=1"]}, "--device: write NAME:ms=MS,price=P"),
        ({"devices": ["cpu:ms=1"]}, "--device: cpu needs both ms and price"),
        ({"devices": ["cpu:ms=0,price=1"]}, "--device: ms must be a number above 0"),
        ({"devices": ["cpu:ms=1,price=1"] * 2}, "--device: two devices have the same name"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], told: str) -> None:
    """The option, and the rule that it breaks."""
    with pytest.raises(ConfigError) as raised:
        _terms(**changes)
    assert str(raised.value) == told
