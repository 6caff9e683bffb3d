"""The steps of the engine are measured one at a time, beside the default."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evals.bench.cpu_pairs import WORKLOADS, requests_of, texts_of
from evals.bench.cpu_steps import VARIANTS, Variant, main, measured

_MODELS = Path(__file__).parents[1] / "fixtures" / "models"


async def test_every_variant_of_a_float32_model_scores_as_the_default_does(tmp_path: Path) -> None:
    """Threads, sessions, batches, kept ids and a fused graph change the time alone; what attention each ran is told."""
    for name in ("fp32", "fp32-fused"):
        (tmp_path / name).mkdir()
        shutil.copy(_MODELS / "micro-ce.onnx", tmp_path / name / "model.onnx")
        shutil.copy(_MODELS / "micro-ce" / "tokenizer.json", tmp_path / name)
    requests = requests_of(
        texts_of(None, 0), tmp_path / "fp32" / "tokenizer.json", WORKLOADS["short"], requests=2, candidates=5, seed=0
    )
    variants = {**VARIANTS, "of a model that is not there": Variant(folder="-absent")}
    told, refused = await measured(variants, tmp_path / "fp32", requests, 2, 0)
    assert set(told) == set(VARIANTS)
    assert all(row["scores_off_by"] < 1e-4 for row in told.values())
    assert all(row["least"] <= row["pairs_per_s"] <= row["most"] for row in told.values())
    assert next(iter(told)) == "exported graph"
    assert told["exported graph"]["ratio"] == 1.0
    assert {name for name, row in told.items() if row["attention"] == "exact"} == {"exact graph"}
    assert told["exact graph"]["scores_off_by"] == 0.0
    assert set(refused) == {"of a model that is not there"}
    assert "model.onnx" in refused["of a model that is not there"]


@pytest.mark.parametrize("options", [["--rounds", "0"], ["--precision", "fp8"], ["--json", "/no/such/file.json"]])
def test_bad_options_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is made."""
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_can_be_asked_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its name in a list that commas part; what is wrong besides is told, and not that name."""
    with pytest.raises(SystemExit) as ended:
        main(["--only", f"{name}, nothing such"])
    assert ended.value.code == 2
    assert "--only: nothing such of " in capsys.readouterr().err
