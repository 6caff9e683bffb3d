"""A tuning from beginning to end: what it says of itself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import OnePair, OnnxStage, TokenBudget
from cascade.policy.tuning import Cold, Spread, Tuning, Warm, parse_tuning, tuning_bytes
from cascade.stages.machine import cpu_model, this_machine
from cascade.tuning.allowance import Allowance
from cascade.tuning.kept_stages import KeptStages
from cascade.tuning.lengths import LengthSamples
from cascade.tuning.run import Question, tune_stage
from cascade.tuning.setting import Setting
from cascade.types import StageName
from tests.tuning.made import FormulaBench

_NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)


@dataclass(slots=True)
class _Timed(FormulaBench):
    """A formula that is timed too."""

    fewest_arrivals: int | None = 40
    alone_ms: float = 100.0

    async def cold(self, setting: Setting, repeats: int) -> Cold:
        spread = Spread(median=5.0, least=4.0, most=6.0, n=repeats)
        return Cold(load_ms=spread, first_call_ms=spread)

    async def warm(self, setting: Setting, repeats: int) -> tuple[Warm, ...]:
        spread = Spread(median=self.alone_ms, least=self.alone_ms, most=self.alone_ms, n=repeats)
        return (Warm(candidates=20, request_ms=spread),)


def _spec(folder: Path | str = "w", **changes: Any) -> OnnxStage:
    fields = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(folder)}}
    return OnnxStage.model_validate({**fields, **changes})


def _tuned(bench: _Timed, **specs: OnnxStage) -> Tuning:
    specs = specs or {"release": _spec()}
    question = Question(
        stage=StageName.LARGE,
        specs=specs,
        sha256={name: {"model.onnx": "a" * 64} for name in specs},
        candidates=(20, 50),
        deadline_ms=500.0,
        max_in_flight=64,
        seconds=10.0,
        repeats=2,
        seed=3,
    )
    samples = LengthSamples("lengths a.txt", ((5, 40), (6, 80)))
    return asyncio.run(tune_stage(question, samples, bench, clock=lambda: 0.0, now=lambda: _NOW))


def test_a_tuning_says_where_it_is_from() -> None:
    """The machine, the versions, the lengths, what was asked and what was found, and it can be read again."""
    found = _tuned(_Timed(lambda setting, repeat: 10.0 + repeat))
    here = this_machine()
    assert (found.conditions.date, found.conditions.cpu, found.conditions.cores) == (_NOW, here.cpu, here.cores)
    assert found.conditions.onnxruntime == here.onnxruntime
    assert (found.lengths.samples, found.asked.candidates, found.asked.seed) == (2, (20, 50), 3)
    assert found.chosen.pairs_per_s == Spread(median=10.5, least=10.0, most=11.0, n=2)
    assert found.weights.sha256 == {"model.onnx": "a" * 64}
    assert found.offered_per_s == pytest.approx(0.9 * 10.5 / 35)
    assert parse_tuning(tuning_bytes(found), "t") == found


def test_notes_say_what_the_release_must_change() -> None:
    """Another mode and other weights are not taken by themselves."""

    def pairs(setting: Setting, repeat: int) -> float:
        batched = isinstance(setting.batching, TokenBudget)
        return 10.0 + 20.0 * batched + 50.0 * (setting.weights == "static")

    found = _tuned(_Timed(pairs), fp32=_spec(), static=_spec("s"))
    assert found.notes[:2] == (
        "weights static were chosen: they are another model version; name them and their quantization",
        "the release says batching one-pair: it must say token-budget to run as tuned",
    )


def test_notes_say_what_makes_figures_uncertain() -> None:
    """Few requests in a trial, and a deadline that a request alone misses."""
    found = _tuned(_Timed(lambda setting, repeat: 10.0, fewest_arrivals=4, alone_ms=900.0))
    assert "20 candidates alone take 900 ms, more than the deadline of 500 ms" in found.notes
    assert "as few as 4 requests came in a trial of goodput: give it more --seconds" in found.notes
    quiet = _tuned(_Timed(lambda setting, repeat: 10.0))
    assert not [note for note in quiet.notes if "deadline" in note or "goodput" in note]


def test_time_is_shared_by_weight_and_what_is_not_used_is_left() -> None:
    """Of 10 seconds for weights 1 and 4, the first has 2; when it took only 1, the second has the other 9."""
    now = 0.0
    allowance = Allowance(10.0, lambda: now)
    allowance.plan(5.0)
    assert allowance.take(1.0) == pytest.approx(2.0)
    now = 1.0
    assert allowance.take(4.0) == pytest.approx(9.0)
    now = 11.0
    assert allowance.take(4.0) == 0.0


async def test_a_model_is_loaded_once_for_one_pair_a_call_and_once_for_batches(cross_encoder: Path) -> None:
    """A second trial of a setting starts nothing; another setting of the same kind needs no file any more."""
    kept = KeptStages("large", {"release": _spec(cross_encoder)}, time.monotonic)
    one = Setting(1, OnePair(mode="one-pair"), "release", 64)
    batched = one.with_batching(TokenBudget(mode="token-budget"))
    larger = one.with_batching(TokenBudget(mode="token-budget", max_total_tokens=4096))
    try:
        stages = [(await kept.get(setting))[0].stage for setting in (one, batched)]
        (cross_encoder / "model.onnx").unlink()
        told = [(await kept.get(setting))[1] for setting in (larger, replace(one, threads=2), one, batched)]
        assert told == [True, True, False, False]
        ran = [stage.observed.attention for stage in stages if stage.observed is not None]
        assert ran == ["exact", "exported"]
    finally:
        await kept.aclose()


async def test_models_are_kept_while_there_is_room(cross_encoder: Path) -> None:
    """Without room the one used longest ago is given back, with all that was started on it."""
    one = Setting(1, OnePair(mode="one-pair"), "a", 64)
    other = replace(one, weights="b")
    specs = {name: _spec(cross_encoder, attention="exported") for name in ("a", "b")}
    roomy, tight = (KeptStages("large", specs, time.monotonic, **most) for most in ({}, {"most_bytes": 1}))
    try:
        told = [(await roomy.get(setting))[1] for setting in (one, other, one, other)]
        assert (told, roomy.loaded) == ([True, True, False, False], ("a", "b"))
        told = [(await tight.get(setting))[1] for setting in (one, one, other, one)]
        assert (told, tight.loaded) == ([True, False, True, True], ("a",))
    finally:
        await roomy.aclose()
        await tight.aclose()


async def test_what_a_mode_is_refused_for_is_told_again_at_once(tmp_path: Path) -> None:
    """Weights that cannot be loaded are not loaded again for another number."""
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"no model")
    kept = KeptStages("large", {"release": _spec(tmp_path)}, time.monotonic)
    setting = Setting(1, TokenBudget(mode="token-budget"), "release", 64)
    with pytest.raises(ConfigError) as first:
        await kept.get(setting)
    (tmp_path / "model.onnx").unlink()
    larger = setting.with_batching(TokenBudget(mode="token-budget", max_total_tokens=4096))
    with pytest.raises(ConfigError) as second:
        await kept.get(larger)
    assert str(first.value) == str(second.value)


def test_the_processor_is_named_as_the_system_does(tmp_path: Path) -> None:
    """Its first model name; where there is none, as on Arm, the architecture."""
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Some Processor 3000\nmodel name\t: Another\n", encoding="utf-8")
    assert cpu_model(file) == "Some Processor 3000"
    file.write_text("processor\t: 0\nFeatures\t: asimd\n", encoding="utf-8")
    assert cpu_model(file) == cpu_model(tmp_path / "none") != ""
