"""What was done for each request, as its record tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cascade.replay.record_lines import DecisionLine, Lines
from tests.replay.records import decision_line, head_line, write_records

_DONE = {
    "top_n": 3,
    "depth_reason": "fixed",
    "escalated": [2, 0],
    "degraded": [],
    "rank_changes_at_5": 2,
    "sample": None,
    "propensity": 0.5,
    "signals": {"bm25.gap": None},
    "beside": None,
}


def _read(path: Path, **changes: Any) -> list[DecisionLine]:
    return list(Lines([write_records(path / "r", [head_line(), decision_line(**_DONE | changes)])]))


def test_a_whole_record_is_read(tmp_path: Path) -> None:
    """What was escalated, what is known of the query, how deep the small stage went."""
    (line,) = _read(tmp_path)
    assert (line.escalated, line.propensity, line.signals, line.small_depth) == ((2, 0), 0.5, {"bm25.gap": None}, 3)


def test_a_record_stands_for_the_share_that_is_recorded_whatever_its_arm(tmp_path: Path) -> None:
    """The propensity has the arm's probability too; before there were arms the two were one."""
    (canary,) = _read(tmp_path, arm="canary", sample=0.5, propensity=0.125)
    assert (canary.recorded, canary.arm_probability) == (0.5, 0.25)
    (old,) = _read(tmp_path)
    assert (old.recorded, old.arm_probability) == (0.5, 1.0)


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
    "changes",
    [
        {"escalated": [3]},
        {"propensity": 0.0},
        {"propensity": 1.5},
        {"top_n": None},
        {"escalated": [-1]},
        {"sample": 0.25},
    ],
)
def test_a_record_that_is_not_whole_is_strange(tmp_path: Path, changes: dict[str, Any]) -> None:
    """It is counted, and not quoted."""
    lines = Lines([write_records(tmp_path / "r", [head_line(), decision_line(**_DONE | changes), {"kind": "x"}])])
    assert list(lines) == []
    assert lines.unread.strange == 2
