"""Make a workload of what a sidecar's metrics counted, and tell what the release sent meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cascade.capacity.demand import Basis, Evidence
from cascade.capacity.scrape import Scrape
from cascade.capacity.traffic import Arrivals, OverLength, Traffic, Window
from cascade.errors import ConfigError
from cascade.types import StageName

__all__ = ["Scraped", "traffic_of_scrapes"]

_ENOUGH_PAIRS: Final = 100
"""Of a stage, to tell how long its pairs are."""


@dataclass(frozen=True, slots=True)
class Scraped:
    """A workload made of scrapes, what was sent at the first level, and what has to be said of both."""

    traffic: Traffic
    evidence: Mapping[str, Evidence]
    notes: tuple[str, ...]


def traffic_of_scrapes(
    scrapes: Sequence[Scrape], *, burst_factor: float, digest: str, first_level: str, stages: Sequence[StageName]
) -> Scraped:
    """Return the workload of scrapes of one process, in order of time: windows lie between them.

    A single one tells of the time since the start. ``digest`` is that of the release that is planned, and tells what it sent
    where it served all the time, alone and at ``first_level``. Each of its ``stages`` is planned with the lengths of its own
    pairs, where there are enough, else with those of the stage that scored the most. Raises ConfigError where the scrapes are
    not of one process in order, or nothing was asked for meanwhile.
    """
    spans = [late.since(early) for early, late in pairwise(scrapes)] or list(scrapes)
    if not all(span.is_possible for span in spans):
        raise ConfigError(
            "metrics: the process began anew between these, or they are not in order of time: give one run's, oldest first"
        )
    whole = scrapes[-1].since(scrapes[0]) if len(scrapes) > 1 else scrapes[0]
    if not whole.requests or not whole.candidates.count:
        raise ConfigError("metrics: no request was answered in this time")
    lengths = {stage: each for stage, each in whole.pair_tokens.items() if each.count}
    if not lengths:
        raise ConfigError("metrics: no stage scored a pair in this time, so nothing tells how long pairs are")
    own = {stage: each for stage, each in lengths.items() if each.count >= _ENOUGH_PAIRS}
    most = max(lengths, key=lambda stage: lengths[stage].count)
    windows = tuple(Window(span.requests / span.uptime_s, span.uptime_s) for span in spans)
    query_tokens = _query_tokens(whole)
    traffic = Traffic(
        arrivals=Arrivals.of_windows(windows, burst_factor),
        candidates=whole.candidates.distribution(),
        pair_tokens=lengths[most].distribution(),
        query_tokens=query_tokens,
        over_length={
            stage: OverLength.WINDOWS for stage, count in whole.windows.items() if count and query_tokens is not None
        },
        beside_share=min(1.0, whole.beside / whole.requests) if whole.beside else 1.0,
        pair_tokens_of={stage: each.distribution() for stage, each in own.items()},
    )
    reasons = tuple(_reasons(scrapes, whole, digest))
    evidence = {} if reasons else {first_level: _evidence(whole)}
    few = tuple(_few(whole, [stage for stage in stages if stage not in own], most))
    return Scraped(traffic, evidence, (*few, *_notes(scrapes, whole), *reasons))


def _few(whole: Scrape, stages: Sequence[StageName], taken: StageName) -> Iterator[str]:
    """Say whose lengths are taken of stages that scored too few pairs."""
    for stage in stages:
        yield (
            f"{stage}: only {whole.pair_tokens[stage].count:.0f} pairs tell how long its pairs are: it is planned with the "
            + ("lengths of these" if stage is taken else f"lengths of the {taken} stage's pairs")
        )


def _query_tokens(whole: Scrape) -> float | None:
    """Return the mean tokens of a query, None where no stage can tell."""
    told = [each for each in whole.query_tokens.values() if each.count]
    return told[0].total / told[0].count if told else None


def _evidence(whole: Scrape) -> Evidence:
    return Evidence(
        Basis.METRICS,
        f"what was sent in {whole.requests:.0f} requests",
        whole.asked[StageName.SMALL] / whole.requests,
        whole.asked[StageName.LARGE] / whole.requests,
    )


def _reasons(scrapes: Sequence[Scrape], whole: Scrape, digest: str) -> Iterator[str]:
    """Say why metrics do not tell what the release sends at its first level."""
    untold = "metrics tell arrivals and sizes, and not what it sends"
    if any(each.stable != digest for each in scrapes):
        yield f"another release than the one that is planned served at some time: {untold}"
    elif whole.activated:
        yield f"a release was activated meanwhile, and another one may have served: {untold}"
    if whole.canary or any(each.tried for each in scrapes):
        yield f"a candidate was tried beside the release: {untold}"
    if whole.above_normal:
        yield f"{whole.above_normal:.0f} answers were of other load levels: {untold}"


def _notes(scrapes: Sequence[Scrape], whole: Scrape) -> Iterator[str]:
    if len(scrapes) == 1:
        yield "one scrape tells the mean since the start and no peak: give several, in order of time, or --burst"
    for name, histogram in (
        ("candidates", whole.candidates),
        *((f"{s} pair tokens", h) for s, h in whole.pair_tokens.items()),
    ):
        if histogram.count and histogram.share_beyond > 0:
            yield f"{histogram.share_beyond:.2%} of {name} are above {histogram.bounds[-1]:g}, and taken at their mean"
    if whole.degraded:
        degraded = min(whole.degraded, whole.requests)  # an answer may have several reasons
        yield f"up to {degraded:.0f} of {whole.requests:.0f} answers were degraded, and may have sent less than planned"
