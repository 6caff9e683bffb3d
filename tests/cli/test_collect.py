"""``cascade collect``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.replay.table import read_table
from cascade.rollout.load import default_release_path
from cascade.testing.upstream import FakeTei, overlap
from tests.cli.conftest import Command, WriteRelease
from tests.e2e.processes import listening

_OWN = Path(__file__).parents[2] / "evals" / "collections" / "lighthouse"


@pytest.fixture
def server() -> FakeTei:
    """Give a server that scores shared words."""
    return FakeTei()


@pytest.fixture
def address(server: FakeTei) -> Iterator[str]:
    """Have it listen; give its address."""
    with listening(server) as url:
        yield url


@pytest.fixture
def both(address: str, release: WriteRelease) -> str:
    """Give a release whose two stages are the server."""
    stage = {"adapter": "tei", "url": address, "engine": "tei/1.9"}
    return release(
        stages={"small": {**stage, "model": "little"}, "large": {**stage, "model": "big"}},
        depth=5,
        escalation={"kind": "static", "top_m": 2},
    )


def _arguments(out: Path, release: str, *more: str) -> tuple[str, ...]:
    return ("collect", "--dataset", str(_OWN), "--release", release, "--out", str(out), "--depth", "5", *more)


def test_a_collection_becomes_a_table(command: Command, both: str, tmp_path: Path, server: FakeTei) -> None:
    """Every query's candidates are scored by both stages; one line says what was written, and nothing else stays."""
    out = tmp_path / "t.parquet"
    done = command(*_arguments(out, both))
    assert (done.status, done.err) == (0, "")
    assert done.out == f"{out}: 19 queries, 89 rows; left out: none\n"
    table = read_table(out)
    assert set(table.scores) == {"bm25", "small", "large"}
    assert table.conditions["scorers"]["large"]["fingerprint"]["model"] == "big"
    assert table.conditions["observed"]["large"]["version"] == "1.9.0"
    assert len(server.posts) == 2 * 19
    assert {path.name for path in tmp_path.iterdir()} == {"release.yaml", "t.parquet"}


def test_options_choose_queries_scorers_and_names(command: Command, both: str, tmp_path: Path) -> None:
    """A few queries, one stage under another name, two at a time, judged by another file."""
    out = tmp_path / "t.parquet"
    qrels = tmp_path / "dev.tsv"
    qrels.write_text("q01\tx\t3\nq02\tx\t1\nq03\tx\t1\n")
    options = ("--queries", "2", "--scorers", "large", "--name", "large=big", "--concurrency", "2")
    done = command(*_arguments(out, both, "--qrels", str(qrels), *options))
    table = read_table(out)
    assert (done.status, set(table.scores)) == (0, {"bm25", "big"})
    assert len(table.query_ids) == 2
    assert set(table.query_ids) <= {"q01", "q02", "q03"}
    assert set(table.attributes) == {
        "source",
        "tokens",
        "ms_big",
        "q_tokens",
        "q_class",
        "q_identifiers",
        "q_text_sha256",
    }


def test_ctrl_c_keeps_what_is_done_and_the_next_run_goes_on(
    command: Command, both: str, tmp_path: Path, server: FakeTei
) -> None:
    """The exit status is 130 with a hint, no table is there, and only what was left is asked for afterwards."""
    out = tmp_path / "t.parquet"

    def interrupting(query: str, text: str) -> float:
        if len(server.posts) >= 21:
            server.score_of = overlap
            os.kill(os.getpid(), signal.SIGINT)
        return overlap(query, text)

    server.score_of = interrupting
    before_this = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a process of its own
    try:
        done = command(*_arguments(out, both))
    finally:
        signal.signal(signal.SIGINT, before_this)
    journal = out.with_name("t.parquet.journal")
    assert (done.status, done.out) == (130, "")
    assert done.err == f"cascade: interrupted; {journal} keeps what is done: run the same again to go on\n"
    assert not out.exists()
    kept = journal.read_bytes().count(b"\n") - 1
    assert 10 <= kept < 19  # the signal comes while the eleventh is under way
    before = len(server.posts)
    assert command(*_arguments(out, both)).status == 0
    assert len(server.posts) - before == 2 * (19 - kept)
    assert len(read_table(out).query_ids) == 19
    assert not journal.exists()


def test_a_query_without_a_candidate_is_counted(command: Command, both: str, tmp_path: Path) -> None:
    """It has no row, which is told, and is no failure."""
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "a lamp"}\n{"_id": "b", "text": "bread"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "lamp"}\n{"_id": "q2", "text": "zebra"}\n')
    out = tmp_path / "t.parquet"
    done = command("collect", "--dataset", str(tmp_path), "--release", both, "--out", str(out))
    assert (done.status, done.err) == (0, "")
    assert done.out == (f"{out}: 1 queries, 1 rows; left out: none\n1 queries have no candidate, and so no row\n")


def test_a_server_that_is_down_is_exit_1(command: Command, release: WriteRelease, tmp_path: Path) -> None:
    """Where every query fails no table is written; the reasons and what to do are told, without a traceback."""
    down = {"adapter": "tei", "url": "http://127.0.0.1:9", "model": "m", "engine": "tei/1.9", "connect_ms": 50}
    out = tmp_path / "t.parquet"
    done = command(*_arguments(out, release(stages={"small": down}, depth=5), "--queries", "2"))
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "cascade: 2 queries failed, no table was written: small: breaker_open (breaker_open); small: stage_unreachable "
        "(refused). "
        f"{out}.journal keeps what is done: run the same again to try what is left\n"
    )
    assert not out.exists()


def test_a_server_of_another_kind_is_exit_2(command: Command, both: str, tmp_path: Path, server: FakeTei) -> None:
    """A server that embeds and does not rerank is told before any query."""
    server.model_type = "embedding"
    done = command(*_arguments(tmp_path / "t.parquet", both))
    assert (done.status, done.out, server.posts) == (2, "", [])
    assert done.err.startswith("cascade: stage small: its server cannot be used: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--dataset": "nowhere"}, "dataset nowhere: there is no such folder"),
        ({"--out": "no/t.parquet"}, "no/t.parquet: its folder is not there"),
        ({"--scorers": "tiny"}, "scorers: no stage 'tiny'; there are small, large"),
        ({"--name": "small=rel"}, "name: a column of scores cannot be called 'rel'"),
        ({"--qrels": "no.tsv"}, "no.tsv: cannot be read: FileNotFoundError"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    command: Command, both: str, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """What is wrong is told before any stage is asked."""
    options = {"--dataset": str(_OWN), "--out": str(tmp_path / "t.parquet"), "--release": both, **changes}
    done = command("collect", *(part for option in options.items() for part in option))
    assert (done.status, done.out, done.err) == (2, "", f"cascade: {message}\n")


def test_dense_without_an_embedding_stage_is_exit_2(command: Command, both: str, tmp_path: Path) -> None:
    """The default release has one; this one has not."""
    done = command(*_arguments(tmp_path / "t.parquet", both, "--dense"))
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("cascade: dense: the release has no stage of the adapter onnx-embedding")


def test_the_embedding_stage_of_the_default_release_collects_with_its_own_vectors(
    command: Command, tmp_path: Path
) -> None:
    """It scores a few queries of the own collection, with the dense channel beside BM25."""
    data = yaml.safe_load(default_release_path().read_text(encoding="utf-8"))
    for name in ("levels", "evidence"):
        del data[name]
    data |= {"stages": {"small": data["stages"]["small"]}, "escalation": "none"}
    path, out = tmp_path / "release.yaml", tmp_path / "t.parquet"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    options = ("--release", str(path), "--out", str(out), "--depth", "3", "--queries", "2", "--dense")
    done = command("collect", "--dataset", str(_OWN), *options)
    assert (done.status, done.err) == (0, "")
    table = read_table(out)
    assert set(table.scores) == {"bm25", "dense", "small"}
    assert len(table.doc_ids) == 6
    found = table.column("dense") == table.column("dense")
    assert table.column("dense")[found] == pytest.approx(table.column("small")[found], abs=1e-6)
