"""What a listwise stage is worth: on made orders always, on real ones where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cascade.replay.table import ScoreTable, read_table
from evals.first_stage import shared_data
from evals.listwise import Pair, main, measured
from evals.listwise_page import page

_REPORT = Path(__file__).parents[2] / "evals" / "reports" / "listwise.json"
_THERE = (shared_data() / "trec-dl-19.parquet").exists()
_RUNS = ("large_rank_1", "large_rank_2", "large_rank_3")


def _table(small_noise: float, large_noise: float, queries: int = 60) -> ScoreTable:
    """Draw orders that see relevance through noise: three runs of the large one, each with noise of its own."""
    draw = np.random.default_rng(11)
    count = queries * 50
    rel = np.zeros((queries, 50), dtype=np.int64)
    rel[:, :8] = 1
    seen = draw.permuted(rel, axis=1).ravel()
    common = draw.normal(size=count) * large_noise
    scores = {"bm25": seen + 3 * draw.normal(size=count), "small": seen + small_noise * draw.normal(size=count)}
    for run in _RUNS:
        scores[run] = seen + common + 0.1 * draw.normal(size=count)
    return ScoreTable(
        tuple(f"q{query:03}" for query in range(queries)),
        np.arange(queries + 1) * 50,
        tuple(f"d{row:03}" for row in range(50)) * queries,
        scores,
        rel=seen,
    )


def _measured(small_noise: float, large_noise: float) -> dict[str, Any]:
    return measured([_table(small_noise, large_noise)], Pair("small", _RUNS))


def test_a_better_order_pays_and_a_worse_one_harms() -> None:
    """The report says which: by an interval that leaves zero out, on either side."""
    better, worse = _measured(1.5, 0.3), _measured(0.3, 1.5)
    assert better["static minus small"]["20"][1] > 0
    assert worse["static minus small"]["20"][2] < 0
    told = page({"better": better, "worse": worse})
    assert "**better**: ordering the first 20 of every query pays" in told
    assert "**worse**: ordering the first 20 of every query does harm" in told


def test_costs_are_equal_and_no_choice_beats_the_oracle() -> None:
    """At each share, random is that share of the whole gain, and knowing the gains is worth at least as much as any gate."""
    told = _measured(1.5, 0.8)
    whole = told["static minus small"]["20"][0]
    for share, found in told["minus small, at a share of the calls"].items():
        assert found["random"][0] == pytest.approx(float(share) * whole, abs=1e-4)
        assert found["oracle"][0] >= max(found["gate"][0], found["random"][0]) - 1e-4
    best = told["oracle minus small"]
    assert best["seeing the runs"][0] >= best["chosen on other runs"][0] >= whole - 1e-4
    assert sum(told["better, equal, worse"]) == told["queries"] == 60


def test_random_has_the_calls_that_the_gate_has_where_the_share_is_no_whole_number() -> None:
    """Of 61 queries a quarter are 15: random is 15 / 61 of the gain, as a gate that sends just any would be."""
    told = measured([_table(1.5, 0.8, queries=61)], Pair("small", _RUNS))
    whole = told["static minus small"]["20"][0]
    assert told["minus small, at a share of the calls"]["0.25"]["random"][0] == pytest.approx(15 / 61 * whole, abs=6e-5)
    assert abs(15 / 61 - 0.25) * whole > 2e-4


def test_an_order_of_ten_moves_nothing_behind_the_tenth() -> None:
    """nDCG@10 of the small order and of its first ten reordered have the same documents; of twenty, more."""
    told = _measured(1.5, 0.0)
    assert told["static"]["20"][0] > told["static"]["10"][0] > told["small"][0]


@pytest.mark.data
@pytest.mark.skipif(not _THERE, reason="the shared score tables are not there")
def test_the_committed_report_and_its_page_are_what_the_tables_give(tmp_path: Path) -> None:
    """Every figure of evals/listwise.md, computed again."""
    out, written = tmp_path / "listwise.json", tmp_path / "listwise.md"
    main(["--out", str(out), "--page", str(written)])
    assert json.loads(out.read_text(encoding="utf-8")) == json.loads(_REPORT.read_text(encoding="utf-8"))
    assert written.read_text(encoding="utf-8") == (_REPORT.parents[1] / "listwise.md").read_text(encoding="utf-8")


@pytest.mark.data
@pytest.mark.skipif(not _THERE, reason="the shared score tables are not there")
def test_no_listwise_order_of_dl_is_shown_to_pay_over_the_cross_encoder() -> None:
    """The negative control: of both models, the first 20 of the small order are no better for being ordered."""
    tables = [read_table(shared_data() / f"trec-dl-{year}.parquet") for year in (19, 20)]
    for runs in (("rankgpt35_rank_1", "rankgpt35_rank_2"), ("rankvicuna7b_rank_1", "rankvicuna7b_rank_2")):
        value, low, _ = measured(tables, Pair("minilm_l12", runs))["static minus small"]["20"]
        assert value is not None
        assert low is not None
        assert low <= 0
