"""Read a workload: arrivals, candidates and tokens as a person wrote them down."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from cascade.capacity.checked import Written, checked
from cascade.capacity.distribution import Distribution
from cascade.capacity.traffic import Arrivals, OverLength, Traffic, Window
from cascade.types import StageName

__all__ = ["ArrivalsSpec", "CountSpec", "WindowSpec", "WorkloadSpec", "traffic_of"]

_MOST: Final = 1e12
"""No number of a workload is greater: beyond are slips of the pen, and sums that overflow."""
_Positive = Annotated[float, Field(gt=0, le=_MOST)]
_Rate = Annotated[float, Field(ge=0, le=_MOST)]
_Number = Annotated[float, Field(le=_MOST)]
_Point = Annotated[tuple[_Number, _Number], Field(strict=False)]


class WindowSpec(Written):
    """A stretch of time."""

    qps: _Rate = Field(description="Queries a second")
    seconds: _Positive = Field(description="How long it lasts")


class ArrivalsSpec(Written):
    """How many queries come: mean and peak, or windows one after the other."""

    mean_qps: _Rate | None = Field(default=None, description="Queries a second on average; unset: the peak")
    peak_qps: _Positive | None = Field(default=None, description="Queries a second in the busiest window")
    windows: Annotated[tuple[WindowSpec, ...], Field(strict=False, min_length=1)] | None = Field(
        default=None, description="Stretches of time in order, in place of mean and peak"
    )
    burst_factor: float = Field(
        default=1.0, ge=1, le=_MOST, description="How far a burst stands above the busiest window"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.peak_qps is None) == (self.windows is None):
            raise ValueError("give either peak_qps (and mean_qps) or windows")
        if self.windows is not None and self.mean_qps is not None:
            raise ValueError("windows tell the mean; leave mean_qps out")
        if self.mean_qps is not None and self.peak_qps is not None and self.mean_qps > self.peak_qps:
            raise ValueError("mean_qps is above peak_qps")
        if self.windows is not None and not any(window.qps for window in self.windows):
            raise ValueError("no window has a query")
        return self

    def arrivals(self) -> Arrivals:
        """Return them as the plan reads them."""
        if self.windows is not None:
            windows = tuple(Window(window.qps, window.seconds) for window in self.windows)
            return Arrivals.of_windows(windows, self.burst_factor)
        peak = self.peak_qps or 0.0
        return Arrivals(peak if self.mean_qps is None else self.mean_qps, peak, self.burst_factor)


class CountSpec(Written):
    """How a count is distributed: a histogram, or quantiles from 0 to 1. A bare number is always the same."""

    histogram: Annotated[tuple[_Point, ...], Field(strict=False, min_length=1)] | None = Field(
        default=None, description="[value, weight] each; weights need not sum to anything"
    )
    quantiles: Annotated[tuple[_Point, ...], Field(strict=False, min_length=2)] | None = Field(
        default=None, description="[probability, value] each, from 0 to 1; straight lines between"
    )

    @model_validator(mode="after")
    def _makes_a_distribution(self) -> Self:
        if (self.histogram is None) == (self.quantiles is None):
            raise ValueError("give exactly one of histogram and quantiles")
        if self.histogram is not None:
            _check_histogram(self.histogram)
        if self.quantiles is not None:
            _check_quantiles(self.quantiles)
        return self

    def distribution(self) -> Distribution:
        """Return it as the plan reads it."""
        if self.quantiles is not None:
            return Distribution.from_quantiles(self.quantiles)
        return Distribution.weighted(self.histogram or ())


def _check_histogram(points: tuple[tuple[float, float], ...]) -> None:
    values = [value for value, _ in points]
    if len(set(values)) < len(values):
        raise ValueError("a value of the histogram is given twice")
    if any(value < 1 or weight < 0 for value, weight in points):
        raise ValueError("values of the histogram are 1 or more, weights 0 or more")
    if not any(weight for _, weight in points):
        raise ValueError("all weights of the histogram are 0")


def _check_quantiles(points: tuple[tuple[float, float], ...]) -> None:
    if points[0][0] != 0 or points[-1][0] != 1:
        raise ValueError("quantiles begin at probability 0 and end at 1")
    if any(low >= high or least > most for (low, least), (high, most) in pairwise(points)):
        raise ValueError("probabilities must ascend, and values must not fall")
    if points[0][1] < 1:
        raise ValueError("values of quantiles are 1 or more")


def _bare(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"histogram": [[value, 1.0]]}
    return value


_Count = Annotated[CountSpec, BeforeValidator(_bare)]


class WorkloadSpec(Written):
    """A workload file."""

    arrivals: ArrivalsSpec = Field(description="How many queries come")
    candidates: _Count = Field(description="Candidates of a query")
    pair_tokens: _Count = Field(description="Tokens of a whole pair, before a stage cuts it")
    query_tokens: _Count | None = Field(default=None, description="Tokens of a query; needed for over_length: windows")
    over_length: Annotated[
        Mapping[Annotated[StageName, Field(strict=False)], Annotated[OverLength, Field(strict=False)]],
        Field(description="What a stage's server does with a pair beyond max_length: truncate (default) or windows"),
    ] = Field(default={})
    record_sample: float = Field(
        default=1.0, gt=0, le=1, description="Mode observe: share of queries that the small stage scores beside answers"
    )

    @model_validator(mode="after")
    def _stages_only(self) -> Self:
        if StageName.RETRIEVAL in self.over_length:
            raise ValueError("over_length is of the stages small and large")
        return self


def traffic_of(data: Mapping[str, Any], what: str) -> Traffic:
    """Return a workload that was read, checked. Raises ConfigError that begins with ``what``."""
    spec = checked(WorkloadSpec, data, what)
    return Traffic(
        arrivals=spec.arrivals.arrivals(),
        candidates=spec.candidates.distribution(),
        pair_tokens=spec.pair_tokens.distribution(),
        query_tokens=None if spec.query_tokens is None else spec.query_tokens.distribution().mean,
        over_length=dict(spec.over_length),
        beside_share=spec.record_sample,
    )
