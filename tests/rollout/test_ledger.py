"""What is told of a rollout's end."""

from __future__ import annotations

from cascade.rollout.history import Happened
from cascade.rollout.ledger import Ledger
from cascade.telemetry.metrics import Metrics


def test_each_end_of_a_rollout_is_counted_once_by_what_came_of_it() -> None:
    """Steps between are none; one that another release replaced was aborted."""
    metrics, faults = Metrics(), list[BaseException]()
    ledger = Ledger(count_fault=faults.append, ended=metrics.arms.rolled_out)
    for what in Happened:
        ledger.note(what, "r2", "sha256:0")
    counted = {
        outcome: metrics.registry.get_sample_value("cascade_rollouts_total", {"outcome": outcome})
        for outcome in ("completed", "rolled_back", "aborted", "refused")
    }
    assert counted == {"completed": 1, "rolled_back": 1, "aborted": 2, "refused": 1}
    assert faults == []
