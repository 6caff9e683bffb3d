"""What a dashboard is made of, and the queries that panels share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["ONE_PROCESS", "Dashboard", "Panel", "Variable", "gauge", "mean", "quantiles", "rate", "share"]

_I: Final = "$__rate_interval"
_ONE: Final = 'instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel. ``limits`` are one or two values that are too much, ``least`` is where the axis begins at the latest."""

    title: str
    unit: str
    what: str
    series: Mapping[str, str]
    limits: Sequence[float] = ()
    least: float = 0


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice among the values that a query finds, all of them at first."""

    name: str
    label: str
    query: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard: rows of panels by their title."""

    name: str
    title: str
    what: str
    rows: Mapping[str, Sequence[Panel]]
    variables: Sequence[Variable]


def _within(*matchers: str) -> str:
    return "{" + ", ".join((_ONE, *matchers)) + "}"


def rate(name: str, by: str = "", *matchers: str) -> str:
    """Return the rate of a counter over the processes chosen, by labels."""
    return f"sum{f' by ({by})' if by else ''} (rate({name}{_within(*matchers)}[{_I}]))"


def gauge(name: str, by: str = "", how: str = "sum", *matchers: str) -> str:
    """Return a gauge over the processes chosen, by labels."""
    return f"{how}{f' by ({by})' if by else ''} ({name}{_within(*matchers)})"


def share(part: str, of: str, by: str = "", *, whole: str = "") -> str:
    """Return a part of a whole; ``by`` are labels of the part, ``whole`` those that the whole has too."""
    if by == whole:
        return f"{part} / {of}"
    return f"{part} / on ({whole}) group_left () {of}"


def quantiles(
    name: str, by: str = "", quantiles: Sequence[float] = (0.5, 0.95, 0.99), what: str = ""
) -> dict[str, str]:
    """Return quantiles of a histogram, by labels, named by the quantile, behind ``what``, and the labels' values."""
    labels = f"{by}, le" if by else "le"
    named = "".join(f" {{{{{label}}}}}" for label in by.split(", ") if label)
    return {
        f"{what}p{quantile * 100:g}{named}": f"histogram_quantile({quantile:g}, {rate(f'{name}_bucket', labels)})"
        for quantile in quantiles
    }


def mean(name: str, by: str = "") -> str:
    """Return the mean of a histogram, by labels."""
    return f"{rate(f'{name}_sum', by)} / {rate(f'{name}_count', by)}"


ONE_PROCESS: Final = (
    Variable("release", "Release", 'label_values(cascade_release_info{arm="stable"}, release)'),
    Variable("instance", "Instance", 'label_values(cascade_release_info{release=~"$release"}, instance)'),
)
"""The processes that a release is stable at, and those chosen of them."""
