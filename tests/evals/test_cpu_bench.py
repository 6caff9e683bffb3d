"""The benchmark of scoring on a CPU measures what it says, with the same pairs and weights for all."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from cascade.stages.graph.graph import read_graph
from evals.bench.cpu import Bench, main
from evals.bench.cpu_engines import ENGINES, Engine, command, named
from evals.bench.cpu_figures import Cell, aims, figures, greatest_difference, summary, table
from evals.bench.cpu_models import torch_tensors, write_safetensors
from evals.bench.cpu_pairs import WORKLOADS, Request, requests_of, texts_of
from evals.bench.cpu_process import EngineFailed, scorer
from tests.engines.environments import Environment

_MODELS = Path(__file__).parents[1] / "fixtures" / "models"
_TOKENIZER = _MODELS / "micro-ce" / "tokenizer.json"
_WORKER = Path(__file__).parents[2] / "evals" / "bench" / "peers" / "worker.py"
_FAKE = """
class TextCrossEncoder:
    @classmethod
    def add_custom_model(cls, **_): pass
    def __init__(self, name, specific_model_path): print("loading noise")
    def rerank(self, query, documents, batch_size=64):
        print("scoring noise")
        return (float(len(query) * 1000 + len(text) + batch_size / 100) for text in documents)
"""


_DYING = """
import json, sys
print(json.dumps({"load_s": 0.1, "output": "logit", "versions": {}}), flush=True)
request = json.loads(sys.stdin.readline())
print(json.dumps({"scores": [0.0] * len(request["documents"]), "seconds": 0.1}), flush=True)
sys.stdin.readline()
raise SystemExit("no memory left")
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder laid out as the benchmark's, with a small model as int8 and as its fused form."""
    made = tmp_path_factory.mktemp("cpu-bench")
    for name in ("int8", "int8-fused"):
        (made / name).mkdir()
        shutil.copy(_MODELS / "micro-ce.onnx", made / name / "model.onnx")
        shutil.copy(_TOKENIZER, made / name)
    return made


def _requests(workload: str = "short", requests: int = 2) -> list[Request]:
    return requests_of(texts_of(None, 0), _TOKENIZER, WORKLOADS[workload], requests=requests, candidates=6, seed=1)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_pairs_are_as_long_as_the_workload_says(workload: str) -> None:
    """As the tokenizer counts them, and the same ones every time."""
    requests = _requests(workload)
    least, most = WORKLOADS[workload]
    reader = tokenizers.Tokenizer.from_file(str(_TOKENIZER))
    reader.no_truncation()
    counted = [[len(reader.encode(request.query, text).ids) for text in request.documents] for request in requests]
    assert counted == [list(request.tokens) for request in requests]
    every = [tokens for tokens_of in counted for tokens in tokens_of]
    assert all(least - 1 <= tokens <= most for tokens in every)
    assert max(every) - min(every) > (most - least) / 4
    assert requests == _requests(workload)


def test_the_engine_scores_as_a_plain_loop_does(folder: Path) -> None:
    """Through its own process, as the stage of a release, with memory and versions told."""
    bench = Bench("int8", folder, {"short": _requests(), "mixed": _requests("mixed")}, seed=0)
    bench.measure({name: ENGINES[name] for name in ("cascade", "cascade-exported")}, 2, sweep=True)
    assert not bench.failed
    assert {name: told["attention"] for name, told in bench.told.items()} == {
        "cascade": "exact",
        "cascade-exported": "exported",
    }
    assert set(bench.cells) == {"cascade", "cascade-exported"}
    for of_engine in bench.cells.values():
        assert {name: len(cell.rounds) for name, cell in of_engine.items()} == {"short": 2, "mixed": 2}
        assert all(cell.difference == 0.0 for cell in of_engine.values())
    assert bench.told["cascade"]["peak_mib"] > 20
    assert "onnxruntime" in bench.told["cascade"]["versions"]


def test_an_engine_that_does_not_load_is_told_and_left_out(folder: Path, tmp_path: Path) -> None:
    """By the last line that it wrote; the others go on."""
    bench = Bench("int8", folder, {"short": _requests(requests=1)}, seed=0)
    bench.measure(
        {"cascade": Engine("cascade", folder="-absent"), "cascade-fused": ENGINES["cascade-fused"]}, 1, sweep=False
    )
    assert "model.onnx is not in" in bench.failed["cascade"]
    assert set(bench.cells) == {"cascade-fused"}


@pytest.mark.parametrize("sweep", [False, True])
def test_an_engine_that_dies_at_work_is_told_and_left_out(folder: Path, tmp_path: Path, sweep: bool) -> None:
    """In a round or in the sweep, with all its settings; what the others came to is not lost."""
    dying = tmp_path / "dying.py"
    dying.write_text(_DYING, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f"#!/bin/sh\nexec {sys.executable} {dying}\n", encoding="utf-8")
    (tmp_path / "bin" / "python").chmod(0o700)
    engine = Engine("fastembed", environment=Environment(tmp_path / "none", tmp_path), sweeps=True)
    bench = Bench("int8", folder, {"short": _requests(requests=1)}, seed=0)
    bench.measure({"fastembed": engine, "cascade": ENGINES["cascade"]}, 1, sweep=sweep)
    expected = {"fastembed", "fastembed-best"} if sweep else {"fastembed"}
    assert bench.failed == dict.fromkeys(expected, "no memory left")
    assert set(bench.cells) == set(bench.told) == {"cascade"}
    assert len(bench.cells["cascade"]["short"].rounds) == 1


def test_a_library_is_asked_in_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its default batch or the one that is asked for; what it prints is no answer."""
    for part in ("common/model_description", "rerank/cross_encoder"):
        path = tmp_path / "fastembed" / f"{part}.py"
        path.parent.mkdir(parents=True)
        path.write_text(_FAKE if "rerank" in part else "def ModelSource(hf): pass\n", encoding="utf-8")
    for package in ("fastembed", "tokenizers", "onnxruntime"):
        (tmp_path / f"{package}-7.8.dist-info").mkdir()
        (tmp_path / f"{package}-7.8.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 7.8\n", encoding="utf-8"
        )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = json.dumps({"engine": "fastembed", "folder": str(tmp_path)})
    request = Request("ab", ("x", "yyy"), (3, 5))
    with scorer([sys.executable, str(_WORKER), asked]) as process:
        assert process.loaded["versions"]["fastembed"] == "7.8"
        assert process.loaded["output"] == "logit"
        assert process.score(request, None)[0] == [2001.64, 2003.64]
        scores, seconds = process.score(request, 4)
    assert scores == [2001.04, 2003.04]
    assert seconds > 0


def test_a_process_that_ends_is_an_error_and_not_a_wait() -> None:
    """It is told by what it wrote last."""
    with (
        pytest.raises(EngineFailed, match="no such library"),
        scorer([sys.executable, "-c", "raise SystemExit('no such library')"]),
    ):
        pass


def test_figures_have_the_shape_that_is_read_by_others() -> None:
    """The median over rounds, the 95th percentile over all requests, by engine and workload."""
    cell = Cell(20, [[1.0, 1.0], [2.0, 3.0], [4.0, 4.0]], 0.5)
    assert figures({"cascade": {"mixed": cell}}) == {"cascade": {"mixed": {"pairs_per_s": 4.0, "p95_ms": 4000.0}}}
    assert summary({"cascade": {"mixed": cell}}) == {
        "cascade": {
            "mixed": {
                "least_pairs_per_s": 2.5,
                "most_pairs_per_s": 10.0,
                "rounds": 3,
                "greatest_difference": 0.5,
            }
        }
    }
    assert "| cascade | 4.0 (2.5 to 10.0) | 4000 | 5.0e-01 | 12 |" in table(
        {"cascade": {"mixed": cell}}, {"cascade": 12.0}
    )


def test_probabilities_are_held_against_logits() -> None:
    """One that is rounded to 1 is no finite logit, and shows."""
    probability = 1.0 / (1.0 + math.exp(-2.5))
    assert greatest_difference([[probability]], [[2.5]], "probability") == pytest.approx(0.0, abs=1e-12)
    assert greatest_difference([[1.0]], [[2.5]], "probability") == math.inf
    assert greatest_difference([[1.0, -3.0]], [[2.5, -3.0]], "logit") == 1.5


def test_aims_are_held_against_the_best_peer_that_is_right() -> None:
    """At its defaults and at its best setting; one that scores something else is no peer."""

    def rate(pairs_per_s: float) -> dict[str, Cell]:
        return {name: Cell(10, [[10 / pairs_per_s]]) for name in ("mixed", "long")}

    cells = {"cascade": rate(30), "a": rate(15), "a-best": rate(20), "wrong": rate(300)}
    assert aims(cells, "cascade", ["a", "a-best", "wrong"], right=["a", "a-best"]) == [
        "cascade on mixed: 2.00 times a, the best peer at its defaults; aim 1.5",
        "cascade on mixed: 1.50 times a-best, the best peer at its best setting; aim 1.25",
        "cascade on long: 1.50 times a-best; aim 1.0",
    ]
    assert aims(cells, "cascade", ["a"], right=["a"]) == [
        "cascade on mixed: 2.00 times a, the best peer at its defaults; aim 1.5",
        "cascade on long: 2.00 times a; aim 1.0",
    ]


def test_torchs_tensors_are_those_that_the_graph_was_exported_from(tmp_path: Path) -> None:
    """By name and number, as the fixture has them in both forms."""
    written = tmp_path / "model.safetensors"
    tensors = {name.removeprefix("m."): value for name, value in torch_tensors(read_graph(_MODELS / "micro-ce.onnx"))}
    write_safetensors(written, tensors)
    original = _safetensors(_MODELS / "micro-ce" / "model.safetensors")
    ours = _safetensors(written)
    assert "bert.encoder.layer.1.output.dense.weight" in ours
    assert "bert.embeddings.word_embeddings.weight" in ours
    for name, value in ours.items():
        np.testing.assert_array_equal(value, original[name], err_msg=name)


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(content[8 + size :][slice(*told["data_offsets"])], "<f4").reshape(told["shape"])
        for name, told in header.items()
    }


def test_names_say_setting_and_precision() -> None:
    """int8 goes unsaid."""
    assert named("fastembed", "int8", best=False) == "fastembed"
    assert named("fastembed", "fp32", best=True) == "fastembed-best-fp32"
    assert "cpu_own" in " ".join(command(ENGINES["cascade"], Path(os.sep), "int8"))


@pytest.mark.parametrize(
    "options",
    [
        ["--engines", "nothing"],
        ["--precision", ""],
        ["--rounds", "0"],
        ["--engines", "cascade", "--collection", "/no/such/folder"],
        ["--engines", "cascade", "--json", "/no/such/file.json"],
    ],
)
def test_what_the_benchmark_does_not_know_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is made or started."""
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err
