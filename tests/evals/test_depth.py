"""What depth is worth on a table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cascade.replay.table import ScoreTable, write_table
from evals.depth import DEPTHS, main, observed
from evals.first_stage import shared_data


def _table(queries: int, *, relevant: int) -> ScoreTable:
    """Draw a first stage and a small stage that see relevance through noise, the small one better."""
    draw = np.random.default_rng(5)
    count = queries * 100
    rel = np.zeros((queries, 100), dtype=np.int64)
    rel[:, :relevant] = 1
    seen = rel.ravel()
    return ScoreTable(
        tuple(f"q{query:03}" for query in range(queries)),
        np.arange(queries + 1) * 100,
        tuple(f"d{row:03}" for row in range(100)) * queries,
        {
            "bm25": seen + draw.normal(size=count),
            "dense": seen + draw.normal(size=count),
            "small": 3.0 * seen + draw.normal(size=count),
        },
        rel=seen,
        attributes={
            "source": tuple("one" if row < count // 2 else "other" for row in range(count)),
            "q_class": ("other",) * count,
        },
    )


def test_without_judgements_depth_is_not_judged() -> None:
    """The small order would be held against itself."""
    with pytest.raises(SystemExit, match="judged by the column rel"):
        observed(replace(_table(2, relevant=3), rel=None), ["bm25"], "small", 10, DEPTHS)


def test_the_report_compares_at_every_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cross-fitted, and on one half fitted on the other; what is printed is what is written."""
    write_table(tmp_path / "table.parquet", _table(60, relevant=8))
    arguments = ["--table", str(tmp_path / "table.parquet"), "--first-stage", "bm25,dense", "--small", "small"]
    options = ["--halves", "source=one", "--price", "0.001", "--json", str(tmp_path / "report.json")]
    assert main([*arguments, *options]) == 0
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["queries"] == 60
    assert [(row["how"], row["kind"]) for row in report["prices"][0]["compared"]] == [
        ("cross-fitted", "greedy"),
        ("cross-fitted", "gain"),
        ("fitted on the half", "greedy"),
        ("fitted on the half", "gain"),
        ("fitted on the rest", "greedy"),
        ("fitted on the rest", "gain"),
    ]
    assert "kept fixed" in capsys.readouterr().out


@pytest.mark.data
def test_on_real_scores_gain_is_kept_or_costs_nothing(tmp_path: Path) -> None:
    """JQaRA: fitted on either source and tested on the other, gain never loses more than .005 nDCG to fixed depths."""
    table = shared_data() / "jqara.parquet"
    if not table.exists():
        pytest.skip("the shared score tables are not here")
    report = tmp_path / "report.json"
    arguments = ["--table", str(table), "--first-stage", "bm25,me5_small", "--small", "ce_ja_xsmall"]
    main([*arguments, "--halves", "source=QA20CAPR", "--price", "0.0003", "--json", str(report)])
    read = json.loads(report.read_text(encoding="utf-8"))
    assert read["ndcg"]["50"] > read["ndcg"]["10"] + 0.03
    compared = [row for row in read["prices"][0]["compared"] if row["kind"] == "gain"]
    assert len(compared) == 3
    assert all(row["difference"] > -0.005 for row in compared)
