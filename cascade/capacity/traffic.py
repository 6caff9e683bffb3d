"""What arrives: how many queries a second, with how many candidates, of how many tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cascade.capacity.distribution import Distribution
from cascade.types import StageName

__all__ = ["Arrivals", "OverLength", "Traffic", "Window"]


class OverLength(StrEnum):
    """What a stage's server does with a pair that is longer than it reads."""

    TRUNCATE = "truncate"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time and the queries a second that came in it."""

    qps: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How many queries a second come: on average, and in the busiest window.

    ``burst_factor`` is how far a burst within the busiest window stands above it. ``windows`` are in order of
    time, none where only mean and peak are known. ``peak_error_qps`` is the standard error of the peak where
    it was estimated from a sample.
    """

    mean_qps: float
    peak_qps: float
    burst_factor: float = 1.0
    windows: tuple[Window, ...] = ()
    peak_error_qps: float | None = None

    @classmethod
    def of_windows(cls, windows: tuple[Window, ...], burst_factor: float) -> Arrivals:
        """Return the mean over the whole time, and the busiest window."""
        seconds = math.fsum(window.seconds for window in windows)
        mean = math.fsum(window.qps * window.seconds for window in windows) / seconds
        return cls(mean, max(window.qps for window in windows), burst_factor, windows)

    @property
    def planned_qps(self) -> float:
        """Return what replicas are planned for: the burst in the busiest window."""
        return self.peak_qps * self.burst_factor

    def grown(self, factor: float) -> Arrivals:
        """Return as many times the arrivals at every time."""
        windows = tuple(Window(window.qps * factor, window.seconds) for window in self.windows)
        error = None if self.peak_error_qps is None else self.peak_error_qps * factor
        return Arrivals(self.mean_qps * factor, self.peak_qps * factor, self.burst_factor, windows, error)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Arrivals and their size.

    ``candidates`` are those of a query; ``pair_tokens`` those of a whole pair before a stage cuts it, of all pairs;
    ``pair_tokens_of`` those of the pairs of a stage, where they were seen apart.
    ``query_tokens`` is their mean, None where nothing tells. ``beside_share`` is the share of queries that a release of mode
    observe scores beside the answer.
    """

    arrivals: Arrivals
    candidates: Distribution
    pair_tokens: Distribution
    query_tokens: float | None
    over_length: Mapping[StageName, OverLength]
    beside_share: float = 1.0
    pair_tokens_of: Mapping[StageName, Distribution] = field(default_factory=dict)
