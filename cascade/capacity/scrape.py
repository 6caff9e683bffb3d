"""What a sidecar's ``/metrics`` prints, as far as a plan needs it. docs/metrics.md tells what each is; all are STABLE."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from cascade.capacity.histogram import Histogram
from cascade.errors import ConfigError
from cascade.types import SCORING, StageName

__all__ = ["Scrape", "read_scrape"]

_Labels = Mapping[str, str]
_MOST: Final = 1e15
"""No process counts so much."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape of one process: counts since its start, ``uptime_s`` ago and at ``began_at`` of the clock on the wall.

    ``requests`` are those that were decided, ``asked`` the pairs that stages were asked for, with what a cache answered in their place.
    ``stable`` is the digest of the stable release, and ``tried`` tells that another one is tried beside it; ``activated``
    counts releases that came to be either, and ``canary`` requests that one being tried decided.
    """

    uptime_s: float
    began_at: float | None
    requests: float
    degraded: float
    beside: float
    above_normal: float
    asked: Mapping[StageName, float]
    windows: Mapping[StageName, float]
    candidates: Histogram
    query_tokens: Mapping[StageName, Histogram]
    pair_tokens: Mapping[StageName, Histogram]
    stable: str | None
    tried: bool
    activated: float
    canary: float

    def since(self, before: Scrape) -> Scrape:
        """Return what was counted between an earlier scrape of the same process and this one, with the releases of this one."""
        return Scrape(
            began_at=self.began_at if self.began_at == before.began_at else None,
            uptime_s=self.uptime_s - before.uptime_s,
            requests=self.requests - before.requests,
            degraded=self.degraded - before.degraded,
            beside=self.beside - before.beside,
            above_normal=self.above_normal - before.above_normal,
            asked={stage: self.asked[stage] - before.asked[stage] for stage in SCORING},
            windows={stage: self.windows[stage] - before.windows[stage] for stage in SCORING},
            candidates=self.candidates.since(before.candidates),
            query_tokens={stage: self.query_tokens[stage].since(before.query_tokens[stage]) for stage in SCORING},
            pair_tokens={stage: self.pair_tokens[stage].since(before.pair_tokens[stage]) for stage in SCORING},
            stable=self.stable,
            tried=self.tried,
            activated=self.activated - before.activated,
            canary=self.canary - before.canary,
        )

    @property
    def is_possible(self) -> bool:
        """Tell whether it is of one process, time went on and no count fell: else two scrapes are not, or in the wrong order."""
        histograms = (self.candidates, *self.query_tokens.values(), *self.pair_tokens.values())
        counts = (self.requests, self.degraded, self.beside, self.above_normal, *self.asked.values())
        goes_on = self.began_at is not None and self.uptime_s > 0 and self.requests / self.uptime_s < _MOST
        return goes_on and min(counts) >= 0 and all(each.is_possible for each in histograms)


@dataclass(slots=True)
class _Samples:
    """The samples of one text, by name."""

    by_name: dict[str, list[tuple[_Labels, float]]] = field(default_factory=lambda: defaultdict(list))

    def sum(self, name: str, holds: Callable[[_Labels], bool] = lambda labels: True) -> float:
        """Return the sum of the samples of a name whose labels hold. Raises ConfigError where the name is not there."""
        if name not in self.by_name:
            raise ConfigError(f"{name} is not in it: is this what /metrics of a sidecar of this version prints?")
        found = math.fsum(value for labels, value in self.by_name[name] if holds(labels))
        if not abs(found) < _MOST:
            raise ConfigError(f"{name} is no number that can be")
        return found

    def histogram(self, name: str, stage: StageName | None = None) -> Histogram:
        """Return a histogram, of one stage where one is named; other labels are added up. Raises ConfigError."""

        def holds(labels: _Labels) -> bool:
            return stage is None or labels.get("stage") == stage

        count, total = self.sum(f"{name}_count", holds), self.sum(f"{name}_sum", holds)
        below: dict[float, float] = defaultdict(float)
        for labels, value in self.by_name[f"{name}_bucket"]:
            if holds(labels):
                below[float(labels["le"])] += value
        below.pop(math.inf, None)
        if not below or not all(map(math.isfinite, below)):
            raise ConfigError(f"{name} has no buckets, or none that can be")
        bounds = tuple(sorted(below))
        return Histogram(bounds, tuple(below[bound] for bound in bounds), count, total)


def read_scrape(text: str) -> Scrape:
    """Read a text. Raises ConfigError that says what is missing, and nothing of what is there."""
    samples = _Samples()
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.by_name[sample.name].append((sample.labels, sample.value))
        return _scrape(samples)
    except (ValueError, LookupError, OverflowError):
        pass  # outside, so that no error is chained that quotes a line
    raise ConfigError("it is not in Prometheus' text format")


def _scrape(samples: _Samples) -> Scrape:
    if len(samples.by_name.get("cascade_uptime_seconds", ())) > 1:
        raise ConfigError("it is of several processes; give the scrapes of one, and --growth for the others")
    active = samples.by_name.get("cascade_release_info", [])
    stable = [labels.get("digest") for labels, _ in active if labels.get("arm") == "stable"]
    return Scrape(
        uptime_s=samples.sum("cascade_uptime_seconds"),
        began_at=samples.sum("cascade_start_time_seconds"),
        requests=samples.sum("cascade_arm_requests_total"),
        degraded=samples.sum("cascade_degraded_total", lambda labels: labels.get("reason") != "load_level"),
        beside=samples.sum("cascade_beside_total", lambda labels: labels.get("outcome") != "dropped"),
        above_normal=samples.sum("cascade_level_answers_total", lambda labels: labels.get("level") != "0"),
        asked={stage: _asked(samples, stage) for stage in SCORING},
        windows={stage: samples.sum("cascade_windows_total", _of(stage)) for stage in SCORING},
        candidates=samples.histogram("cascade_candidates"),
        query_tokens={stage: samples.histogram("cascade_query_tokens", stage) for stage in SCORING},
        pair_tokens={stage: samples.histogram("cascade_pair_tokens", stage) for stage in SCORING},
        stable=stable[0] if len(stable) == 1 else None,
        tried=samples.sum("cascade_arm_share", lambda labels: labels.get("arm") == "canary") > 0,
        activated=samples.sum("cascade_activations_total", lambda labels: labels.get("outcome") == "swapped"),
        canary=samples.sum("cascade_arm_requests_total", lambda labels: labels.get("arm") == "canary"),
    )


def _asked(samples: _Samples, stage: StageName) -> float:
    """Return the pairs that a stage was asked for by the traffic: scored, or found in the cache or with another round."""

    def found(labels: _Labels) -> bool:
        return _of(stage)(labels) and labels.get("arm") != "shadow" and labels.get("outcome") in {"hit", "shared"}

    return samples.sum("cascade_pairs_total", _of(stage)) + samples.sum("cascade_cache_lookups_total", found)


def _of(stage: StageName) -> Callable[[_Labels], bool]:
    return lambda labels: labels.get("stage") == stage
