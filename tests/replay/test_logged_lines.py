"""Records read with what was done for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cascade.replay.logged.lines import LoggedLine, LoggedLines
from tests.replay.records import decision_line, head_line, write_records

_DONE = {
    "top_n": 3,
    "depth_reason": "fixed",
    "escalated": [2, 0],
    "degraded": [],
    "rank_changes_at_5": 2,
    "propensity": 0.5,
    "signals": {"bm25.gap": None},
    "beside": None,
}


def _read(path: Path, **changes: Any) -> list[LoggedLine]:
    return list(LoggedLines([write_records(path / "r", [head_line(), decision_line(**_DONE | changes)])]))


def test_a_whole_record_is_read(tmp_path: Path) -> None:
    """With the fields that other readers of records have no use for."""
    (line,) = _read(tmp_path)
    assert (line.escalated, line.propensity, line.signals, line.small_depth) == ((2, 0), 0.5, {"bm25.gap": None}, 3)


@pytest.mark.parametrize(
    ("degraded", "is_degraded"),
    [([], False), (["calibration_mismatch"], False), (["stage_timeout"], True), (["load_level"], True)],
)
def test_the_safe_mode_is_a_decision_and_trouble_is_none(
    tmp_path: Path, degraded: list[str], is_degraded: bool
) -> None:
    """A calibration that does not hold decides by rule; all other reasons are of the moment."""
    (line,) = _read(tmp_path, degraded=degraded)
    assert line.is_degraded is is_degraded


def test_a_small_stage_that_did_not_answer_scored_nothing(tmp_path: Path) -> None:
    """Whatever the depth."""
    rounds = [{"stage": "small", "outcome": "stage_timeout", "sent": 3, "elapsed_ms": 6.0}]
    (line,) = _read(tmp_path, rounds=rounds)
    assert line.small_depth == 0


@pytest.mark.parametrize(
    "changes", [{"escalated": [3]}, {"propensity": 0.0}, {"propensity": 1.5}, {"top_n": None}, {"escalated": [-1]}]
)
def test_a_record_that_is_not_whole_is_strange(tmp_path: Path, changes: dict[str, Any]) -> None:
    """It is counted, and not quoted."""
    lines = LoggedLines([write_records(tmp_path / "r", [head_line(), decision_line(**_DONE | changes), {"kind": "x"}])])
    assert list(lines) == []
    assert lines.unread.strange == 2
