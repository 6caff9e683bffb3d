"""Records that are left out, each kind with its count, and shadow pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest

from cascade.errors import ConfigError
from cascade.metrics import ideal_dcg
from cascade.types import StageName
from tests.replay.bandit import (
    BY_CLASS,
    DEEP,
    DEEP_ALONE,
    OBSERVING,
    OTHER,
    QUERIES,
    SHALLOW,
    asked_report,
    with_last_changed,
)
from tests.replay.served import made_queries, orders_of, serving_of, traffic


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    """Decisions that are there twice, other releases', undecided ones and lines that are none each have their count."""
    served = traffic(QUERIES[:40], (SHALLOW, DEEP), assign=lambda query: int(query.number > 9))
    path = with_last_changed(served.write(tmp_path / "records"))
    with_last_changed(path, decision_id="blank", depth_reason="", depth=0)
    path.write_bytes(path.read_bytes() + b'{"kind": "dec\n' + b'{"kind":"else"}\n')
    counts = asked_report(path, BY_CLASS, (DEEP_ALONE,))["counts"]
    assert (counts["records"], counts["repeated"], counts["torn"], counts["strange"]) == (42, 1, 1, 1)
    assert (counts["undecided"], counts["other_release"], counts["used"]) == (1, 10, 30)


def test_two_decisions_of_one_id_are_refused(tmp_path: Path) -> None:
    """Which outcome is whose could not be told."""
    path = with_last_changed(traffic(QUERIES[:5], [DEEP_ALONE]).write(tmp_path / "records"), query_hash="ab" * 8)
    with pytest.raises(ConfigError, match="two decisions have one decision_id"):
        asked_report(path, DEEP_ALONE)


def test_two_hash_keys_are_told(tmp_path: Path) -> None:
    """A query under two of them is two queries."""
    path = traffic(QUERIES[:30], [DEEP_ALONE]).write(tmp_path / "records")
    head, *lines = path.read_bytes().splitlines(keepends=True)
    other = orjson.loads(head) | {"id": "f" * 16, "key": "e" * 16}
    line = orjson.loads(lines[0]) | {"head": "f" * 16, "decision_id": "again", "query_hash": "cd" * 8}
    path.write_bytes(path.read_bytes() + orjson.dumps(other) + b"\n" + orjson.dumps(line) + b"\n")
    told = asked_report(path, DEEP_ALONE, (DEEP_ALONE,))
    assert told["counts"]["keys"] == 2
    assert told["notes"] == ["2 hash keys: a query under two of them counts as two queries"]


def test_shadow_pairs_tell_what_a_target_answers_without_weights(tmp_path: Path) -> None:
    """Silver quality and pairs are those of serving the target itself; the bounds hold what judgements say."""
    queries = made_queries(90)
    records = traffic(queries, [OBSERVING]).write(tmp_path / "records")
    told = asked_report(records, OTHER, k=5)
    shadow, orders = told["shadow"], orders_of(queries, OTHER)
    silver, lost = [], []
    for query, order in zip(queries, orders, strict=True):
        always = np.argsort(-query.large, kind="stable")
        gains = np.empty(12)
        gains[always] = 1.0 / np.arange(1, 13)
        discounts = 1.0 / np.log2(np.arange(2, 7))
        silver.append(float(gains[list(order[:5])] @ discounts) / ideal_dcg(gains, 5))
        relevant = np.isin(np.arange(12), always[:1]).astype(np.float64)
        lost.append(1.0 - float(relevant[list(order[:5])] @ discounts))
    assert shadow["silver"] == pytest.approx(np.mean(silver))
    assert (shadow["records"], shadow["large_pairs"], shadow["large_share"]) == (90, 3.0, 0.25)
    assert np.mean(lost) <= shadow["lost_at_most"] < 1.0
    assert {name: part["records"] for name, part in shadow["by_class"].items()} == {"identifier": 30, "other": 60}
    assert told["coverage"] is None
    assert told["counts"]["used"] == 0
    assert told["conditions"]["sample"] is None
    itself = asked_report(records, OBSERVING)["shadow"]
    assert (itself["silver"], itself["unchanged"], itself["lost_at_most"], itself["large_share"]) == (
        1.0,
        1.0,
        0.0,
        1.0,
    )


def test_observed_records_that_do_not_tell_are_counted(tmp_path: Path) -> None:
    """A small stage too slow for its time, and a target that scores deeper than was observed."""
    slow = traffic(
        QUERIES[:20],
        [OBSERVING],
        behaves=lambda query, stage: {"delay_ms": 500.0 * (stage is StageName.SMALL and query.number < 4)},
    )
    told = asked_report(slow.write(tmp_path / "a"), OTHER)
    assert (told["counts"]["observed_incomplete"], told["shadow"]["records"]) == (4, 16)
    narrow = serving_of("narrow", mode="observe", depth=12, escalation="none", limits={"max_candidates": 6})
    with pytest.raises(ConfigError, match="no record is of a release of the split"):
        asked_report(traffic(QUERIES[:5], [narrow]).write(tmp_path / "b"), OTHER)
