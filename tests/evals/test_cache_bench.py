"""The benchmark of the score cache measures what it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from evals.bench.cache import STAGES_MS, break_even, main


def test_the_report_has_every_step_with_its_spread(tmp_path: Path) -> None:
    """Of the memory, and of a Redis where one is installed; and the share from which each pays."""
    report = tmp_path / "cache.json"
    assert main(["--documents", "5", "--rounds", "3", "--json", str(report)]) == 0
    told = json.loads(report.read_text(encoding="utf-8"))
    stores = ["memory", *(["redis"] if shutil.which("redis-server") else [])]
    steps = (
        "look up, all kept",
        "look up, none kept",
        "keep",
        "round, all from the cache",
        "round, none from the cache",
    )
    names = {
        "make keys",
        "pack",
        "round of the stage alone",
        *(f"{store}: {step}" for store in stores for step in steps),
    }
    assert set(told["figures"]) == names
    assert all(figure["p5_us"] > 0.0 and figure["p5_us"] <= figure["p95_us"] for figure in told["figures"].values())
    assert {store: set(shares) for store, shares in told["break_even"].items()} == {
        store: {f"{ms:g}" for ms in STAGES_MS} for store in stores
    }


@pytest.mark.parametrize(
    ("cost_us", "stage_ms", "share"), [(100.0, 10.0, 0.01), (2000.0, 2.0, 1.0), (2001.0, 2.0, None)]
)
def test_a_cache_pays_from_the_share_that_earns_its_cost(cost_us: float, stage_ms: float, share: float | None) -> None:
    """A tenth of a millisecond is a hundredth of ten; what costs more than the stage never pays."""
    told = break_even(cost_us, stage_ms)
    assert told is None if share is None else told == pytest.approx(share)
