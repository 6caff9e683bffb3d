"""The page of what calibrated escalation is worth, and the replay of splits behind it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cascade.metrics import Gain
from cascade.replay.queries import Roles, replayed
from cascade.replay.sweep import Metric
from cascade.testing.calibration import scripted_calibration
from evals import decide, decide_tables
from tests.fit.planted import ROLES, planted_table


def test_the_page_is_what_the_report_gives() -> None:
    """The committed page has no figure that the committed report does not hold."""
    evals = Path(decide_tables.__file__).parent
    report = json.loads((evals / "reports" / "decide.json").read_text(encoding="utf-8"))
    assert decide_tables.page(report) == (evals / "decide.md").read_text(encoding="utf-8")


def test_splits_are_measured_together() -> None:
    """Two halves, each replayed by a calibration of its own, count as one set of queries."""
    table = planted_table(24, 12)
    calibration = scripted_calibration(ROLES.first_stage, least_candidates=2)
    halves = [table.take(range(12)), table.take(range(12, 24))]
    splits = [decide.Split(replayed([half], ROLES, 5, Gain.LINEAR).queries, calibration) for half in halves]
    found = decide._figures(splits, 5, Metric.NDCG)
    assert found["queries"] == 24
    whole = decide._figures(
        [decide.Split(replayed([table], ROLES, 5, Gain.LINEAR).queries, calibration)], 5, Metric.NDCG
    )
    assert found["gap"] == whole["gap"]
    assert found["area_10_50"] == whole["area_10_50"]


def test_shuffling_keeps_the_scores_of_a_query() -> None:
    """The control learns from the same numbers in another order, query by query."""
    table = planted_table(5, 12)
    column = Roles(ROLES.first_stage, ROLES.small, ROLES.large).large
    shuffled = decide._shuffled(table, column)
    assert not np.array_equal(shuffled.column(column), table.column(column))
    for query in range(5):
        rows = table.rows(query)
        assert sorted(shuffled.column(column)[rows]) == sorted(table.column(column)[rows])
