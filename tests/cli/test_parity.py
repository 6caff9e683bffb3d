"""``cascade parity``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from cascade.cli.parity import parity
from cascade.errors import ConfigError
from cascade.replay.collection import load_collection
from cascade.replay.first_stage import FirstStage
from cascade.replay.table import ScoreTable, write_table
from cascade.testing.rerank_api import FakeLlamaCpp
from cascade.testing.upstream import FakeTei, FakeVllm, overlap
from evals.first_stage import shared_data
from tests.e2e.processes import listening
from tests.logs import logging_given_back
from tests.replay.made import made_table

_OWN = Path(__file__).parents[2] / "evals" / "collections" / "lighthouse"
_MODELS = Path(__file__).parents[1] / "fixtures" / "models"


@dataclass(frozen=True, slots=True)
class Done:
    """How the command ended, what it printed and what it wrote."""

    status: int
    out: str
    report: dict[str, Any]


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Give a function that runs the command with a report; errors of ours are raised."""
    app = typer.Typer()
    app.command()(parity)

    def go(*arguments: str) -> Done:
        out = tmp_path / "parity.json"
        done = CliRunner().invoke(app, [*arguments, "--out", str(out)])
        if isinstance(done.exception, ConfigError):
            raise done.exception
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return Done(done.exit_code, done.stdout, json.loads(out.read_bytes()))

    with logging_given_back():
        yield go


def _written(path: Path, **fields: Any) -> str:
    write_table(path, made_table(**fields))
    return str(path)


def _from(side: ScoreTable, path: Path) -> str:
    write_table(path, side)
    return str(path)


def test_two_columns_of_a_table_that_agree_exit_0(run: Run, tmp_path: Path) -> None:
    """The same column under two names keeps every limit; the report says so, and so does the terminal."""
    base = made_table(candidates=30)
    scores = dict(base.scores)
    scores["again"] = scores["large"] + 1e-4
    path = _from(made_table(candidates=30, scores=scores), tmp_path / "t.parquet")
    done = run(f"{path}#large", f"{path}#again")
    assert done.status == 0
    assert "40 queries, 1200 pairs (t.parquet and t.parquet)" in done.out
    assert "within every limit that could be measured" in done.out
    assert done.report["passed"] is True
    assert done.report["agreement"]["max_error"] == pytest.approx(1e-4, rel=1e-3)
    assert done.report["quality"]["ndcg"]["delta"] == 0.0
    assert done.report["ref"]["table"] == "t.parquet"
    assert str(tmp_path) not in json.dumps(done.report)


def test_tables_that_differ_exit_1_and_say_by_what(run: Run, tmp_path: Path) -> None:
    """Another reranker: limits that are not kept, flips by margin, the loss with its interval."""
    path = _written(tmp_path / "t.parquet")
    done = run(f"{path}#large", f"{path}#small", "--k", "5")
    assert done.status == 1
    assert "OUTSIDE" in done.out
    assert "NOT KEPT" in done.out
    broken = {check["name"] for check in done.report["checks"] if check["passed"] is False}
    assert {"max_error", "kendall", "overlap", "large_flips", "ndcg_loss"} <= broken
    low, high = done.report["quality"]["ndcg"]["interval"]
    assert low < done.report["quality"]["ndcg"]["delta"] < high
    assert sum(bucket["comparisons"] for bucket in done.report["flips"]) == 40 * 190
    wide = (
        "--max-error",
        "9",
        "--min-pearson",
        "0",
        "--min-kendall",
        "0",
        "--min-overlap",
        "0",
        "--max-large-flips",
        "1",
    )
    assert run(f"{path}#large", f"{path}#small", *wide, "--max-ndcg-loss", "1").status == 0


def test_a_double_sigmoid_between_tables_is_told(run: Run, tmp_path: Path) -> None:
    """With the space declared, or not."""
    base = made_table()
    scores = {name: values for name, values in base.scores.items() if name == "large"}
    scores["large"] = 1 / (1 + np.exp(-3 * scores["large"]))
    scores["twice"] = 1 / (1 + np.exp(-scores["large"]))
    path = _from(made_table(scores=scores), tmp_path / "t.parquet")
    for options in ((), ("--ref-space", "probability", "--cand-space", "probability")):
        done = run(f"{path}#large", f"{path}#twice", *options)
        assert done.status == 1
        assert done.report["score_space"]["found"] == "y = sigmoid(x)"
        assert "CAND looks like sigmoid(sigmoid(logit))" in done.out
        assert done.report["agreement"]["kendall"]["mean"] == 1.0


def test_pairs_of_one_table_alone_are_counted_and_outside(run: Run, tmp_path: Path) -> None:
    """CAND lacks a query and a score: both are told, with the first pair."""
    base = made_table()
    scores = {name: values.copy() for name, values in base.scores.items()}
    scores["large"][3] = np.nan
    ref = _from(base, tmp_path / "r.parquet")
    cand = _from(made_table(scores=scores).take(range(39)), tmp_path / "c.parquet")
    done = run(f"{ref}#large", f"{cand}#large")
    assert done.status == 1
    assert done.report["coverage"]["queries_only_ref"] == 1
    assert done.report["coverage"]["only_ref"] == {"pairs": 1, "first": ["q1-000", "d003"]}
    assert "1 pairs have a score at REF and none at CAND; the first is query q1-000, document d003" in done.out
    assert {check["name"] for check in done.report["checks"] if check["passed"] is False} == {"missing_at_cand"}
    assert run(f"{ref}#large", f"{cand}#large", "--max-missing", "0.1").status == 0


def test_an_endpoint_that_activates_twice_exits_1(run: Run) -> None:
    """Over a collection: CAND makes probabilities of probabilities; no order changes, and both count the same tokens."""

    def logit(query: str, text: str) -> float:
        return 3 * overlap(query, text) - 4

    def probability(query: str, text: str) -> float:
        return float(1 / (1 + np.exp(-logit(query, text))))

    with (
        listening(FakeVllm(score_of=logit, max_length=4096)) as vllm,
        listening(FakeTei(score_of=probability)) as tei,
    ):
        done = run(
            f"vllm+{vllm}#model=fake/reranker,score_space=probability",
            f"tei+{tei}#score_space=probability",
            *("--dataset", str(_OWN), "--queries", "12", "--depth", "6", "--k", "3"),
        )
    assert done.status == 1
    assert done.report["score_space"]["found"] == "y = sigmoid(x)"
    assert "CAND looks like sigmoid(sigmoid(logit))" in done.out
    assert done.report["agreement"]["kendall"]["mean"] == 1.0
    assert done.report["quality"]["ndcg"]["delta"] == 0.0
    assert (done.report["coverage"]["queries"], done.report["built_in"]["agreement"]["queries"]) == (12, 20)
    assert done.report["ref"]["kind"] == done.report["cand"]["kind"] == "endpoint"
    assert done.report["ref"]["memory_bytes"] is None
    assert done.report["ref"]["reasons"]["memory_bytes"] == "it runs in another process"
    assert done.report["cand"]["observed"]["version"] == "1.9.0"
    assert done.report["cand"]["ms_per_pair"]["calls"] == 12 + 20
    assert done.report["tokens"]["kind"] == "counts"
    assert "127.0.0.1" not in json.dumps(done.report)


def test_a_table_is_held_against_the_server_that_made_it(run: Run, tmp_path: Path) -> None:
    """With the texts of its collection: the same scores, and contrasts of the server alone."""
    texts = load_collection(_OWN)
    stage = FirstStage(texts)
    found = {name: [document for document, _ in stage.search(query, 5)] for name, query in texts.queries.items()}
    pairs = [(name, document) for name in sorted(found) for document in found[name] if found[name]]
    names = sorted({name for name, _ in pairs})
    counts = [sum(query == name for query, _ in pairs) for name in names]
    whole = ScoreTable(
        tuple(names),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        tuple(document for _, document in pairs),
        {"large": np.array([overlap(texts.queries[name], texts.documents[document]) for name, document in pairs])},
    )
    path = _from(whole, tmp_path / "t.parquet")
    with listening(FakeTei()) as url:
        done = run(f"{path}#large", f"tei+{url}", "--dataset", str(_OWN), "--ref-space", "logit")
    assert done.status == 0
    assert done.report["agreement"]["max_error"] == 0.0
    assert done.report["coverage"]["pairs"] == len(pairs)
    assert done.report["tokens_reason"] == "a table: nothing was scored anew"
    assert "Contrast pairs right: CAND" in done.out


def test_embedded_stages_are_named_by_release(run: Run, tmp_path: Path) -> None:
    """The same weights twice, once with another window: token ids differ, and only at over-length pairs."""
    shutil.copy(_MODELS / "micro-ce.onnx", tmp_path / "model.onnx")
    shutil.copy(_MODELS / "micro-ce" / "tokenizer.json", tmp_path / "tokenizer.json")
    release = tmp_path / "r.yaml"
    stage: dict[str, Any] = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "attention": "exported"}
    stage |= {"weights": {"folder": str(tmp_path)}}
    release.write_text(
        json.dumps(
            {
                "release": "two",
                "stages": {"small": {**stage, "max_length": 64}, "large": {**stage, "max_length": 32}},
                "depth": 10,
                "escalation": {"kind": "static", "top_m": 5},
                "budgets": {"total_ms": 1000, "small_ms": 100, "large_ms": 100, "reserve_ms": 10},
            }
        )
    )
    same = run(f"{release}#small", f"{release}#small")
    assert same.status == 0
    assert same.report["tokens"]["differing"] == 0
    assert same.report["ref"]["kind"] == "stage"
    other = run(f"{release}#small", f"{release}#large")
    assert other.report["tokens"]["kind"] == "ids"
    assert other.report["tokens"]["differing"] > 0
    assert other.status == 1
    assert other.report["conditions"]["max_length"] == 32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("t.parquet#a", "x"), "CAND: write TABLE"),
        (("t.parquet#a", "t.parquet#b"), "table t.parquet: there is no such file"),
        (("default#small", "none.yaml#large"), "release none.yaml: "),
        (("vllm+http://127.0.0.1:9", "default#large"), "REF: stages.large.vllm.model: Field required"),
        (("default#large", "default#large", "--queries", "5"), "--queries needs a --dataset"),
        (("t.parquet#a", "t.parquet#b", "--max-error", "inf"), "max_error: a limit is a finite number"),
        (("t.parquet#a", "t.parquet#b", "--min-kendall", "nan"), "min_kendall: a limit is a finite number"),
        (("default#large", "default#large", "--ref-space", "logit"), "--ref-space is for tables"),
        (("default#large", "default#large", "--dataset", "nowhere"), "dataset nowhere: there is no such folder"),
    ],
)
def test_bad_input_is_told_before_anything_is_scored(run: Run, arguments: tuple[str, ...], message: str) -> None:
    """By option, file or side."""
    with pytest.raises(ConfigError) as told:
        run(*arguments)
    assert message in str(told.value)


def test_what_tables_cannot_do_is_told_by_file_and_column(run: Run, tmp_path: Path) -> None:
    """A column that is not there, text that no table holds, a dataset beside two tables, too few queries."""
    path = _written(tmp_path / "t.parquet", queries=9)
    cases = {
        ("none", "large"): "table t.parquet: no column none; scorers of this table are bm25, dense, large, small",
        ("large", "small"): "only 9 queries can be compared",
    }
    for (ref, cand), message in cases.items():
        with pytest.raises(ConfigError) as told:
            run(f"{path}#{ref}", f"{path}#{cand}")
        assert message in str(told.value)
    with pytest.raises(ConfigError, match="--dataset does not go with two tables"):
        run(f"{path}#large", f"{path}#small", "--dataset", str(_OWN))
    with pytest.raises(ConfigError, match="a table holds no text: name the --dataset"):
        run(f"{path}#large", "default#large")
    assert run(f"{path}#large", f"{path}#large", "--allow-few").status == 0


def test_a_report_that_cannot_be_written_is_told_first(tmp_path: Path) -> None:
    """Before anything is scored."""
    app = typer.Typer()
    app.command()(parity)
    with logging_given_back():
        done = CliRunner().invoke(app, ["default#large", "default#large", "--out", str(tmp_path / "no" / "p.json")])
        assert "its folder is not there" in str(done.exception)
        path = _written(tmp_path / "t.parquet")
        done = CliRunner().invoke(app, [f"{path}#large", f"{path}#large", "--out", str(tmp_path)])
        assert "it is no file" in str(done.exception)


def test_a_release_without_the_stage_and_a_server_that_is_none(run: Run, tmp_path: Path) -> None:
    """Both are told with the side's name."""
    release = tmp_path / "r.yaml"
    release.write_text(
        '{"release": "bare", "stages": {}, "depth": 0, "escalation": "none", '
        '"budgets": {"total_ms": 1000, "small_ms": 100, "large_ms": 100, "reserve_ms": 10}}'
    )
    with pytest.raises(ConfigError, match="CAND: the release bare has no small stage"):
        run("tei+http://127.0.0.1:9", f"{release}#small")
    with listening(FakeLlamaCpp(reranking=False)) as url, pytest.raises(ConfigError, match="REF: does not score"):
        run(f"llamacpp+{url}#model=m", f"llamacpp+{url}#model=m")
    path = _written(tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match="the collection lighthouse has the text of none of its pairs"):
        run("tei+http://127.0.0.1:9", f"{path}#large", "--dataset", str(_OWN))


@pytest.mark.data
def test_real_columns_are_told_apart(run: Run) -> None:
    """JQaRA's small and large cross-encoder: another model, better on judgements, and no double sigmoid."""
    path = shared_data() / "jqara.parquet"
    if not path.exists():
        pytest.skip("shared data is not here")
    done = run(f"{path}#ce_ja_xsmall", f"{path}#ce_bge_v2_m3", "--queries", "100")
    assert done.status == 1
    assert done.report["coverage"]["pairs"] == 10_000
    assert done.report["quality"]["ndcg"]["interval"][0] > 0.02
    assert done.report["score_space"]["found"] == "none of these"
    same = run(f"{path}#ce_bge_v2_m3", f"{path}#ce_bge_v2_m3", "--queries", "100")
    assert same.status == 0
