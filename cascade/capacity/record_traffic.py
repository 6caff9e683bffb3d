"""Make a workload of decision records, and tell what the release they are of sent."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cascade.capacity.demand import Basis, Evidence
from cascade.capacity.distribution import Distribution
from cascade.capacity.traffic import Arrivals, Traffic, Window
from cascade.decision import Action, DegradedReason
from cascade.errors import ConfigError
from cascade.replay.record_lines import DecisionLine, HeadLine, Lines
from cascade.types import StageName

__all__ = ["FEW_RECORDS", "Counts", "Digests", "Recorded", "traffic_of_records"]

FEW_RECORDS: Final = 100
"""Below so many records, a mean number of pairs is told to be uncertain."""
_MILLISECOND: Final = 0.001
"""To this records tell the time."""


@dataclass(frozen=True, slots=True)
class Digests:
    """Which records tell what the release sends.

    ``policy`` is its policy digest; ``observing`` that of the same release in mode observe, whose records tell
    what this one would have sent. ``first_level`` is the level of records that name none.
    """

    policy: str
    observing: str
    first_level: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the lines read.

    ``in_windows`` of the records came in whole windows; ``empty_windows`` had none. ``of_release`` tell what the
    release sends, of which ``degraded`` were degraded. ``again`` were read before, ``shadows`` are decisions that no
    request asked for; ``torn``, ``strange`` and ``headless`` are lines that say nothing.
    """

    records: int
    in_windows: int
    empty_windows: int
    of_release: int
    degraded: int
    again: int
    shadows: int
    torn: int
    strange: int
    headless: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A workload made of records, what was sent by level, and what became of the lines."""

    traffic: Traffic
    evidence: Mapping[str, Evidence]
    counts: Counts


@dataclass(slots=True)
class _Sent:
    """What was sent at one level. Every sum is weighted by how many requests a record stands for."""

    records: int = 0
    degraded: int = 0
    weight: float = 0.0
    small: float = 0.0
    large: float = 0.0
    lists: float = 0.0
    small_tokens: defaultdict[float, float] = field(default_factory=lambda: defaultdict(float))
    large_tokens: defaultdict[float, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, line: DecisionLine, weight: float, small: int, large: Sequence[int]) -> None:
        self.records += 1
        self.degraded += any(reason != DegradedReason.LOAD_LEVEL for reason in line.degraded)
        self.weight += weight
        self.small += weight * small
        self.large += weight * len(large)
        self.lists += weight * (len(large) > 1)
        for count in line.tokens[:small]:
            self.small_tokens[count] += weight
        for place in large:
            self.large_tokens[line.tokens[place]] += weight

    def evidence(self, told: str) -> Evidence:
        return Evidence(
            Basis.RECORDS,
            f"{told} in {self.records} records",
            self.small / self.weight,
            self.large / self.weight,
            Distribution.weighted(self.small_tokens.items()) if self.small_tokens else None,
            Distribution.weighted(self.large_tokens.items()) if self.large_tokens else None,
            self.lists / self.weight,
        )


@dataclass(frozen=True, slots=True)
class _Moment:
    """When a request came, and how many it stands for."""

    at: float
    weight: float
    query: str


@dataclass(slots=True)
class _Gathered:
    """What is added up while records are gone through. ``was`` and ``would`` are by level."""

    moments: list[_Moment] = field(default_factory=list)
    candidates: defaultdict[float, float] = field(default_factory=lambda: defaultdict(float))
    tokens: defaultdict[float, float] = field(default_factory=lambda: defaultdict(float))
    query_tokens: float = 0.0
    was: defaultdict[str, _Sent] = field(default_factory=lambda: defaultdict(_Sent))
    would: defaultdict[str, _Sent] = field(default_factory=lambda: defaultdict(_Sent))

    def add(self, head: HeadLine, line: DecisionLine, digests: Digests) -> None:
        weight = 1.0 / line.recorded
        self.moments.append(_Moment(line.time.timestamp(), weight, line.query_hash))
        self.candidates[len(line.tokens)] += weight
        for count in line.tokens:
            self.tokens[count] += weight
        self.query_tokens += weight * line.q_tokens
        level, would = line.load_level or digests.first_level, line.would
        if head.mode == "cascade" and head.policy_digest == digests.policy:
            asked = any(one.stage is StageName.SMALL for one in line.rounds)
            self.was[level].add(line, weight, line.depth if asked else 0, line.escalated)
        elif head.mode == "observe" and head.policy_digest == digests.observing and would is not None:
            small = 0 if would.action is Action.DIRECT else would.depth
            self.would[level].add(line, weight, small, would.escalated)

    def evidence(self) -> dict[str, Evidence]:
        """Return what is known by level; what was sent stands before what would have been."""
        told = {level: each.evidence("what would have been sent") for level, each in self.would.items()}
        return told | {level: each.evidence("what was sent") for level, each in self.was.items()}


def traffic_of_records(paths: Sequence[Path], *, window_s: float, burst_factor: float, digests: Digests) -> Recorded:
    """Return the workload of some files of records: each stands for 1 / sample requests, whatever arm decided it.

    Windows of ``window_s`` seconds begin with the first record; what came behind the last whole one counts for sizes,
    not for rates. Raises ConfigError where there is no record, or less than one window of them.
    """
    lines = Lines(paths)
    found = _Gathered()
    seen: set[str] = set()
    again = 0
    for line in lines:
        if line.decision_id in seen:
            again += 1
        else:
            seen.add(line.decision_id)
            found.add(lines.heads[line.head], line, digests)
    if not found.moments:
        raise ConfigError(_no_record(lines))
    arrivals, in_windows = _arrivals(found.moments, window_s, burst_factor)
    stood_for = math.fsum(moment.weight for moment in found.moments)
    telling = [*found.was.values(), *found.would.values()]
    return Recorded(
        traffic=Traffic(
            arrivals=arrivals,
            candidates=Distribution.weighted(found.candidates.items()),
            pair_tokens=Distribution.weighted(found.tokens.items()),
            query_tokens=found.query_tokens / stood_for,
            over_length={},
            beside_share=min(1.0, len(found.moments) / stood_for),
        ),
        evidence=found.evidence(),
        counts=Counts(
            records=len(found.moments),
            in_windows=in_windows,
            empty_windows=sum(not window.qps for window in arrivals.windows),
            of_release=sum(each.records for each in telling),
            degraded=sum(each.degraded for each in telling),
            again=again,
            shadows=lines.shadows,
            torn=lines.unread.torn,
            strange=lines.unread.strange,
            headless=lines.unread.headless,
        ),
    )


def _no_record(lines: Lines) -> str:
    unread = lines.unread
    told = (
        (unread.torn, "torn"),
        (unread.strange, "no record of this version"),
        (unread.headless, "without their head"),
    )
    rest = ", ".join(f"{count} {what}" for count, what in told if count)
    return f"records: there is no decided request in them{f'; lines: {rest}' if rest else ''}"


def _arrivals(moments: Sequence[_Moment], window_s: float, burst_factor: float) -> tuple[Arrivals, int]:
    """Return the arrivals in whole windows, and how many records came in them."""
    began = min(moment.at for moment in moments)
    spanned = max(moment.at for moment in moments) - began
    count = int((spanned + _MILLISECOND / 2) // window_s)
    if count < 1:
        raise ConfigError(
            f"records: they span {spanned:.3g} s, and a rate needs a whole window of {window_s:g} s; "
            "name more of them, or a shorter --window-seconds"
        )
    within = [(place, moment) for moment in moments if (place := int((moment.at - began) // window_s)) < count]
    totals = [0.0] * count
    for place, moment in within:
        totals[place] += moment.weight
    peak = max(range(count), key=totals.__getitem__)
    error = _standard_error([moment for place, moment in within if place == peak]) / window_s
    windows = tuple(Window(total / window_s, window_s) for total in totals)
    told = Arrivals.of_windows(windows, burst_factor)
    return Arrivals(told.mean_qps, told.peak_qps, burst_factor, windows, error or None), len(within)


def _standard_error(moments: Sequence[_Moment]) -> float:
    """Return the standard error of how many requests the records of a window stand for.

    A query is always recorded or never, with probability p = 1 / weight; so the variance is the sum over its
    queries of (times seen)^2 (1 - p) / p^2 (Horvitz and Thompson 1952).
    """
    times = Counter(moment.query for moment in moments)
    weights = {moment.query: moment.weight for moment in moments}
    return math.sqrt(math.fsum(seen**2 * weights[query] * (weights[query] - 1.0) for query, seen in times.items()))
