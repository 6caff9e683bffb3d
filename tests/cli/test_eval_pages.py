"""What ``cascade eval`` writes beside the report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cascade.replay.table import write_table
from tests.cli.conftest import Command, Done
from tests.replay.made import made_table


def _eval(command: Command, folder: Path, *more: str) -> Done:
    write_table(folder / "made.parquet", made_table())
    fixed = ("--table", str(folder / "made.parquet"), "--small", "small", "--large", "large", "--k", "5")
    options = ("--first-stage", "bm25,dense", "--resamples", "1000", "--out", str(folder / "report.json"))
    return command("eval", *fixed, *options, *more)


def test_a_page_and_pictures_are_written_and_told(command: Command, tmp_path: Path) -> None:
    """The page holds the very report; what there is nothing to draw of is named."""
    html, png = tmp_path / "report.html", tmp_path / "png"
    done = _eval(command, tmp_path, "--html", str(html), "--png", str(png))
    assert (done.status, done.err) == (0, "")
    embedded = re.search(
        r'<script type="application/json" id="report">(.*?)</script>', html.read_text(encoding="utf-8")
    )
    assert embedded is not None
    assert json.loads(embedded[1]) == json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert sorted(path.name for path in png.iterdir()) == ["curves.png", "depth-sweep.png", "regret.png"]
    assert f"page: {html}" in done.out
    assert f"pictures: {png}: curves.png, regret.png, depth-sweep.png" in done.out
    assert "not drawn, the report has nothing to draw: reliability.png" in done.out


def test_nothing_is_drawn_unasked(command: Command, tmp_path: Path) -> None:
    """The report alone is written."""
    assert _eval(command, tmp_path).status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.parquet", "report.json"]


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("--html", "absent/report.html", "its folder is not there"),
        ("--html", "", "is a folder; name a file"),
        ("--png", "absent/png", "its folder is not there"),
        ("--png", "made.parquet", "is no folder"),
        ("--html", "report.json", "is where the report itself is written"),
        ("--html", "made.parquet", "is a table that is read"),
        ("--out", "made.parquet", "is a table that is read"),
    ],
)
def test_a_place_that_cannot_be_is_refused_first(
    command: Command, tmp_path: Path, option: str, name: str, message: str
) -> None:
    """Before the replay, so that neither minutes nor a file are lost."""
    done = _eval(command, tmp_path, option, str(tmp_path / name))
    assert done.status == 2
    assert done.err.startswith(f"cascade: {option} ")
    assert message in done.err
    assert not (tmp_path / "report.json").exists()
