"""Options of ``cascade eval`` that say what time and money are."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from cascade.errors import ConfigError
from cascade.replay.economics import STAGES, Device, Terms

__all__ = ["DeadlineMs", "Devices", "MsPerCall", "MsPerPair", "PricePerHour", "Utilisation", "terms_of"]

MsPerPair = Annotated[
    str, typer.Option("--ms-per-pair", help="small=MS,large=MS in place of the table's own milliseconds of a pair.")
]
MsPerCall = Annotated[
    float,
    typer.Option("--ms-per-call", min=0.0, help="Milliseconds of a call beside its pairs: the way there and back."),
]
DeadlineMs = Annotated[
    float | None, typer.Option("--deadline-ms", help="Deadline of a query; unset: the release's, without one none.")
]
PricePerHour = Annotated[
    str, typer.Option("--price-per-hour", help="small=P,large=P: what an instance of each stage costs an hour.")
]
Utilisation = Annotated[
    float, typer.Option("--utilisation", help="Share of the time paid for in which an instance is busy, up to 1.")
]
Devices = Annotated[
    list[str] | None,
    typer.Option("--device", help="NAME:ms=MS,price=P: what the large stage may run on; repeat it for several."),
]
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_DEVICE_KEYS: Final = ("ms", "price")
_LEAST: Final = 1e-9
_MOST: Final = 1e12
"""Between these lies every figure of time and money that is none by mistake; quotients of others overflow."""


def terms_of(
    *,
    ms_per_pair: str,
    ms_per_call: float,
    deadline_ms: float | None,
    price_per_hour: str,
    utilisation: float,
    devices: Sequence[str],
) -> Terms:
    """Return what the options say. Raises ConfigError naming the option and the rule that it breaks."""
    if not 0.0 < utilisation <= 1.0:
        raise ConfigError("--utilisation: must be above 0, and at most 1")
    if not (math.isfinite(ms_per_call) and ms_per_call >= 0.0):
        raise ConfigError("--ms-per-call: must be a number of at least 0")
    _reckonable("--ms-per-call:", ms_per_call)
    if deadline_ms is not None and not (math.isfinite(deadline_ms) and deadline_ms > 0.0):
        raise ConfigError("--deadline-ms: must be a number above 0")
    _reckonable("--deadline-ms:", deadline_ms or 0.0)
    made = tuple(_device(written) for written in devices)
    if len({device.name for device in made}) < len(made):
        raise ConfigError("--device: two devices have the same name")
    return Terms(
        ms_per_pair=_numbers("--ms-per-pair", ms_per_pair, STAGES, above_zero=STAGES),
        ms_per_call=ms_per_call,
        deadline_ms=deadline_ms,
        price_per_hour=_numbers("--price-per-hour", price_per_hour, STAGES),
        utilisation=utilisation,
        devices=made,
    )


def _device(written: str) -> Device:
    name, colon, rest = written.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise ConfigError("--device: write NAME:ms=MS,price=P")
    told = _numbers("--device", rest, _DEVICE_KEYS, above_zero=("ms",))
    if set(told) != set(_DEVICE_KEYS):
        raise ConfigError(f"--device: {name} needs both ms and price")
    return Device(name, told["ms"], told["price"])


def _numbers(option: str, written: str, keys: Sequence[str], above_zero: Sequence[str] = ()) -> dict[str, float]:
    """Return KEY=NUMBER,... as a mapping; empty where nothing is written."""
    told: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in written.split(","))):
        key, equals, value = part.partition("=")
        if not equals or key not in keys:
            raise ConfigError(f"{option}: write {','.join(f'{key}=NUMBER' for key in keys)}")
        if key in told:
            raise ConfigError(f"{option}: {key} is there twice")
        told[key] = _number(f"{option}: {key}", value, above_zero=key in above_zero)
    return told


def _number(what: str, value: str, *, above_zero: bool) -> float:
    rule = "above 0" if above_zero else "of at least 0"
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0.0 or (above_zero and not number):
        raise ConfigError(f"{what} must be a number {rule}")
    return _reckonable(what, number)


def _reckonable(what: str, number: float) -> float:
    if number and not _LEAST <= number <= _MOST:
        raise ConfigError(f"{what} must lie between {_LEAST:g} and {_MOST:g}")
    return number
