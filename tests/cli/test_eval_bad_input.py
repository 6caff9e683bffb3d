"""What ``cascade eval`` refuses, in one table: the file, the column, the row and the rule are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cascade.calibration.artefact import artefact_bytes
from cascade.replay.table import write_table
from tests.cli.conftest import Command, Done
from tests.replay.made import made_table
from tests.replay.made_calibration import made_artefact
from tests.scenario import release_data

_ROLES = ("--first-stage", "bm25,dense", "--small", "small", "--large", "large", "--k", "5")
_AGAIN = "run the same cascade collect again, or say --unfinished"

Change = Callable[[pa.Table], pa.Table]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a made table of 40 queries with 20 candidates each."""
    write_table(tmp_path / "made.parquet", made_table())
    return tmp_path / "made.parquet"


def _changed(path: Path, change: Change) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def _without(*names: str) -> Change:
    return lambda table: table.drop_columns([*names])


def _with(name: str, value: Callable[[int], Any], kind: Any = None) -> Change:
    """Return a change that gives a column a value for each row, which count from 1."""

    def change(table: pa.Table) -> pa.Table:
        values = pa.array([value(row) for row in range(1, table.num_rows + 1)], kind)
        return (table.drop_columns([name]) if name in table.column_names else table).append_column(name, values)

    return change


def _twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(41, 1)])


def _metadata(**told: Any) -> Change:
    return lambda table: table.replace_schema_metadata({"cascade": json.dumps(told)})


def _eval(command: Command, path: Path, *more: str) -> Done:
    return command("eval", "--table", str(path), *_ROLES, "--out", str(path.with_name("report.json")), *more)


def _refused(done: Done, path: Path) -> str:
    """Return what is said of the table, of a run that ended as bad input does and wrote nothing."""
    assert done.status == 2
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1
    assert not path.with_name("report.json").exists()
    assert not path.with_name("c.json").exists()
    return done.err.removeprefix("cascade: ").removesuffix("\n").replace(str(path), path.name)


@pytest.mark.parametrize(("option", "value"), [("--price", "1e308"), ("--price", "-1"), ("--seed", f"{10**23}")])
def test_a_number_that_no_report_can_hold_is_refused(command: Command, path: Path, option: str, value: str) -> None:
    """Before the replay, by the option's name."""
    done = _eval(command, path, option, value)
    assert done.status == 2
    assert option in done.err
    assert not path.with_name("report.json").exists()


def test_a_deadline_of_nought_is_no_missing_deadline(command: Command, path: Path) -> None:
    """It is refused, and not taken for the release's own."""
    release = path.with_name("release.yaml")
    release.write_text(json.dumps(release_data()), encoding="utf-8")
    done = _eval(command, path, "--release", str(release), "--deadline-ms", "0")
    assert _refused(done, path) == "--deadline-ms: must be a number above 0"


_OF_THE_FILE: tuple[tuple[str, Change, str], ...] = (
    ("no ids", _without("query_id"), "no column query_id; there are bm25, dense, doc_id, large, rel, small, source, tokens"),
    ("no rows", lambda table: table.slice(0, 0), "no rows"),
    ("a pair twice", _twice, "columns query_id, doc_id: rows 42 and 801: query q1-002 has document d001 twice"),
    ("no id", _with("doc_id", lambda row: None if row == 7 else f"d{row}"), "column doc_id: row 7: there is no id"),
    ("infinite", _with("large", lambda row: np.inf if row == 9 else 1.0), "column large: row 9: the value is infinite"),
    (
        "infinite in a column that is not asked for",
        _with("other", lambda row: -np.inf if row > 798 else 1.0),
        "column other: row 799, and 1 more rows: the value is infinite",
    ),
    ("half a grade", _with("rel", lambda row: 0.5 if row == 3 else 1.0), "column rel: row 3: whole numbers of at least -1 are wanted"),
    ("a grade below", _with("rel", lambda row: -2 if row == 800 else 1), "column rel: row 800: whole numbers of at least -1 are wanted"),
    ("a grade of text", _with("rel", lambda row: "1"), "column rel: whole numbers are wanted, not string"),
    ("no rank", _with("rank_first", lambda row: np.nan if row == 5 else (row - 1) % 20 + 1.0), "column rank_first: row 5: there is no number"),
    ("a rank twice", _with("rank_first", lambda row: max(1, (row - 1) % 20)), "column rank_first: query q1-000 has two candidates of rank 1"),
    ("tokens of text", _with("tokens", lambda row: "ten"), "column tokens: numbers are wanted, not string"),
    ("tokens below", _with("tokens", lambda row: -1 if row == 3 else 9), "column tokens: row 3: a number of at least 0 is wanted"),
    ("endless time", _with("ms_large", lambda row: np.inf if row > 799 else 1.0), "column ms_large: row 800: the value is infinite"),
    ("time below", _with("ms_large", lambda row: -0.1 if row < 3 else 1.0), "column ms_large: row 1, and 1 more rows: a number of at least 0 is wanted"),
    ("no ideal", _with("q_grades", lambda row: [0] if row == 2 else [1]), "column q_grades: row 2: a grade is not above 0"),
    ("no object", lambda table: table.replace_schema_metadata({"cascade": "[]"}), "metadata cascade: not a JSON object"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"), [each[1:] for each in _OF_THE_FILE], ids=[each[0] for each in _OF_THE_FILE]
)
def test_a_file_that_cannot_be_used_is_refused_everywhere_in_the_same_words(
    command: Command, path: Path, change: Change, message: str
) -> None:
    """Before anything is replayed or fitted, also in a column that nobody asked for."""
    _changed(path, change)
    assert _refused(_eval(command, path), path) == f"table made.parquet: {message}"
    fitting = command("calibrate", "--table", str(path), *_ROLES, "--out", str(path.with_name("c.json")))
    assert _refused(fitting, path) == f"table made.parquet: {message}"


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (_without("large"), (), "table made.parquet: no column large; scorers of this table are bm25, dense, small"),
        (_without("dense"), (), "table made.parquet: no column dense; scorers of this table are bm25, large, small"),
        (
            _with("small", lambda row: "high"),
            (),
            "table made.parquet: column small holds no scores; scorers of this table are bm25, dense, large",
        ),
        (
            _with("large", lambda row: None, pa.float64()),
            (),
            "no query has scores of both small and large",
        ),
        (_with("rel", lambda row: 0), (), "column rel: none of the 40 queries has a relevant document"),
        (
            _metadata(k=10),
            (),
            "table made.parquet: metadata cascade: it was made for k = 10, and --k is 5",
        ),
        (
            _metadata(counts={"failed": 3}),
            (),
            f"table made.parquet: 3 queries failed when it was collected and are not in it; {_AGAIN}",
        ),
        (
            _metadata(joined=[{"counts": {"failed": 1}}, {"counts": {"failed": 1}}, {}]),
            (),
            f"table made.parquet: 2 queries failed when it was collected and are not in it; {_AGAIN}",
        ),
        (
            lambda table: table,
            ("--where", "source=a", "--where", "source=b"),
            "table made.parquet: column source: no query has the value asked for; there are a",
        ),
        (
            lambda table: table,
            ("--where", "q_class=other"),
            "table made.parquet: no column q_class; beside scores this table has source, tokens",
        ),
        (
            _with("note", lambda row: f"note {row}"),
            ("--where", "note=x"),
            "table made.parquet: column note: query q1-000 has several values",
        ),
        (lambda table: table, ("--workers", "threads"), "--workers: write ray, or ray:N with N local workers"),
    ],
)  # fmt: skip
def test_what_an_evaluation_cannot_be_of_is_refused(
    command: Command, path: Path, change: Change, more: tuple[str, ...], message: str
) -> None:
    """A scorer that is not there, nothing that is relevant, another k, a choice that is empty, half a collection."""
    _changed(path, change)
    assert _refused(_eval(command, path, *more), path) == message


def test_a_collection_that_was_interrupted_is_refused(command: Command, path: Path) -> None:
    """There is a journal and no table yet."""
    path.with_name("t.parquet.journal").touch()
    told = _refused(_eval(command, path.with_name("t.parquet")), path.with_name("t.parquet"))
    assert told == "table t.parquet: it is not collected to its end; run the same cascade collect again to go on"


def _notes(command: Command, path: Path, *more: str) -> list[str]:
    assert _eval(command, path, *more).status == 0
    notes: list[str] = json.loads(path.with_name("report.json").read_text(encoding="utf-8"))["notes"]
    return notes


@pytest.mark.parametrize(
    ("change", "more", "note"),
    [
        (
            _metadata(counts={"failed": 3}),
            ("--unfinished",),
            "table made.parquet: 3 queries failed when it was collected and are not in it",
        ),
        (
            _with("rel", lambda row: int(row > 60)),
            (),
            "3 queries have no relevant document and stay in every mean with 0",
        ),
        (
            _with("large", lambda row: None if row in {1, 2, 45} else float(row % 20)),
            (),
            "3 pairs of 2 queries have no large score (large): they stay candidates, behind those that have one",
        ),
        (
            _with("small", lambda row: np.nan if row <= 20 else float(row % 20)),
            (),
            "1 queries that a reranker scored no candidate of are left out",
        ),
        (lambda table: table, ("--depth", "50"), "--depth is 50, and no query has more than 20 candidates"),
    ],
)  # fmt: skip
def test_what_is_left_out_or_missing_is_told(
    command: Command, path: Path, change: Change, more: tuple[str, ...], note: str
) -> None:
    """An evaluation is never silently smaller."""
    _changed(path, change)
    assert note in _notes(command, path, *more)


def test_a_calibration_of_another_k_is_told(command: Command, path: Path) -> None:
    """What is fitted goes by its own k, which stands in the report beside the figures of --k."""
    write_table(path, made_table(12, 12))
    calibration = path.with_name("calibration.json")
    calibration.write_bytes(artefact_bytes(made_artefact()))
    notes = _notes(command, path, "--calibration", str(calibration), "--k", "7")
    told = (
        "--k is 7, and the calibration estimates the top 1, 3, 5, 10: what is fitted goes by the top 5, quality is at 7"
    )
    assert told in notes


def test_a_query_that_two_tables_have_is_refused(command: Command, path: Path) -> None:
    """It would count twice."""
    other = path.with_name("other.parquet")
    write_table(other, made_table())
    done = _eval(command, path, "--table", str(other))
    assert _refused(done, path) == "40 queries are in more than one table; each counts once"


def test_fitting_refuses_half_a_collection_too(command: Command, path: Path) -> None:
    """With --unfinished it goes on, to the next refusal: forty queries are too few."""
    _changed(path, _metadata(counts={"failed": 3}))
    fit = ("calibrate", "--table", str(path), *_ROLES, "--out", str(path.with_name("c.json")))
    assert _AGAIN in command(*fit).err
    assert "calibrating needs 100" in command(*fit, "--unfinished").err
