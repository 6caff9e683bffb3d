"""Tunings that a release names: read, filled in, carried in a bundle, and held against the stage and the machine."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.calibration.artefact import artefact_digest
from cascade.errors import ConfigError
from cascade.policy.release import OnnxStage, TokenBudget
from cascade.policy.tuning import tuning_bytes
from cascade.rollout.bundle import Bundle, build_bundle, load_bundle
from cascade.rollout.diff import differences
from cascade.rollout.show import description
from cascade.rollout.tuned import elsewhere
from cascade.rollout.verify import Severity, verify
from cascade.stages.machine import Machine, this_machine
from cascade.types import StageName
from tests.tuning.made import tuning_data, tuning_of


def _release(folder: Path, name: str = "release", *, tuning: str | None, **stage: Any) -> Path:
    large: dict[str, Any] = {
        "adapter": "onnx",
        "model": "m",
        "engine": "onnxruntime",
        "weights": {"folder": str(folder / "weights"), "sha256": {"model.onnx": "a" * 64}},
        "batching": {"mode": "token-budget"},
        **({} if tuning is None else {"tuning": tuning}),
        **stage,
    }
    data = {
        "release": "r1",
        "stages": {"large": large},
        "depth": 5,
        "escalation": {"kind": "static", "top_m": 5},
        "budgets": {"total_ms": 1000, "small_ms": 100, "large_ms": 500, "reserve_ms": 10},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def _tuned(folder: Path, **changes: Any) -> str:
    """Write a tuning into calibration/ beside the releases, under a name of no meaning; return its digest."""
    data = tuning_bytes(tuning_of(**changes))
    digest = artefact_digest(data)
    (folder / "calibration").mkdir(exist_ok=True)
    (folder / "calibration" / f"t{len(list((folder / 'calibration').iterdir()))}.json").write_bytes(data)
    return digest


def _batching(bundle: Bundle) -> TokenBudget:
    spec = bundle.loaded.release.stages.large
    assert isinstance(spec, OnnxStage)
    assert isinstance(spec.batching, TokenBudget)
    return spec.batching


def test_a_release_has_the_numbers_of_its_tuning(tmp_path: Path) -> None:
    """From a YAML file, a folder and a tar alike; what was written is not changed."""
    digest = _tuned(tmp_path)
    path = _release(tmp_path, tuning=digest)
    build_bundle(path, tmp_path / "bundle", {})
    build_bundle(path, tmp_path / "bundle.tar", {})
    for place in (path, tmp_path / "bundle", tmp_path / "bundle.tar"):
        bundle = load_bundle(place, {})
        assert _batching(bundle).max_total_tokens == 1024
        assert bundle.tunings.by_stage[StageName.LARGE].digest == digest
        assert bundle.loaded.written["stages"]["large"]["batching"] == {"mode": "token-budget"}
    assert load_bundle(path, {}).loaded.digest == load_bundle(tmp_path / "bundle.tar", {}).loaded.digest


def test_a_release_without_a_tuning_has_none(tmp_path: Path) -> None:
    """Its numbers are its own or the defaults."""
    bundle = load_bundle(_release(tmp_path, tuning=None), {})
    assert not bundle.tunings.by_stage
    assert not bundle.tunings.faults
    assert _batching(bundle).max_total_tokens == TokenBudget(mode="token-budget").max_total_tokens


@pytest.mark.parametrize("held", [None, b'{"format": "cascade-tuning/1"}'])
def test_a_tuning_that_cannot_be_used_leaves_the_release_s_own_numbers(tmp_path: Path, held: bytes | None) -> None:
    """Missing or no tuning: it serves all the same and says why; it is not verified, and no bundle is made of it."""
    digest = f"sha256:{'0' * 64}" if held is None else artefact_digest(held)
    if held is not None:
        (tmp_path / "calibration").mkdir()
        (tmp_path / "calibration" / "t.json").write_bytes(held)
    path = _release(tmp_path, tuning=digest)
    bundle = load_bundle(path, {})
    why = bundle.tunings.faults[StageName.LARGE]
    assert why.startswith("large stage, tuning: ")
    assert _batching(bundle).max_total_tokens == TokenBudget(mode="token-budget").max_total_tokens
    assert (Severity.ERROR, why) in [(one.severity, one.what) for one in verify(path, {}).findings]
    with pytest.raises(ConfigError, match="large stage, tuning: "):
        build_bundle(path, tmp_path / "bundle", {})


@pytest.mark.parametrize(
    ("stage", "tuning", "told"),
    [
        ({"max_length": 256}, {}, "max_length is 256, and it was measured with 512"),
        (
            {},
            {"weights": {"name": "fp32", "sha256": {"model.onnx": "b" * 64, "tokenizer.json": "c" * 64}}},
            "it was measured with other weights (fp32): model.onnx",
        ),
        ({"batching": {"mode": "one-pair"}}, {}, "batching is one-pair, and it chose token-budget"),
        (
            {},
            {"chosen": tuning_data()["chosen"] | {"batching": {"mode": "one-pair"}}},
            "batching is token-budget, and it chose one-pair; none of its numbers is taken",
        ),
    ],
)
def test_a_tuning_of_another_stage_is_a_warning(
    tmp_path: Path, stage: dict[str, Any], tuning: dict[str, Any], told: str
) -> None:
    """Its figures say little of the stage that names it."""
    found = verify(_release(tmp_path, tuning=_tuned(tmp_path, **tuning), **stage), {}).findings
    assert [one.severity for one in found if one.what == f"large stage, tuning: {told}"] == [Severity.WARNING]


def test_a_tuning_of_this_stage_is_not_spoken_of(tmp_path: Path) -> None:
    """Nothing is found of it; an activation does not ask which machine it is of."""
    found = verify(_release(tmp_path, tuning=_tuned(tmp_path)), {}).findings
    assert not [one for one in found if "tuning" in one.what]


def test_strictly_the_machine_is_compared(tmp_path: Path) -> None:
    """With the stages built here, a tuning of another processor is a warning."""
    found = verify(_release(tmp_path, tuning=_tuned(tmp_path)), {}, load=True).findings
    here = this_machine().cpu
    assert (Severity.WARNING, f"large stage, tuning: cpu is {here} here, and was Some Processor") in [
        (one.severity, one.what) for one in found
    ]


def test_strictly_the_weights_on_this_machine_are_compared(tmp_path: Path) -> None:
    """Where the release states no digest of a file, only the file tells that a tuning is of others."""
    folder = tmp_path / "weights"
    folder.mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        (folder / name).write_bytes(name.encode())
    known = {name: sha256(name.encode()).hexdigest() for name in ("model.onnx", "tokenizer.json")}
    bare: dict[str, Any] = {"weights": {"folder": str(folder)}}
    told = "large stage, tuning: it was measured with other weights (fp32): tokenizer.json"
    for digest, strict in ((known["tokenizer.json"], False), ("c" * 64, True)):
        used = {"name": "fp32", "sha256": known | {"tokenizer.json": digest}}
        path = _release(tmp_path, tuning=_tuned(tmp_path, weights=used), **bare)
        assert told not in [one.what for one in verify(path, {}).findings]
        found = [(one.severity, one.what) for one in verify(path, {}, load=True).findings]
        assert ((Severity.WARNING, told) in found) is strict


def _machine(**changes: Any) -> Machine:
    was = tuning_of().conditions
    names = ("cores", "cpu", "instructions", "os", "python", "cascade", "onnxruntime", "tokenizers")
    return Machine(**{name: getattr(was, name) for name in names} | changes)


def test_what_speed_depends_on_is_compared() -> None:
    """Processor, instructions, cores, versions and threads; not the name of the kernel."""
    tuning = tuning_of()
    assert elsewhere(tuning, _machine(os="Linux 7"), 2) == []
    assert elsewhere(tuning, _machine(cores=8), 8) == [
        "cores is 8 here, and was 2",
        "embedded_threads is 8 here, and it chose 2",
    ]
    assert elsewhere(tuning, _machine(instructions=("avx2", "fma")), 2) == [
        "instructions: here without avx512_vnni and with fma"
    ]
    assert elsewhere(tuning, _machine(onnxruntime="1.24.0"), 2) == ["onnxruntime is 1.24.0 here, and was 1.23.0"]


def test_show_says_what_was_tuned_and_where(tmp_path: Path) -> None:
    """One line a stage; a fault is told in its place."""
    lines = description(load_bundle(_release(tmp_path, tuning=_tuned(tmp_path)), {}))
    (line,) = [line for line in lines if line.startswith("tuning")]
    assert line == (
        "tuning         large stage: batches of 1024 tokens and 16 pairs, 2 ms, 2 threads, 40.0 pairs/s (38.0 to 41.0); "
        "2 cores of Some Processor, onnxruntime 1.23.0, 2026-11-30"
    )
    broken = description(load_bundle(_release(tmp_path, tuning=f"sha256:{'0' * 64}"), {}))
    assert any(line.startswith("tuning         cannot be used: large stage, tuning: ") for line in broken)
    assert not any(line.startswith("tuning") for line in description(load_bundle(_release(tmp_path, tuning=None), {})))


def test_diff_says_what_another_tuning_changes(tmp_path: Path) -> None:
    """The digest and each number; the policy is the same, and its scores too."""
    one = load_bundle(_release(tmp_path, "one", tuning=None), {})
    other = load_bundle(_release(tmp_path, "other", tuning=_tuned(tmp_path)), {})
    assert one.loaded.policy_digest == other.loaded.policy_digest
    told = differences(one, other)
    assert "stages.large.batching.max_pairs: 32 -> 16" in told
    assert any(line.startswith("stages.large.tuning: not there -> sha256:") for line in told)
    assert not any("scores are others" in line for line in told)
    assert differences(other, other) == []
