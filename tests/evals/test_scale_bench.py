"""The bench of `cascade eval` by the number of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.replay.queries import Roles
from cascade.replay.source import source_on_disk
from evals.bench.scale import main, write_drawn


def test_a_drawn_table_is_whole_and_can_be_streamed(tmp_path: Path) -> None:
    """So many rows, a hundred a query, sorted; a seed draws it again."""
    roles = Roles(("bm25", "me5_small", "bge_m3_dense"), "ce_ja_xsmall", "ce_bge_v2_m3")
    digests = []
    for seed in (0, 0, 1):
        write_drawn(tmp_path / "t.parquet", 120_000, seed)
        source = source_on_disk(tmp_path / "t.parquet", roles, in_memory_rows=0)
        digests.append(source.sha256)
        assert (len(source.query_ids), source.pairs, source.most, source.judged) == (1200, 120_000, 100, True)
    assert digests[0] == digests[1] != digests[2]


def test_each_size_is_a_row_with_time_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process of its own is measured, and the table is not left behind."""
    assert main(["--rows", "1200", "--folder", str(tmp_path), "--json", str(tmp_path / "found.json")]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["rows", "queries"]
    assert row.split()[:2] == ["1200", "12"]
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
