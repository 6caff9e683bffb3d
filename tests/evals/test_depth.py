"""What depth is worth on a table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cascade.replay.table import ScoreTable, write_table
from cascade.signals import resolve
from cascade.types import QueryClass
from evals.depth import DEPTHS, main, names_for, observe
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


def test_names_are_signals_of_scores_in_name_order() -> None:
    """Each can be computed, whatever order the channels are named in."""
    names = names_for(["dense", "bm25"])
    assert {"bm25.gap_tail", "dense.entropy", "kendall.bm25.dense", "channels.separation"} <= set(names)
    assert all(resolve(name) for name in names if name)


def test_quality_is_of_the_small_order_within_depth() -> None:
    """The first stage ranks the relevant one eleventh: it is first from depth 11 on, and before it no gain at 10."""
    scores = np.arange(30, 0, -1, dtype=np.float64)
    rel = np.zeros(30, dtype=np.int64)
    rel[10] = 1
    table = ScoreTable(
        ("q",), np.array([0, 30]), tuple(map(str, range(30))), {"a": scores, "small": rel.astype(np.float64)}, rel=rel
    )
    seen = observe(table, ["a"], "small", 10, (10, 11, 100))
    assert seen.quality.tolist() == [[0.0, 1.0, 1.0]]
    assert seen.classes == (None,)


def test_queries_without_a_relevant_candidate_are_left_out() -> None:
    """They have no quality to gain; the class is read where the table has it."""
    table = _table(3, relevant=0)
    assert len(observe(table, ["bm25"], "small", 10, DEPTHS).quality.ravel()) == 0
    assert observe(_table(2, relevant=3), ["bm25"], "small", 10, DEPTHS).classes == (QueryClass.OTHER,) * 2


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
