"""A workload made of what a sidecar's metrics counted."""

from __future__ import annotations

import re

import pytest

from cascade.capacity.demand import Basis
from cascade.capacity.headroom import Headroom
from cascade.capacity.planning import PlannedLevel, make_plan
from cascade.capacity.scrape import Scrape, read_scrape
from cascade.capacity.scraped_traffic import Scraped, traffic_of_scrapes
from cascade.capacity.traffic import OverLength, Window
from cascade.decision import DegradedReason, Level
from cascade.errors import ConfigError
from cascade.telemetry.work import Counted, ReadPairs
from cascade.types import Arm, StageCost, StageName
from tests.capacity.made import made_release, made_throughputs
from tests.capacity.scraped import Counting
from tests.telemetry.decisions import decision, round_of


def _read(*printed: str, digest: str = "sha256:r1") -> Scraped:
    return traffic_of_scrapes(
        [read_scrape(text) for text in printed],
        burst_factor=1.5,
        digest=digest,
        first_level="normal",
        stages=(StageName.SMALL, StageName.LARGE),
    )


def test_one_scrape_tells_the_mean_since_the_start() -> None:
    """Rates, sizes, and what the release sent; that there is no peak is said."""
    found = _read(Counting().serve(20, 10.0).printed())
    traffic = found.traffic
    assert (traffic.arrivals.mean_qps, traffic.arrivals.peak_qps, traffic.arrivals.planned_qps) == (2.0, 2.0, 3.0)
    assert traffic.candidates.values == (50.0,)
    assert traffic.pair_tokens.mean == pytest.approx(100)
    assert (traffic.query_tokens, traffic.beside_share, dict(traffic.over_length)) == (8.0, 1.0, {})
    evidence = found.evidence["normal"]
    assert (evidence.basis, evidence.small, evidence.large) == (Basis.METRICS, 50.0, 20.0)
    assert evidence.detail == "what was sent in 20 requests"
    assert found.notes == (
        "one scrape tells the mean since the start and no peak: give several, in order of time, or --burst",
    )


def _read_by(small: list[float], large: list[float]) -> Scraped:
    """Return what is made of a request whose stages read pairs of these tokens."""
    served = Counting()
    served.now = 1.0
    served.metrics.observe(decision())
    for stage, tokens in ((StageName.SMALL, small), (StageName.LARGE, large)):
        served.metrics.work.events(stage).read(ReadPairs(Counted.MEASURED, None, tokens))
    return _read(served.printed())


def _tokens_of(found: Scraped) -> dict[StageName, float]:
    """Return the mean tokens of a pair that a plan reckons with, by stage."""
    throughputs = made_throughputs(small={"tokens_per_s": 1e6}, large={"tokens_per_s": 1e6})
    evidence = tuple(found.evidence.values())
    level = PlannedLevel("normal", made_release(), evidence)
    plan = make_plan([level], found.traffic, throughputs, Headroom())
    return {each.stage: each.work.tokens for each in plan.levels[0].stages}


def test_each_stage_is_planned_with_the_lengths_of_its_own_pairs() -> None:
    """A stage of document vectors reads documents alone, and few of them, since it keeps what it has read."""
    found = _read_by([64.0] * 120, [256.0] * 400)
    assert _tokens_of(found) == {StageName.SMALL: pytest.approx(64), StageName.LARGE: pytest.approx(256)}
    assert not [note for note in found.notes if "pairs tell how long" in note]


@pytest.mark.parametrize(
    ("small", "large", "planned", "noted"),
    [
        (99, 400, (256, 256), ["small: only 99 pairs tell how long its pairs are: it is planned with the lengths of the large stage's pairs"]),
        (400, 0, (64, 64), ["large: only 0 pairs tell how long its pairs are: it is planned with the lengths of the small stage's pairs"]),
        (3, 5, (256, 256), [
            "small: only 3 pairs tell how long its pairs are: it is planned with the lengths of the large stage's pairs",
            "large: only 5 pairs tell how long its pairs are: it is planned with the lengths of these",
        ]),
    ],
)  # fmt: skip
def test_a_stage_that_scored_too_few_pairs_is_planned_with_the_lengths_of_the_other(
    small: int, large: int, planned: tuple[int, int], noted: list[str]
) -> None:
    """Whose lengths were taken is said."""
    found = _read_by([64.0] * small, [256.0] * large)
    assert tuple(_tokens_of(found).values()) == pytest.approx(planned)
    assert list(found.notes[: len(noted)]) == noted


def test_several_scrapes_are_windows_between_them() -> None:
    """What came before the first is in none; the busiest is the peak, and sizes are of the whole time between."""
    served = Counting().serve(7, 1.0, candidates=150)
    printed = [served.printed(), served.serve(10, 10.0).printed(), served.serve(60, 20.0).printed()]
    found = _read(*printed)
    assert found.traffic.arrivals.windows == (Window(1.0, 10.0), Window(3.0, 20.0))
    assert found.traffic.arrivals.peak_qps == 3.0
    assert found.traffic.candidates.values == (50.0,)
    assert found.evidence["normal"].detail == "what was sent in 70 requests"
    assert found.notes == ()


def test_pairs_from_the_cache_are_what_the_policy_asks_for() -> None:
    """How much is found may be otherwise tomorrow; what a shadow found is none of the traffic."""
    served = Counting()
    served.metrics.cache.looked(StageName.SMALL, Arm.STABLE, hits=30, shared=4, misses=66, faults=0)
    served.metrics.cache.looked(StageName.SMALL, Arm.SHADOW, hits=500, shared=0, misses=0, faults=0)
    kept = StageCost(1, 100, tokens_estimated=True, truncated=0, cached=17)
    served.serve(2, 1.0, rounds=(round_of(sent=50, scored=50, blank=0, refused=0, cost=kept),))
    assert _read(served.printed()).evidence["normal"].small == 50.0


def test_windows_of_documents_and_the_large_stage_alone_are_told() -> None:
    """A stage that read documents in windows is planned with them; without small pairs those of the large stage count."""
    served = Counting()
    cost = StageCost(1, 100, tokens_estimated=False, truncated=0, windows=3)
    served.serve(1, 1.0, rounds=(round_of(StageName.LARGE, cost=cost),))
    assert _read(served.printed()).traffic.over_length == {StageName.LARGE: OverLength.WINDOWS}
    alone = Counting()
    alone.metrics.work.events(StageName.LARGE).read(ReadPairs(Counted.MEASURED, None, [48.0]))
    alone.now = 1.0
    alone.metrics.observe(decision())
    traffic = _read(alone.printed()).traffic
    assert (traffic.pair_tokens.values, traffic.query_tokens) == ((48.0,), None)


@pytest.mark.parametrize(
    ("changes", "digest", "why"),
    [
        ({}, "sha256:r2", "another release than the one that is planned served at some time"),
        ({"level": Level("low", 1)}, "sha256:r1", "5 answers were of other load levels"),
    ],
)
def test_what_another_release_or_level_sent_is_no_evidence(changes: dict[str, Level], digest: str, why: str) -> None:
    """Arrivals and sizes count all the same."""
    found = _read(Counting().serve(5, 1.0, **changes).printed(), digest=digest)
    assert found.evidence == {}
    assert found.notes[-1] == f"{why}: metrics tell arrivals and sizes, and not what it sends"
    assert found.traffic.candidates.values == (50.0,)


def test_what_was_sent_beside_a_candidate_is_no_evidence() -> None:
    """Its pairs are among those of the stages."""
    served = Counting().serve(5, 1.0)
    served.metrics.arms.serve([("r1", "sha256:r1", Arm.STABLE), ("r2", "sha256:r2", Arm.CANARY)], 0.1)
    found = _read(served.printed())
    assert found.evidence == {}
    assert "a candidate was tried beside the release" in found.notes[-1]


def test_degraded_answers_and_lengths_beyond_all_buckets_are_told() -> None:
    """Those of a load level are not degraded for want of a server."""
    served = Counting().serve(3, 1.0, degraded=(DegradedReason.STAGE_TIMEOUT,))
    served.serve(1, 1.0, degraded=(DegradedReason.LOAD_LEVEL,))
    served.metrics.work.events(StageName.SMALL).read(ReadPairs(Counted.ESTIMATED, None, [50_000.0] * 50))
    notes = _read(served.printed()).notes
    assert "up to 3 of 4 answers were degraded, and may have sent less than planned" in notes
    assert "20.00% of small pair tokens are above 32768, and taken at their mean" in notes


def test_an_answer_that_is_degraded_for_two_reasons_is_one() -> None:
    """No more answers were degraded than there were."""
    both = (DegradedReason.STAGE_TIMEOUT, DegradedReason.BREAKER_OPEN)
    notes = _read(Counting().serve(5, 1.0, degraded=both).printed()).notes
    assert notes[-1] == "up to 5 of 5 answers were degraded, and may have sent less than planned"


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        ([("r2", "sha256:r2", Arm.STABLE)], "another release than the one that is planned served at some time"),
        (
            [("r1", "sha256:r1", Arm.STABLE), ("r2", "sha256:r2", Arm.CANARY)],
            "a candidate was tried beside the release",
        ),
    ],
)
def test_what_served_or_was_tried_between_the_first_and_the_last_scrape_counts_too(
    meanwhile: list[tuple[str, str, Arm]], why: str
) -> None:
    """The release that is planned has all again at the end."""
    served = Counting().serve(5, 1.0)
    printed = [served.printed()]
    served.metrics.arms.serve(meanwhile, 0.5)
    printed.append(served.serve(5, 1.0).printed())
    served.metrics.arms.serve([("r1", "sha256:r1", Arm.STABLE)], 0.0)
    printed.append(served.serve(5, 1.0).printed())
    found = _read(*printed)
    assert found.evidence == {}
    assert [note for note in found.notes if note.startswith(why)]


def test_a_release_that_came_and_went_between_two_scrapes_is_told() -> None:
    """At both the planned one served alone: what was activated is counted, and so are requests of one that is tried."""
    served = Counting().serve(5, 1.0)
    before = served.printed()
    served.metrics.arms.activated("swapped")
    after = served.serve(5, 1.0).printed()
    found = _read(before, after)
    assert found.evidence == {}
    assert found.notes[-1].startswith("a release was activated meanwhile")
    served.serve(2, 1.0, arm=Arm.CANARY)
    found = _read(after, served.printed())
    assert found.evidence == {}
    assert found.notes[-1].startswith("a candidate was tried beside the release")
    assert _read(served.printed(), served.serve(5, 1.0).printed()).evidence.keys() == {"normal"}


def test_a_process_that_began_anew_and_ran_for_longer_than_the_one_before_is_refused() -> None:
    """No time and no count fell; but it began at another time."""
    short = Counting().serve(5, 1.0).printed()
    long = Counting(began_at=1.5e9 + 60).serve(50, 9.0).printed()
    with pytest.raises(ConfigError, match="the process began anew between these"):
        _read(short, long)


def test_scrapes_of_two_processes_or_in_the_wrong_order_are_refused() -> None:
    """A count that fell, or a time that did."""
    early = Counting().serve(5, 1.0)
    first = early.printed()
    second = early.serve(5, 1.0).printed()
    other = Counting().serve(1, 9.0).printed()
    for printed in ((second, first), (first, first), (second, other)):
        with pytest.raises(ConfigError, match="the process began anew between these, or they are not in order of time"):
            _read(*printed)


def test_no_traffic_is_refused() -> None:
    """Nothing can be planned for."""
    idle = Counting()
    idle.now = 60.0
    with pytest.raises(ConfigError, match="no request was answered in this time"):
        _read(idle.printed())
    unread = Counting()
    unread.now = 1.0
    unread.metrics.observe(decision())
    with pytest.raises(ConfigError, match="nothing tells how long pairs are"):
        _read(unread.printed())


_PRINTED = Counting().serve(2, 1.0).printed()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cascade_uptime_seconds is not in it: is this what /metrics of a sidecar of this version prints?"),
        ("{kingfisher", "it is not in Prometheus' text format"),
        ("cascade_uptime_seconds kingfisher", "it is not in Prometheus' text format"),
        (_PRINTED.replace("cascade_uptime_seconds 1.0", "cascade_uptime_seconds NaN"), "is no number that can be"),
        (
            _PRINTED.replace('cascade_degraded_total{reason="stage_timeout"} 0.0', 'cascade_degraded_total{reason="stage_timeout"} 1e308')
            .replace('cascade_degraded_total{reason="breaker_open"} 0.0', 'cascade_degraded_total{reason="breaker_open"} 1e308'),
            "it is not in Prometheus' text format",
        ),
        (_PRINTED.replace('cascade_candidates_bucket{le="75.0"}', 'cascade_candidates_bucket{le="NaN"}'), "none that can be"),
        (re.sub(r"cascade_candidates_bucket.*\n", "", _PRINTED), "cascade_candidates has no buckets, or none that can be"),
        (
            _PRINTED.replace("cascade_uptime_seconds 1.0", 'cascade_uptime_seconds{i="a"} 1\ncascade_uptime_seconds{i="b"} 1'),
            "it is of several processes; give the scrapes of one, and --growth for the others",
        ),
    ],
    ids=["empty", "torn", "no number", "not finite", "too much", "a bound that is none", "no buckets", "several processes"],
)  # fmt: skip
def test_what_is_no_scrape_of_a_sidecar_is_refused(text: str, told: str) -> None:
    """In a sentence that quotes nothing of it."""
    with pytest.raises(ConfigError) as refused:
        read_scrape(text)
    assert told in str(refused.value)
    assert "kingfisher" not in str(refused.value)


def test_a_histogram_that_falls_is_none() -> None:
    """Someone wrote in it."""
    text = _PRINTED.replace('cascade_candidates_bucket{le="75.0"} 2.0', 'cascade_candidates_bucket{le="75.0"} 0.0')
    assert isinstance(read_scrape(text), Scrape)
    with pytest.raises(ConfigError, match="began anew"):
        _read(text)
