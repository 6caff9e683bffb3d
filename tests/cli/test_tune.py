"""``cascade tune``."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cascade.calibration.artefact import artefact_digest
from cascade.policy.tuning import Tuning, parse_tuning, tuning_bytes
from tests.cli.conftest import Command, WriteRelease

_WORDS = ("water", "light", "houses", "roads", "rivers", "boats")
_LIMITS = (
    "--limits: write NAME=NUMBER, each name once, split by commas; names are max_error, max_mean_error, min_pearson, "
    "min_kendall, min_overlap, max_large_flips, max_ndcg_loss, max_jitter, max_missing, max_contrast_lost, max_token_mismatch"
)
_WEIGHTS = "--weights: write NAME=FOLDER, each name once, of letters, digits and ._-"
_MODELS = Path(__file__).parents[1] / "fixtures" / "models"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Give a folder with a float32 cross-encoder of random weights."""
    folder = tmp_path / "weights"
    folder.mkdir()
    shutil.copy(_MODELS / "micro-ce.onnx", folder / "model.onnx")
    shutil.copy(_MODELS / "micro-ce" / "tokenizer.json", folder / "tokenizer.json")
    return folder


@pytest.fixture
def lengths(tmp_path: Path) -> str:
    """Give a file of lengths."""
    path = tmp_path / "lengths.txt"
    path.write_text("4 20\n5 40\n6 90\n", encoding="utf-8")
    return str(path)


def _stages(weights: Path, **changes: Any) -> dict[str, Any]:
    large: dict[str, Any] = {"adapter": "onnx", "model": "micro", "engine": "onnxruntime", "attention": "exported"}
    large |= {"weights": {"folder": str(weights)}}
    return {"large": large | changes}


def _release(release: WriteRelease, stages: dict[str, Any]) -> str:
    return release(stages=stages, depth=5, escalation={"kind": "static", "top_m": 5})


def _quick(path: str, lengths: str, out: Path, *more: str) -> tuple[str, ...]:
    bounds = ("--seconds", "1", "--repeats", "2", "--candidates", "1,2", "--deadline-ms", "20")
    return ("tune", path, "--lengths", lengths, "--out", str(out), *bounds, *more)


def _read(path: Path) -> Tuning:
    return parse_tuning(path.read_bytes(), path.name)


def test_a_stage_is_tuned_and_the_release_takes_it(
    command: Command, release: WriteRelease, weights: Path, lengths: str, tmp_path: Path
) -> None:
    """Every step is told and in the file, with what to paste; a release that names the file is verified and shown."""
    batched = {"batching": {"mode": "token-budget"}, "attention": "exact"}
    (tmp_path / "calibration").mkdir()
    out = tmp_path / "calibration" / "tuning.json"
    path = _release(release, _stages(weights, **batched))
    done = command(*_quick(path, lengths, out))
    assert done.status == 0
    told = [line.split(": ", 2)[2] for line in done.err.splitlines()]
    assert all(line.startswith("tuning: ") for line in done.err.splitlines())
    found = _read(out)
    assert told[0] == "load, check and estimate"
    assert " s at the least" in told[1]
    assert [what for what in told[2:] if what not in ("throughput", "cold and warm")] == [
        step.variable for step in found.steps
    ]
    assert "the figure for plans" in done.out
    plain = tmp_path / "plain"
    plain.touch()
    assert out.stat().st_mode == plain.stat().st_mode  # whoever serves must be able to read it
    digest = artefact_digest(out.read_bytes())
    assert f'release   tuning: "{digest}"' in done.out
    assert f"embedded_threads: {found.chosen.threads}" in done.out
    variables = [step.variable for step in found.steps]
    assert variables[:2] == ["threads", "batch"]
    assert variables[-1] == "max_in_flight"
    assert all(trial.measured is not None and trial.measured.n == 2 for step in found.steps for trial in step.trials)
    assert all(step.chosen in {trial.value for trial in step.trials} for step in found.steps)
    assert [each.candidates for each in found.warm] == [1, 2]
    assert (found.stage, found.model, found.lengths.samples) == ("large", "micro", 3)
    assert set(found.weights.sha256) == {"model.onnx", "tokenizer.json"}
    path = _release(release, _stages(weights, **batched, tuning=digest))
    assert "large stage: " in next(
        line for line in command("release", "show", path).out.splitlines() if line.startswith("tuning")
    )
    examined = command("doctor", "--release", path, variables={"CASCADE__EMBEDDED_THREADS": "7"})
    threads = f"tuned under other conditions: embedded_threads is 7 here, and it chose {found.chosen.threads}"
    assert threads in examined.out
    assert "tuned for another stage" not in examined.out
    others = found.weights.model_copy(update={"sha256": found.weights.sha256 | {"tokenizer.json": "c" * 64}})
    data = tuning_bytes(found.model_copy(update={"weights": others}))
    (tmp_path / "calibration" / "other.json").write_bytes(data)
    examined = command(
        "doctor", "--release", _release(release, _stages(weights, **batched, tuning=artefact_digest(data)))
    )
    assert "tuned for another stage: it was measured with other weights (release): tokenizer.json" in examined.out


def test_weights_that_score_otherwise_are_refused(
    command: Command, release: WriteRelease, weights: Path, tmp_path: Path
) -> None:
    """The same weights under another name may be chosen; others, whose scores are not those of the first, may not."""
    other = tmp_path / "other"
    shutil.copytree(weights, other)
    model = onnx.load(str(other / "model.onnx"))
    draw = np.random.default_rng(1)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            mixed = draw.permutation(values.reshape(-1)).reshape(values.shape)
            tensor.CopyFrom(numpy_helper.from_array(mixed, tensor.name))
    onnx.save(model, str(other / "model.onnx"))
    out = tmp_path / "tuning.json"
    pairs = tmp_path / "pairs.tsv"
    lines = [f"a question of {word}\ta text about {other} and {word}" for word in _WORDS for other in _WORDS]
    pairs.write_text("\n".join(lines), encoding="utf-8")
    named = ("--weights", f"fp32={weights}", "--weights", f"odd={other}")
    asked = list(_quick(_release(release, _stages(weights)), "", out, *named))
    asked[2:4] = ["--pairs", str(pairs)]
    done = command(*asked)
    assert done.status == 0, done.err
    found = _read(out)
    step = next(step for step in found.steps if step.variable == "precision")
    refused = {trial.value: trial.refused for trial in step.trials}
    assert refused["fp32"] is None
    assert str(refused["odd"]).startswith("outside parity: ")
    assert found.weights.name == "fp32"
    assert (found.lengths.source, found.lengths.samples) == ("pairs pairs.tsv", len(lines))
    assert "batch of odd" not in [step.variable for step in found.steps]


@pytest.mark.long
def test_the_packaged_int8_model_is_not_batched(command: Command, lengths: str, tmp_path: Path) -> None:
    """Its budgets are told as refused, with what was measured; one pair a call is chosen."""
    out = tmp_path / "tuning.json"
    done = command(*_quick("default", lengths, out))
    assert done.status == 0, done.err
    found = _read(out)
    batch = next(step for step in found.steps if step.variable == "batch")
    assert batch.chosen == "one-pair"
    assert all("use one-pair" in str(trial.refused) for trial in batch.trials[1:])
    assert all(str(trial.refused).startswith("large: batching: ") for trial in batch.trials[1:])
    assert found.chosen.batching.mode == "one-pair"


@pytest.mark.skipif(sys.platform != "linux", reason="a folder in which nobody can make a file")
def test_a_file_that_could_not_be_written_in_the_end_is_told_first(
    command: Command, release: WriteRelease, weights: Path, lengths: str
) -> None:
    """A search of ten minutes would be lost."""
    done = command(*_quick(_release(release, _stages(weights)), lengths, Path("/proc/tuning.json")))
    assert done.status == 2
    assert done.err.startswith("cascade: --out /proc/tuning.json: cannot be written: ")
    assert "tuning:" not in done.err.removeprefix("cascade: --out /proc/tuning.json")


@pytest.mark.parametrize(("ended", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_leaves_nothing(
    command: Command,
    release: WriteRelease,
    weights: Path,
    lengths: str,
    tmp_path: Path,
    ended: signal.Signals,
    status: int,
) -> None:
    """Ctrl-C, or SIGTERM: it is told how far it was, and there is no file, whole or in part."""
    folder = tmp_path / "out"
    folder.mkdir()
    path = _release(release, _stages(weights))
    inherited = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    before = signal.getsignal(ended)

    def end_it() -> None:
        """Wait until the command hears the signal, else it would end the tests."""
        while signal.getsignal(ended) == before:
            over.wait(0.05)
            if over.is_set():
                return
        os.kill(os.getpid(), ended)

    over = threading.Event()
    ender = threading.Thread(target=end_it)
    ender.start()
    try:
        done = command(*_quick(path, lengths, folder / "tuning.json", "--seconds", "600"))
    finally:
        over.set()
        ender.join()
        signal.signal(signal.SIGINT, inherited)
    assert done.status == status
    assert re.fullmatch(rf"cascade: ended by {ended.name} at .+: nothing is written", done.err.splitlines()[-1])
    assert list(folder.iterdir()) == []


def test_limits_decide_which_weights_may_be_chosen(
    command: Command, release: WriteRelease, weights: Path, lengths: str, tmp_path: Path
) -> None:
    """A limit that nothing keeps refuses the same weights too, and is told."""
    out = tmp_path / "tuning.json"
    named = ("--weights", f"fp32={weights}", "--weights", f"same={weights}", "--limits", "min_kendall=2,max_error=9")
    done = command(*_quick(_release(release, _stages(weights)), lengths, out, *named))
    assert done.status == 0, done.err
    step = next(step for step in _read(out).steps if step.variable == "precision")
    refused = {trial.value: trial.refused for trial in step.trials}
    assert str(refused["same"]).startswith("outside parity: kendall 1 against 2")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--table", "t.parquet"), "name exactly one of --lengths, --table, --records and --pairs"),
        (("--stage", "small"), "--stage small: it is not there; a stage of the adapter onnx can be tuned"),
        (("--candidates", "20,none"), "--candidates: write counts from 1 to 2048, as in 20,50,100"),
        (("--candidates", "0"), "--candidates: write counts from 1 to 2048, as in 20,50,100"),
        (("--weights", "fp32"), _WEIGHTS),
        (("--limits", "none=1"), _LIMITS),
        (("--limits", "max_error"), _LIMITS),
        (("--limits", "max_error=inf"), _LIMITS),
        (("--limits", "max_error=1,max_error=2"), _LIMITS),
        (("--deadline-ms", "inf"), "--deadline-ms: write a number of milliseconds"),
        (("--weights", "a/b=/none"), _WEIGHTS),
        (("--weights", f"{'a' * 81}=/none"), _WEIGHTS),
        (("--weights", "fp32=/none"), "weights: model.onnx is not in /none"),
        (("--weights", "a=/none", "--weights", "a=/none"), _WEIGHTS),
    ],
)
def test_bad_input_is_one_line(
    command: Command,
    release: WriteRelease,
    weights: Path,
    lengths: str,
    tmp_path: Path,
    more: tuple[str, ...],
    told: str,
) -> None:
    """Exit status 2 before anything is loaded."""
    out = tmp_path / "tuning.json"
    done = command(*_quick(_release(release, _stages(weights)), lengths, out, *more))
    assert (done.status, done.out, done.err) == (2, "", f"cascade: {told}\n")
    assert not out.exists()


def test_a_file_that_is_there_is_not_overwritten(
    command: Command, release: WriteRelease, weights: Path, lengths: str, tmp_path: Path
) -> None:
    """Releases may name it by its digest."""
    out = tmp_path / "tuning.json"
    out.write_bytes(b"mine")
    path = _release(release, _stages(weights))
    assert "is there already" in command(*_quick(path, lengths, out)).err
    assert out.read_bytes() == b"mine"
    assert "its folder is not there" in command(*_quick(path, lengths, tmp_path / "none" / "t.json")).err
    assert "it is no file" in command(*_quick(path, lengths, tmp_path)).err


def test_a_release_without_a_cross_encoder_of_its_own_cannot_be_tuned(
    command: Command, release: WriteRelease, lengths: str, tmp_path: Path
) -> None:
    """A stage behind HTTP is tuned where it runs."""
    tei = {"adapter": "tei", "url": "http://127.0.0.1:9", "model": "m", "engine": "tei/1.9"}
    path = release(stages={"small": tei}, depth=5)
    out = tmp_path / "tuning.json"
    assert "the release has no stage of the adapter onnx" in command(*_quick(path, lengths, out)).err
    told = command(*_quick(path, lengths, out, "--stage", "small")).err
    assert "--stage small: it is tei; a stage of the adapter onnx can be tuned" in told


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("--lengths", "cannot be read: FileNotFoundError"),
        ("--pairs", "cannot be read: FileNotFoundError"),
        ("--records", "cannot be read: FileNotFoundError"),
        ("--table", "there is no such file"),
    ],
)
def test_a_source_that_is_missing_is_named(
    command: Command, release: WriteRelease, weights: Path, tmp_path: Path, source: str, told: str
) -> None:
    """Whatever lengths are read from."""
    path = _release(release, _stages(weights))
    done = command("tune", path, "--out", str(tmp_path / "t.json"), source, str(tmp_path / "none"))
    assert done.status == 2
    assert done.err.startswith(f"cascade: {source.removeprefix('--')} {tmp_path / 'none'}: ")
    assert told in done.err
