"""The one table of signals: name, unit, range, formula and source of each, and how it is computed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from typing import Final

from cascade.errors import ConfigError
from cascade.signals import agreement, channel, order
from cascade.signals.channel import MISSING
from cascade.signals.history import difficulty
from cascade.signals.view import SMALL, View
from cascade.tokens import estimate_tokens

__all__ = ["CLASS", "SCRIPT", "SIGNALS", "Family", "Signal", "resolve", "signal_names"]

CLASS: Final = "query.class"
SCRIPT: Final = "query.script"
"""Names by which the query's class and script are asked for; they are no numbers and stand beside the values."""

_RATIO: Final = (0.0, 1000.0)
_SHARE: Final = (0.0, 1.0)
_COUNT: Final = (0.0, math.inf)
_METHODS: Final = "Meng et al., SIGIR 2024 and its features"


class Family(StrEnum):
    """What a signal is a property of; it gives the form of its name."""

    CHANNEL = "channel"
    PAIR = "pair"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal: what it is called, what it says, and how it is measured.

    ``name`` has ``<channel>`` or ``<a>.<b>`` where a channel or a pair of them, in name order, stands.
    Values lie within ``least`` and ``most`` or are NaN: missing. ``moves_with`` is what changes the value
    without changing an order or a gap: ``shift`` (a constant added to a channel's scores), ``scale`` (all
    multiplied by one positive number), both, or nothing.
    """

    name: str
    family: Family
    unit: str
    least: float
    most: float
    formula: str
    source: str
    moves_with: frozenset[str]
    measure: Callable[..., float]


def _channel(
    suffix: str,
    unit: str,
    bounds: tuple[float, float],
    formula: str,
    source: str,
    measure: Callable[[channel.Curve], float],
    *moves_with: str,
) -> Signal:
    def of_view(view: View, name: str) -> float:
        return measure(view.curve(name))

    return Signal(f"<channel>.{suffix}", Family.CHANNEL, unit, *bounds, formula, source, frozenset(moves_with), of_view)


def _pair(
    prefix: str,
    unit: str,
    bounds: tuple[float, float],
    formula: str,
    source: str,
    measure: Callable[[channel.Curve, channel.Curve], float],
) -> Signal:
    def of_view(view: View, one: str, other: str) -> float:
        return measure(view.curve(one), view.curve(other))

    return Signal(f"{prefix}.<a>.<b>", Family.PAIR, unit, *bounds, formula, source, frozenset(), of_view)


def _whole(
    name: str,
    unit: str,
    bounds: tuple[float, float],
    formula: str,
    source: str,
    measure: Callable[[View], float],
) -> Signal:
    return Signal(name, Family.WHOLE, unit, *bounds, formula, source, frozenset(), measure)


def _wig(view: View, name: str) -> float:
    return MISSING if view.query is None else channel.wig(view.curve(name), estimate_tokens(view.query))


def _overlap(k: int) -> Signal:
    def measure(one: channel.Curve, other: channel.Curve) -> float:
        return agreement.overlap(one, other, k)

    formula = f"common to both top {k} / {k}; the shorter list bounds k"
    return _pair(f"overlap_{k}", "share", _SHARE, formula, _METHODS, measure)


def _flips(k: int) -> Signal:
    def measure(view: View) -> float:
        return order.flips(view.curve(SMALL), k, view.inputs.noise_sd)

    formula = f"sum over ranks i <= {k} of Phi(-(s_i - s_i+1) / (noise sd sqrt 2))"
    return _whole(f"small.flips_{k}", "swaps", (0.0, k / 2), formula, "normal noise, closed form", measure)


def _separation(view: View) -> float:
    found = [value for value in map(channel.separation, view.curves()) if not math.isnan(value)]
    return max(found, default=MISSING)


def _tokens(view: View) -> float:
    return MISSING if view.query is None else float(estimate_tokens(view.query))


def _identifiers(view: View) -> float:
    return MISSING if view.identifiers is None else float(view.identifiers)


def _difficulty(view: View) -> float:
    if view.query_class is None:
        return MISSING
    return difficulty(view.inputs.history, view.query_class, view.inputs.tenant)


SIGNALS: Final[tuple[Signal, ...]] = (
    _channel("gap", "share", _RATIO, "(f1 - f2) / |f1|", _METHODS, channel.gap, "shift"),
    _channel("gap_tail", "tail sd", _RATIO, "(f1 - f2) / 1.4826 MAD(f26..fn)", _METHODS, channel.gap_tail),
    _channel(
        "separation",
        "tail sd",
        _RATIO,
        "(mean(f1..f3) - median(f26..fn)) / 1.4826 MAD(f26..fn)",
        "this project",
        channel.separation,
    ),
    _channel(
        "entropy", "share of ln n", _SHARE, "H(softmax(f / 1.4826 MAD(f26..fn))) / ln n", _METHODS, channel.entropy
    ),
    _channel(
        "curvature",
        "tail sd",
        (-1000.0, 1000.0),
        "((f1 - f10) - (f10 - f20)) / 1.4826 MAD(f26..fn)",
        _METHODS,
        channel.curvature,
    ),
    _channel("nqc", "ratio", _RATIO, "sd(f1..f100) / |mean f|", "Shtok et al., TOIS 2012", channel.nqc, "shift"),
    Signal(
        "<channel>.wig",
        Family.CHANNEL,
        "score",
        *_COUNT,
        "(mean(f1..f5) - mean f) / sqrt(query tokens)",
        "Zhou and Croft, SIGIR 2007",
        frozenset({"scale"}),
        _wig,
    ),
    _channel(
        "smv",
        "ratio",
        _RATIO,
        "sum over the first 100 with f > 0 of f |ln(f / mean f)| / (100 mean f)",
        "Tao and Wu, CIKM 2014",
        channel.smv,
        "shift",
    ),
    *(
        _channel(
            f"shape_{shape}",
            "RMS distance",
            _SHARE,
            f"distance of (f - fn) / (f1 - fn) to {curve}, x = rank / (n - 1) from 0",
            "this project",
            measure,
        )
        for shape, curve, measure in (
            ("exponential", "(exp(-5x) - exp(-5)) / (1 - exp(-5))", channel.shape_exponential),
            ("linear", "1 - x", channel.shape_linear),
            ("uniform", "1", channel.shape_uniform),
        )
    ),
    *map(_overlap, (5, 10, 20)),
    _pair(
        "rbo",
        "share",
        _SHARE,
        "X_k / k p^k + (1 - p) / p sum_d X_d / d p^d, p = 0.9, k the shorter list",
        "Webber, Moffat and Zobel, TOIS 2010, extrapolated",
        agreement.rbo,
    ),
    _pair("kendall", "tau-b", (-1.0, 1.0), "tau-b over the union of both top 20", "Kendall 1945", agreement.kendall),
    _whole(
        "channels.diversity",
        "share of ln c",
        _SHARE,
        "H(which of c channels ranks a candidate best, first stage's top 20) / ln c",
        _METHODS,
        lambda view: agreement.source_diversity(view.curves()),
    ),
    _whole("channels.separation", "tail sd", _RATIO, "greatest <channel>.separation", "this project", _separation),
    _whole(
        "small.rbo_first",
        "share",
        _SHARE,
        "rbo of the small order with the first stage's, of the candidates scored",
        "Webber, Moffat and Zobel, TOIS 2010, extrapolated",
        lambda view: order.rbo_first(view.curve(SMALL)),
    ),
    _whole(
        "small.kendall_first",
        "tau-b",
        (-1.0, 1.0),
        "kendall of the small order with the first stage's, of the candidates scored",
        "Kendall 1945",
        lambda view: order.kendall_first(view.curve(SMALL)),
    ),
    *map(_flips, (5, 10)),
    _whole(
        "head.duplicate",
        "Jaccard",
        _SHARE,
        "greatest between two of the first three documents: 4 characters in a row, of the first 256",
        "Broder 1997",
        lambda view: order.duplicate_head(view.inputs.head),
    ),
    _whole("query.tokens", "tokens", _COUNT, "estimate of cascade.tokens", "this project", _tokens),
    _whole("query.identifiers", "count", _COUNT, "exact identifiers in the query", "this project", _identifiers),
    _whole(
        "history.difficulty",
        "of the release",
        (-math.inf, math.inf),
        "w tenant's mean of the class + (1 - w) class mean, w = n / (n + n0)",
        "James and Stein 1961, frozen in the release",
        _difficulty,
    ),
)
"""Every signal there is. f1 >= f2 ... are a channel's finite scores; NaN marks a missing value."""

_CHANNEL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RESERVED: Final = frozenset({SMALL, "large", "query", "head", "history", "channels"})
_OF_CHANNEL: Final = {signal.name.rpartition(".")[2]: signal for signal in SIGNALS if signal.family is Family.CHANNEL}
_OF_PAIR: Final = {signal.name.partition(".")[0]: signal for signal in SIGNALS if signal.family is Family.PAIR}
_WHOLE: Final = {signal.name: signal for signal in SIGNALS if signal.family is Family.WHOLE}

Measure = Callable[[View], float]


def signal_names() -> tuple[str, ...]:
    """Return the name of every signal, in the order of the table."""
    return tuple(signal.name for signal in SIGNALS)


@lru_cache(maxsize=4096)
def resolve(name: str) -> Measure:
    """Return the function that measures the signal of a name.

    ``small`` takes the place of a channel for signals that a constant added to all scores leaves alone.
    Raises ConfigError, with the names there are and never the one given, for a name of no signal.
    """
    parts = name.split(".")
    if name in _WHOLE:
        return _WHOLE[name].measure
    match parts:
        case [scores, suffix] if suffix in _OF_CHANNEL and _is_channel(scores, _OF_CHANNEL[suffix]):
            return partial(_measured, _OF_CHANNEL[suffix].measure, (scores,))
        case [prefix, one, other] if prefix in _OF_PAIR and all(_CHANNEL_NAME.fullmatch(c) for c in (one, other)):
            if one < other and not {one, other} & _RESERVED:
                return partial(_measured, _OF_PAIR[prefix].measure, (one, other))
    raise ConfigError(
        f"no such signal; the signals are {', '.join(signal_names())}, with a pair of channels in name order, "
        f"and {SMALL} for a channel where the signal does not move with the scores' zero or unit"
    )


def _is_channel(scores: str, signal: Signal) -> bool:
    if scores == SMALL:
        return not signal.moves_with
    return scores not in _RESERVED and _CHANNEL_NAME.fullmatch(scores) is not None


def _measured(measure: Callable[..., float], channels: tuple[str, ...], view: View) -> float:
    return measure(view, *channels)
