"""A workload of decision records."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cascade.capacity.demand import Basis
from cascade.capacity.distribution import Distribution
from cascade.capacity.record_traffic import Digests, Recorded, traffic_of_records
from cascade.decision import Level
from cascade.errors import ConfigError
from cascade.replay.record_lines import Lines
from cascade.telemetry.records import Decided, RecordFormat, Source
from cascade.text import Text
from cascade.types import Candidate, Request, StageName
from tests.capacity.made import made_release, record, records_head
from tests.replay.records import write_records
from tests.telemetry.decisions import decision, round_of

_DIGESTS = Digests("sha256:p1", "sha256:o1", "normal")


def _read(path: Path, *lines: dict[str, Any], window_s: float = 60.0, burst: float = 1.0) -> Recorded:
    write_records(path / "r", [records_head(), *lines])
    return traffic_of_records([path / "r"], window_s=window_s, burst_factor=burst, digests=_DIGESTS)


def test_windows_begin_with_the_first_record(tmp_path: Path) -> None:
    """Two, then one a minute; the request at the end of the second minute is behind the last whole window."""
    found = _read(tmp_path, record(10), record(69), record(75), record(130), burst=1.5)
    arrivals = found.traffic.arrivals
    assert [window.qps for window in arrivals.windows] == [2 / 60, 1 / 60]
    assert (arrivals.mean_qps, arrivals.peak_qps, arrivals.burst_factor) == (1.5 / 60, 2 / 60, 1.5)
    assert arrivals.peak_error_qps is None
    assert (found.counts.records, found.counts.in_windows, found.counts.empty_windows) == (4, 3, 0)


def test_records_need_not_be_in_order(tmp_path: Path) -> None:
    """Files are rotated, and several sidecars write their own."""
    found = _read(tmp_path, record(130), record(75), record(10), record(69))
    assert [window.qps for window in found.traffic.arrivals.windows] == [2 / 60, 1 / 60]


def test_a_window_without_a_record_is_one_without_a_query(tmp_path: Path) -> None:
    """It counts for the mean, and is told."""
    found = _read(tmp_path, record(0), record(150), record(180))
    assert [window.qps for window in found.traffic.arrivals.windows] == [1 / 60, 0.0, 1 / 60]
    assert found.counts.empty_windows == 1


def test_a_sample_is_corrected_by_its_share(tmp_path: Path) -> None:
    """Each record of a quarter stands for four; a query that came twice weighs twice in the error.

    Of a query seen c times with probability p, the variance is c^2 (1 - p) / p^2: 12 for one, 48 for two.
    """
    lines = [record(0), record(5, query_hash="a" * 16), record(6, query_hash="a" * 16), record(60)]
    found = _read(tmp_path, *({**line, "sample": 0.25, "propensity": 0.25} for line in lines))
    arrivals = found.traffic.arrivals
    assert arrivals.peak_qps == 12 / 60
    assert arrivals.peak_error_qps == pytest.approx(math.sqrt(12 + 48) / 60)
    assert found.traffic.beside_share == 0.25


def test_sizes_are_weighted_by_what_a_record_stands_for(tmp_path: Path) -> None:
    """Candidates, tokens of pairs and of queries."""
    lines = [
        record(0, sample=0.5, propensity=0.5),
        record(60, tokens=[10, 20], q_tokens=2, depth=2, escalated=[]),
    ]
    traffic = _read(tmp_path, *lines).traffic
    assert traffic.candidates == Distribution.weighted({2: 1, 4: 2}.items())
    assert traffic.pair_tokens == Distribution.weighted({10: 1, 20: 3, 30: 2, 40: 2, 50: 2}.items())
    assert traffic.query_tokens == pytest.approx((2 * 8 + 2) / 3)


def test_records_of_the_release_tell_what_it_sent(tmp_path: Path) -> None:
    """By level: three and none at the small stage, two and none at the large, with the tokens of just these pairs."""
    lines = [
        record(0),
        record(30, rounds=[], escalated=[], degraded=["stage_timeout"]),
        record(60, load_level="low", escalated=[], degraded=["load_level"]),
    ]
    found = _read(tmp_path, *lines)
    normal, low = found.evidence["normal"], found.evidence["low"]
    assert (normal.basis, normal.detail) == (Basis.RECORDS, "what was sent in 2 records")
    assert (normal.small, normal.large) == (1.5, 1.0)
    assert normal.small_tokens == Distribution.weighted({20: 1, 30: 1, 40: 1}.items())
    assert normal.large_tokens == Distribution.weighted({20: 1, 40: 1}.items())
    assert (low.small, low.large, low.large_tokens) == (3.0, 0.0, None)
    assert (found.counts.of_release, found.counts.degraded) == (3, 1)


def test_what_was_sent_is_weighted_by_what_a_record_stands_for(tmp_path: Path) -> None:
    """Four requests of three small and two large pairs, and one of none."""
    found = _read(tmp_path, record(0, sample=0.25, propensity=0.25), record(60, rounds=[], escalated=[]))
    normal = found.evidence["normal"]
    assert (normal.small, normal.large) == (12 / 5, 8 / 5)


def test_records_of_mode_observe_tell_what_would_have_been_sent(tmp_path: Path) -> None:
    """The same release in mode cascade; a direct query would have passed the small stage."""
    observing = records_head(id="1" * 16, mode="observe", policy_digest="sha256:o1")
    would = {"depth": 3, "action": "cluster", "escalated": [1]}
    lines = [
        record(0, would=would),
        record(30, would={"depth": 3, "action": "direct", "escalated": [0, 1, 2]}),
        record(60),
    ]
    found = _read(tmp_path, observing, *({**line, "head": "1" * 16, "load_level": None} for line in lines))
    told = found.evidence["normal"]
    assert (told.detail, told.small, told.large) == ("what would have been sent in 2 records", 1.5, 2.0)
    assert found.counts.of_release == 2


def test_what_was_sent_stands_before_what_would_have_been(tmp_path: Path) -> None:
    """Where both are known of a level."""
    observing = records_head(id="1" * 16, mode="observe", policy_digest="sha256:o1")
    would = {"depth": 1, "action": "query", "escalated": [0]}
    found = _read(tmp_path, observing, record(0, head="1" * 16, would=would), record(60))
    assert found.evidence["normal"].detail == "what was sent in 1 records"


def test_records_of_another_release_tell_arrivals_alone(tmp_path: Path) -> None:
    """What others send is no evidence."""
    other = records_head(id="1" * 16, policy_digest="sha256:other")
    found = _read(tmp_path, other, record(0, head="1" * 16), record(60, head="1" * 16))
    assert (found.evidence, found.counts.records, found.counts.of_release) == ({}, 2, 0)


def test_lines_that_say_nothing_are_counted(tmp_path: Path) -> None:
    """Torn, strange, headless, and one that was read before; the others count."""
    lines = [record(0), record(0), record(60), record(61, head="9" * 16), record(62, depth=9), {"kind": "else"}]
    write_records(tmp_path / "r", [records_head(), *lines])
    with (tmp_path / "r").open("ab") as file:
        file.write(b'{"kind": "deci')
    found = traffic_of_records([tmp_path / "r"], window_s=60.0, burst_factor=1.0, digests=_DIGESTS)
    counts = found.counts
    assert (counts.records, counts.again, counts.headless, counts.strange, counts.torn) == (2, 1, 1, 2, 1)


def test_one_second_of_records_is_no_rate(tmp_path: Path) -> None:
    """The message tells both lengths, and a shorter window is allowed."""
    with pytest.raises(ConfigError, match=r"they span 1 s, and a rate needs a whole window of 60 s"):
        _read(tmp_path, record(0), record(0.5), record(1))
    assert _read(tmp_path, record(0), record(0.5), record(1), window_s=1.0).traffic.arrivals.peak_qps == 2.0


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "no decided request in them$"),
        ([{"kind": "else"}], "no decided request in them; lines: 1 no record of this version"),
        ([record(0, propensity=0.0)], "lines: 1 no record of this version"),
        ([record(0, tokens=[])], "lines: 1 no record of this version"),
        ([record(0, head="9" * 16)], "lines: 1 without their head"),
    ],
)
def test_without_a_record_there_is_no_workload(tmp_path: Path, lines: list[dict[str, Any]], told: str) -> None:
    """What the lines were is told."""
    with pytest.raises(ConfigError, match=told):
        _read(tmp_path, *lines)


def test_records_of_another_version_are_refused(tmp_path: Path) -> None:
    """They may mean something else."""
    write_records(tmp_path / "r", [records_head(format="cascade-records/0"), record(0)])
    with pytest.raises(ConfigError, match="written by another version; cascade-records/1 is read"):
        list(Lines([tmp_path / "r"]))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the kind of fault."""
    with pytest.raises(ConfigError, match=r"records .*absent: cannot be read: FileNotFoundError"):
        list(Lines([tmp_path / "absent"]))


def test_what_the_recorder_writes_is_read(tmp_path: Path) -> None:
    """Head and line of a served decision: its level, its pairs, its propensity."""
    candidates = tuple(Candidate(Text("a lamp"), f"d{place}") for place in range(4))
    form = RecordFormat(Source(made_release(), "sha256:r", "sha256:p1", 0.5, dict, lambda text: f"{len(text):016x}"))
    rounds = (round_of(), round_of(StageName.LARGE))
    taken = decision(candidates=4, depth=4, query_hash="ab" * 8, level=Level("low", 1), rounds=rounds)
    written = form.record(
        Decided(Request(Text("which lamp"), candidates), taken, made_release(), None, {}, {}),
        datetime(2026, 11, 29, tzinfo=UTC),
    )
    (tmp_path / "r").write_bytes(written.head + written.line)
    lines = Lines([tmp_path / "r"])
    (line,) = lines
    head = lines.heads[line.head]
    assert (head.policy_digest, head.mode) == ("sha256:p1", "cascade")
    assert (line.load_level, line.depth, line.escalated, line.recorded) == ("low", 4, (3, 1), 0.5)
    assert line.tokens == (3 + 2 + 4,) * 4


def test_the_arms_of_a_split_are_one_stream_of_requests(tmp_path: Path) -> None:
    """A record of a canary of 5% stands for as many requests as one of the stable release; a shadow for none.

    All are recorded by halves: four requests in the first minute, two at its end.
    """
    lines = [
        record(0, sample=0.5, propensity=0.5 * 0.95),
        record(5, arm="canary", sample=0.5, propensity=0.5 * 0.05),
        record(6, arm="shadow", of="id-0", sample=0.5, propensity=0.5 * 0.95 * 0.1),
        record(60, sample=0.5, propensity=0.5 * 0.95),
    ]
    found = _read(tmp_path, *lines)
    assert [window.qps for window in found.traffic.arrivals.windows] == [4 / 60]
    assert (found.counts.records, found.counts.shadows) == (3, 1)


def test_records_from_before_there_were_arms_are_read(tmp_path: Path) -> None:
    """Their propensity is the share that was recorded."""
    old = [record(second, propensity=0.5) for second in (0, 60)]
    for line in old:
        for name in ("arm", "of", "sample"):
            del line[name]
    assert _read(tmp_path, *old).traffic.arrivals.peak_qps == 2 / 60
