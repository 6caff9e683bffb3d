"""The recorder of one release."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from cascade.policy.release import parse_release
from cascade.telemetry.metrics import Metrics
from cascade.telemetry.record_file import RecordFile
from cascade.telemetry.record_log import RecordLog
from cascade.telemetry.recorder import DecisionRecorder
from cascade.telemetry.records import Decided, RecordFormat, Source
from cascade.text import Text
from cascade.types import Candidate, Request, StageName
from tests.scenario import release_data
from tests.telemetry.decisions import decision, round_of

_RELEASE = parse_release(release_data())


class _Recording:
    """A recorder with its metrics and its file."""

    def __init__(self, path: Path, sample: float = 1.0) -> None:
        self.path = path
        self.metrics = Metrics()
        self.log = RecordLog(
            RecordFile(path, most_bytes=1_000_000, files=2),
            queue=10,
            count_written=self.metrics.records.inc,
            count_dropped=self.metrics.drop_records,
            count_fault=self.metrics.count_fault,
        )
        source = Source(_RELEASE, "sha256:r", "sha256:p", sample, dict, lambda text: "0" * 16)
        now = datetime(2026, 11, 29, tzinfo=UTC)
        self.recorder = DecisionRecorder(RecordFormat(source), self.log, self.metrics, lambda: now)

    def value(self, name: str, **labels: str) -> float | None:
        """Return a sample of the metrics."""
        return self.metrics.registry.get_sample_value(name, labels)


def _decided(**changes: Any) -> Decided:
    request = Request(Text("q"), (Candidate(Text("a")),))
    return Decided(request, decision(query_hash="7f" * 8), _RELEASE, None, {}, {}, **changes)


async def test_a_decided_request_becomes_a_line(tmp_path: Path) -> None:
    """The line has the time of the decision, and the written one is counted."""
    recording = _Recording(tmp_path / "r.jsonl")
    recording.recorder.record(_decided())
    await recording.log.aclose(5.0)
    head, line = map(orjson.loads, recording.path.read_bytes().splitlines())
    assert (head["kind"], line["kind"], line["time"]) == ("head", "decision", "2026-11-29T00:00:00.000+00:00")
    assert recording.value("cascade_records_total") == 1
    assert recording.value("cascade_records_dropped_total", reason="queue_full") == 0
    assert recording.value("cascade_internal_faults_total") == 0


async def test_rounds_beside_answers_are_counted_with_their_cost(tmp_path: Path) -> None:
    """Pairs and tokens of the small stage count as its others; a round that was dropped cost nothing."""
    recording = _Recording(tmp_path / "r.jsonl")
    recording.recorder.record(_decided(beside=round_of(StageName.SMALL)))
    recording.recorder.record(_decided(beside=round_of(StageName.SMALL, outcome="stage_timeout", cost=None)))
    recording.recorder.record(_decided(dropped=True))
    recording.recorder.record(_decided())
    await recording.log.aclose(5.0)
    counted = {
        name: recording.value("cascade_beside_total", outcome=name) for name in ("ok", "stage_timeout", "dropped")
    }
    assert counted == {"ok": 1, "stage_timeout": 1, "dropped": 1}
    assert recording.value("cascade_pairs_total", stage="small") == 7
    assert recording.value("cascade_rounds_total", stage="small", outcome="ok") == 1
    assert recording.value("cascade_records_total") == 4


async def test_a_sample_is_wanted_by_the_hash_of_the_query(tmp_path: Path) -> None:
    """Half of all hashes are in a half."""
    recording = _Recording(tmp_path / "r.jsonl", sample=0.5)
    assert recording.recorder.wants("7f" * 8)
    assert not recording.recorder.wants("80" * 8)
    await recording.log.aclose(5.0)


async def test_a_round_beside_an_answer_says_how_far_the_large_stage_moved_its_order(tmp_path: Path) -> None:
    """The large stage turned the small order of two round; without a round beside, or large scores, nothing is told."""
    recording = _Recording(tmp_path / "r.jsonl")
    scored = replace(
        _decided(), decision=decision(query_hash="7f" * 8, candidates=2), small={0: 2.0, 1: 1.0}, large={0: 1.0, 1: 2.0}
    )
    recording.recorder.record(scored)
    recording.recorder.record(replace(scored, beside=round_of(), large={}))
    recording.recorder.record(replace(scored, beside=round_of()))
    await recording.log.aclose(5.0)
    assert recording.value("cascade_rank_overlap_ratio_count") == 1
    assert recording.value("cascade_rank_displacement_places_sum") == 1.0
