"""``cascade capacity`` of a release whose large stage orders lists."""

from __future__ import annotations

import json
from pathlib import Path

from tests.capacity.made import CHAT
from tests.cli.conftest import Command, WriteRelease
from tests.scenario import release_data


def test_lists_are_planned_as_lists(command: Command, release: WriteRelease, tmp_path: Path) -> None:
    """One a query whatever it holds: ten a second keep two replicas busy that order five each."""
    workload = tmp_path / "workload.json"
    arrivals = {"mean_qps": 6, "peak_qps": 10}
    workload.write_text(json.dumps({"arrivals": arrivals, "candidates": 100, "pair_tokens": 100}), encoding="utf-8")
    stages = {"small": release_data()["stages"]["small"], "large": CHAT}
    out = tmp_path / "capacity.json"
    done = command("capacity", "--release", release(**release_data(stages=stages)), "--workload", str(workload),
                   "--throughput", "small=tokens_per_s:100000,large=lists_per_s:5", "--out", str(out))  # fmt: skip
    assert (done.status, done.err) == (0, "")
    rows = [line.split() for line in done.out.splitlines()]
    assert ["normal", "large", "constant", "1", "lists", "6/10/10", "-"] in rows
    assert ["normal", "large", "5", "24%", "40%", "40%", "50%", "50%", "67%"] in rows
    assert json.loads(out.read_bytes())["levels"][0]["stages"]["large"]["lists_per_query"] == 1.0
    plain = tmp_path / "plain"
    plain.touch()
    assert out.stat().st_mode == plain.stat().st_mode
