"""``cascade weights``."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from cascade.stages.cores import cpu_instructions, has_int8_instructions
from tests.cli.conftest import Command

_FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a float32 cross-encoder, and pairs beside it."""
    made = tmp_path / "model"
    made.mkdir()
    shutil.copy(_FIXTURES / "micro-ce.onnx", made / "model.onnx")
    shutil.copy(_FIXTURES / "micro-ce" / "tokenizer.json", made)
    lines = [f"query {number}\tdocument of the lamp {'keeper ' * place}" for number in range(6) for place in range(12)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    return made


def test_what_is_made_can_be_pasted_into_a_release(command: Command, folder: Path, tmp_path: Path) -> None:
    """Folder and checksums as a stage wants them, and what comes before it serves."""
    out = tmp_path / "fused"
    done = command(
        "weights", "fuse", str(folder), str(out), "--texts", str(tmp_path / "pairs.tsv"), "--max-length", "64"
    )
    assert done.status == 0, done.err
    for name in ("model.onnx", "tokenizer.json"):
        assert f"{name}: {hashlib.sha256((out / name).read_bytes()).hexdigest()}" in done.out
    assert "72 pairs, greatest difference 0.0000" in done.out
    assert "cascade parity" in done.out


def test_a_model_of_a_release_may_be_named(command: Command, folder: Path, tmp_path: Path) -> None:
    """By file and stage; one that is not quantised is refused in a line."""
    release = tmp_path / "mine.yaml"
    release.write_text(
        f"""
release: mine-1
stages: {{large: {{adapter: onnx, model: m, engine: onnxruntime, weights: {{folder: {folder}}}}}}}
depth: 10
escalation: {{kind: static, top_m: 10}}
budgets: {{total_ms: 1000, small_ms: 100, large_ms: 900, reserve_ms: 10}}
""",
        encoding="utf-8",
    )
    done = command("weights", "dequantise", f"{release}#large", str(tmp_path / "out"))
    assert done.status == 2
    assert done.err.startswith("cascade: weights: no dynamically quantised product")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("default#small", "no cross-encoder inside the sidecar"),
        ("no-such-folder", "no-such-folder; a relative folder counts from the current one"),
        ("table.parquet#large", "name a folder, or RELEASE.yaml#small or #large"),
    ],
)
def test_what_is_no_model_is_refused(command: Command, tmp_path: Path, model: str, why: str) -> None:
    """In a line that says what is wanted."""
    done = command("weights", "fuse", model, str(tmp_path / "out"))
    assert done.status == 2
    assert why in done.err


def test_static_int8_asks_for_the_users_own_pairs(command: Command, folder: Path, tmp_path: Path) -> None:
    """Scales that are fixed beforehand are fixed for texts like these."""
    done = command("weights", "static-int8", str(folder), str(tmp_path / "out"))
    assert done.status == 2
    assert "--texts" in done.err


def test_static_int8_is_made_where_the_cpu_has_the_instructions(command: Command, folder: Path, tmp_path: Path) -> None:
    """Elsewhere it is refused in a line; products to keep are named."""
    pairs = str(tmp_path / "pairs.tsv")
    options = ["--texts", pairs, "--max-length", "64", "--keep", "*pooler*", "--keep", "*classifier*"]
    done = command("weights", "static-int8", str(folder), str(tmp_path / "out"), *options)
    if has_int8_instructions(cpu_instructions()):
        assert done.status == 0, done.err
        assert "12 products in int8, 2 kept in float32; 36 pairs calibrated" in done.out
        assert "quantization: static-int8" in done.out
        assert "warning: 36 pairs calibrated: with fewer than 200 the scales may not hold" in done.err
    else:
        assert done.status == 2
        assert "no int8 dot product" in done.err
