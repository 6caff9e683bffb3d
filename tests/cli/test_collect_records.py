"""``cascade collect --from-records``."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.replay.table import read_table
from tests.cli.conftest import Command
from tests.replay.records import decision_line, head_line, scorer, write_records

_B = "b" * 16


def test_files_of_records_become_a_table(command: Command, tmp_path: Path) -> None:
    """Several files are named behind the option; columns are named as asked; what was left out is told."""
    first = write_records(tmp_path / "a", [head_line(), decision_line(), decision_line(large=[None] * 3)])
    channels = {"bm25": [1.0, 2.0, 3.0], "bm25_rank": [1.0, 2.0, 3.0]}
    second = write_records(tmp_path / "b", [head_line(), decision_line(query_hash=_B, channels=channels)])
    out = tmp_path / "t.parquet"
    done = command("collect", "--from-records", str(first), str(second), "--out", str(out), "--name", "large=big")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{out}: 2 queries, 6 rows, from 3 records",
        "1 without all scores of both stages, left out",
        "channels left out, as no column of scores is called so: bm25_rank",
    ]
    table = read_table(out)
    assert set(table.scores) == {"bm25", "small", "big"}
    assert table.conditions["scorers"]["big"]["fingerprint"]["model"] == "big"


def test_all_that_was_not_used_is_told(command: Command, tmp_path: Path) -> None:
    """Each line of the report counts one thing; one that counts nothing is not there."""
    servers = [{"large": scorer("large", "big", {"version": version})} for version in ("1", "2")]
    lines = [
        head_line(id="1" * 16, scorers=servers[0]),
        head_line(id="2" * 16, scorers=servers[1], mode="cascade"),
        head_line(id="3" * 16, release_digest="sha256:other"),
        head_line(id="4" * 16, scorers=servers[1], key="f" * 16),
        decision_line(head="1" * 16, query_hash="1" * 16),
        decision_line(head="2" * 16, query_hash="2" * 16, time="2026-11-30T00:00:00.000Z"),
        decision_line(head="2" * 16, query_hash="2" * 16),
        decision_line(head="2" * 16, query_hash="3" * 16, large=[1.0, None, None]),
        decision_line(head="3" * 16),
        decision_line(head="4" * 16, query_hash="4" * 16),
        decision_line(head="5" * 16),
        decision_line(head="4" * 16, query_hash="5" * 16, arm="shadow", of="id-1"),
        {"kind": "else"},
    ]
    path = write_records(tmp_path / "a", lines)
    path.write_bytes(path.read_bytes() + b'{"kind": "de')
    out = tmp_path / "t.parquet"
    done = command("collect", "--from-records", str(path), "--out", str(out), "--all", "--release-digest", "sha256:r1")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{out}: 3 queries, 9 rows, from 5 records",
        "1 older ones of a query that came again",
        "1 without all scores of both stages, kept as they are",
        "1 of other releases",
        "1 scored while a server said otherwise of itself than at the end",
        "1 of shadows: they answered no request",
        "1 lines torn",
        "1 lines that are no record of this version",
        "1 records without the line that says what they depend on",
        "1 queries were escalated whole by their release: no sample of the traffic; q_mode=observe takes the others",
        "2 hash keys: a query under two of them is in the table twice",
    ]


def test_where_all_were_chosen_by_a_release_nothing_else_is_advised(command: Command, tmp_path: Path) -> None:
    """There are no queries of mode observe that could be taken."""
    path = write_records(tmp_path / "a", [head_line(mode="cascade"), decision_line()])
    done = command("collect", "--from-records", str(path), "--out", str(tmp_path / "t.parquet"))
    assert done.out.splitlines()[1:] == ["1 queries were escalated whole by their release: no sample of the traffic"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "name either --dataset or --from-records"),
        (("--from-records", "r", "--dataset", "d"), "--dataset does not go with --from-records"),
        (("--from-records", "r", "--queries", "5"), "--queries does not go with --from-records"),
        (("--dataset", "d", "r"), "files of decision records are named behind --from-records"),
        (("--from-records", "none"), "records none: cannot be read: FileNotFoundError"),
        (("--from-records", "r", "--name", "small=q_x"), "name: a column of scores cannot be called 'q_x'"),
    ],
)
def test_what_does_not_go_together_is_exit_2(
    command: Command, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    """One line says what is wrong, and nothing is written."""
    done = command("collect", *arguments, "--out", str(tmp_path / "t.parquet"))
    assert (done.status, done.out, done.err) == (2, "", f"cascade: {told}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_there_is_not_replaced(command: Command, tmp_path: Path) -> None:
    """What took a night to collect is not lost to a second command."""
    path = write_records(tmp_path / "a", [head_line(), decision_line()])
    out = tmp_path / "t.parquet"
    out.write_bytes(b"table")
    done = command("collect", "--from-records", str(path), "--out", str(out))
    assert done.status == 2
    assert "is there already" in done.err
    assert out.read_bytes() == b"table"
