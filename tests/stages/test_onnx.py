"""The embedded cross-encoder."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cascade.errors import ConfigError, StageInvalidAnswer, StageTimeout
from cascade.guard.deadline import Deadline
from cascade.policy.release import OnnxStage, Weights
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.engine.workers import Workers, worker_pool
from cascade.stages.weights import find_model
from cascade.telemetry.work import Ran, WorkEvents
from cascade.text import Text
from cascade.types import Exclusion, ScoreSpace

from .engine.arrange import SumModel, engine_of, run_on
from .onnx_arrange import DOCUMENTS, QUERY, constant_model, onnx_spec, reranker, score_with, started


async def test_scores_do_not_depend_on_the_other_documents(cross_encoder: Path, pool: Workers) -> None:
    """One pair a call: a pair's score is bit-equal alone, among others, and in another order."""
    async with started(onnx_spec(cross_encoder), pool) as stage:
        together = (await score_with(stage, DOCUMENTS)).scores
        alone = [(await score_with(stage, [document])).scores[0] for document in DOCUMENTS]
        reversed_ = (await score_with(stage, DOCUMENTS[::-1])).scores
    assert list(together) == alone == list(reversed_[::-1])


async def test_token_budget_gives_the_same_scores_in_fewer_calls(cross_encoder: Path, pool: Workers) -> None:
    """A float32 model may be batched: scores agree to rounding, at the right documents, in fewer calls."""
    async with started(onnx_spec(cross_encoder), pool) as stage:
        one_pair = await score_with(stage, DOCUMENTS)
    batching = {"mode": "token-budget", "max_total_tokens": 128}
    with worker_pool(1) as narrow:  # another thread may run what is read while the rest is still being read
        async with started(onnx_spec(cross_encoder, batching=batching), narrow) as stage:
            batched = await score_with(stage, DOCUMENTS)
    assert np.allclose(np.array(batched.scores, float), np.array(one_pair.scores, float), atol=1e-5)
    assert one_pair.cost.calls == len(DOCUMENTS)
    assert 1 < batched.cost.calls < len(DOCUMENTS)
    assert batched.cost.tokens == one_pair.cost.tokens


def test_the_packaged_int8_model_is_refused_in_batches(pool: Workers) -> None:
    """Dynamic quantisation moves scores with batch mates; the load measures it and says which mode to use."""
    large = load_release(default_release_path(), {}).release.stages.large
    assert isinstance(large, OnnxStage)
    batched = OnnxStage.model_validate(
        large.model_dump() | {"batching": {"mode": "token-budget", "max_total_tokens": 512}}
    )
    with pytest.raises(ConfigError, match=r"move by up to 0\.\d+ with their batch mates; use one-pair"):
        asyncio.run(reranker(batched, pool).start())


async def test_the_packaged_model_ranks_an_answer_first(pool: Workers) -> None:
    """The weights of the default release are loaded right: fixed pairs get the logits they got before."""
    large = load_release(default_release_path(), {}).release.stages.large
    assert isinstance(large, OnnxStage)
    async with started(large, pool) as stage:
        scored = await score_with(
            stage, ["A hull displaces water, so boats float.", "Bread is baked."], "why do boats float"
        )
    assert scored.scores[0] == pytest.approx(7.7, abs=1.5)
    assert scored.scores[1] == pytest.approx(-11.0, abs=1.5)
    assert stage.space is ScoreSpace.LOGIT


async def test_a_model_of_our_own_is_what_it_was(cross_encoder: Path, pool: Workers) -> None:
    """A second look finds what was loaded, and nothing once it is given back."""
    async with started(onnx_spec(cross_encoder), pool) as stage:
        observed = stage.observed
        assert await stage.look_again()
        assert stage.observed == observed is not None
    assert not await stage.look_again()


async def test_blank_documents_are_excluded(cross_encoder: Path, pool: Workers) -> None:
    """Blank documents get no score and no call."""
    async with started(onnx_spec(cross_encoder), pool) as stage:
        scored = await score_with(stage, ["lamp", "", " \n\t\u200b\0", "log"])
    assert scored.excluded == {1: Exclusion.BLANK, 2: Exclusion.BLANK}
    assert [score is None for score in scored.scores] == [False, True, True, False]
    assert scored.cost.calls == 2


async def test_only_blank_documents_need_no_call(cross_encoder: Path, pool: Workers) -> None:
    """A round without a document to score costs nothing and excludes all."""
    async with started(onnx_spec(cross_encoder), pool) as stage:
        scored = await score_with(stage, [" ", ""])
    assert scored.scores == (None, None)
    assert scored.cost.calls == scored.cost.tokens == 0


async def test_truncated_pairs_are_counted(cross_encoder: Path, pool: Workers) -> None:
    """A pair over max_length is cut to it and counted."""
    async with started(onnx_spec(cross_encoder, max_length=40), pool) as stage:
        scored = await score_with(stage, ["lamp", "lamp and log and tide " * 40], query="lamp")
    assert scored.cost.truncated == 1
    assert 40 < scored.cost.tokens < 80


async def test_a_very_long_document_costs_little(cross_encoder: Path, pool: Workers) -> None:
    """Text far beyond the window is not even tokenised: five megabytes score like their beginning."""
    beginning = "the keeper trims the lamp " * 600
    async with started(onnx_spec(cross_encoder, max_length=64), pool) as stage:
        scored = await score_with(stage, [beginning, beginning + "x " * 2_500_000])
    assert scored.scores[0] == scored.scores[1]


async def test_a_deadline_ends_the_round_and_drops_what_waits(cross_encoder: Path) -> None:
    """A round that is not whole by its deadline is a timeout, and calls that had not begun never run."""
    ran: list[Ran] = []
    with worker_pool(1) as narrow:
        async with started(onnx_spec(cross_encoder), narrow, events=WorkEvents(ran=ran.append)) as stage:
            ran.clear()
            deadline = Deadline.after_ms(400, time.monotonic)
            with pytest.raises(StageTimeout, match=r"large: (deadline|no_time) ") as caught:
                await stage.score(Text(QUERY), [Text("tide " * 400)] * 2000, deadline=deadline, call_id="t")
            assert caught.value.__context__ is None
            assert caught.value.sent < 2000
            await score_with(stage, ["lamp"])
    assert len(ran) == caught.value.sent + 1


async def test_a_timeout_tells_how_long_the_round_waited_for_the_cores(cross_encoder: Path) -> None:
    """Where nothing of it was begun that is its time, since it was asked for."""
    model = SumModel()
    model.gate.clear()
    with worker_pool(1) as narrow:
        async with started(onnx_spec(cross_encoder), narrow) as stage:
            other = asyncio.create_task(run_on(engine_of(model, narrow), ["held up"]))
            await asyncio.to_thread(model.entered.acquire)
            deadline = Deadline.after_ms(50, time.monotonic)
            with pytest.raises(StageTimeout) as caught:
                await stage.score(Text(QUERY), [Text("lamp")], deadline=deadline, call_id="t")
            model.gate.set()
            await other
    assert caught.value.sent == 0
    assert caught.value.queue_ms is not None
    assert 0 < caught.value.queue_ms <= caught.value.elapsed_ms


async def test_cancelling_drops_what_waits(cross_encoder: Path) -> None:
    """A caller that goes away frees the threads within one call."""
    with worker_pool(1) as narrow:
        async with started(onnx_spec(cross_encoder), narrow) as stage:
            task = asyncio.create_task(score_with(stage, ["tide " * 400] * 2000))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await score_with(stage, ["lamp"])).cost.calls == 1


def test_only_a_model_that_is_to_be_batched_is_run_in_a_batch_at_load(
    tmp_path: Path, cross_encoder: Path, pool: Workers
) -> None:
    """A model that takes one pair at a time is loaded in one-pair mode, and refused in the other."""
    folder = constant_model(tmp_path / "m", cross_encoder, [1.0], ["input_ids"])
    asyncio.run(reranker(onnx_spec(folder), pool).start())
    batched = onnx_spec(folder, batching={"mode": "token-budget", "max_total_tokens": 512})
    with pytest.raises(ConfigError, match="one score a pair"):
        asyncio.run(reranker(batched, pool).start())


@pytest.mark.parametrize(
    ("values", "inputs", "message"),
    [
        ([1.0, 2.0], ["input_ids"], "one score a pair"),
        ([1.0], ["pixel_values"], "wants inputs pixel_values"),
    ],
)
def test_an_unfit_model_is_refused_at_load(
    tmp_path: Path, cross_encoder: Path, pool: Workers, values: list[float], inputs: list[str], message: str
) -> None:
    """A model with other outputs or inputs is a configuration error that says so."""
    folder = constant_model(tmp_path / "m", cross_encoder, values, inputs)
    with pytest.raises(ConfigError, match=message):
        asyncio.run(reranker(onnx_spec(folder), pool).start())


def test_a_file_that_is_no_model_is_refused_at_load(tmp_path: Path, cross_encoder: Path, pool: Workers) -> None:
    """Garbage in model.onnx is a configuration error naming the folder."""
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    (tmp_path / "tokenizer.json").write_bytes((cross_encoder / "tokenizer.json").read_bytes())
    with pytest.raises(ConfigError, match="cannot be loaded"):
        asyncio.run(reranker(onnx_spec(tmp_path), pool).start())


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}}, "Exception"),
        (
            {
                "model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [{"SpecialToken": {"id": "b", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                    "pair": [{"SpecialToken": {"id": "b", "type_id": 0}}],
                    "special_tokens": {},
                },
            },
            "PanicException",
        ),
    ],
    ids=["error", "panic"],
)
def test_a_tokenizer_that_cannot_read_is_refused_at_load(
    tmp_path: Path, cross_encoder: Path, pool: Workers, changes: dict[str, Any], kind: str
) -> None:
    """It loads, and fails on the first text; where its library panics, that is no Exception, and ends nothing else."""
    (tmp_path / "model.onnx").write_bytes((cross_encoder / "model.onnx").read_bytes())
    (tmp_path / "tokenizer.json").write_bytes(json.dumps({"version": "1.0", "added_tokens": [], **changes}).encode())
    with pytest.raises(ConfigError, match=f"weights: {tmp_path}/tokenizer.json cannot read text: {kind}$"):
        asyncio.run(reranker(onnx_spec(tmp_path), pool).start())


async def test_d7_a_score_that_is_not_finite_fails_the_round(
    tmp_path: Path, cross_encoder: Path, pool: Workers
) -> None:
    """NaN from the model is an invalid answer, never a rank."""
    folder = tmp_path / "nan"
    folder.mkdir()
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch"])
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["floats", "axis"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "sum"], ["zero"]),
        helper.make_node("Div", ["zero", "zero"], ["logits"]),
    ]
    graph = helper.make_graph(nodes, "nan", [ids], [out], [helper.make_tensor("axis", TensorProto.INT64, [1], [1])])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx"
    )
    (folder / "tokenizer.json").write_bytes((cross_encoder / "tokenizer.json").read_bytes())
    async with started(onnx_spec(folder), pool) as stage:
        with pytest.raises(StageInvalidAnswer, match="not_a_number"):
            await score_with(stage, ["lamp"])


async def test_what_is_observed_and_declared(cross_encoder: Path, pool: Workers) -> None:
    """A stage tells its model once loaded, and declares the fingerprint of its release."""
    stage = reranker(onnx_spec(cross_encoder, revision="r1"), pool)
    assert stage.observed is None
    with pytest.raises(RuntimeError, match="started before"):
        await score_with(stage, ["lamp"])
    await stage.start()
    assert stage.observed is not None
    assert stage.observed.model == stage.fingerprint.model == "m"
    assert stage.observed.weights_sha256 == find_model(Weights(folder=str(cross_encoder))).digest()
    assert stage.fingerprint.revision == "r1"
    assert stage.unusable is None
    assert stage.congestion is not None
    assert (stage.congestion.waiting, stage.congestion.running, stage.congestion.queue_ms) == (0, 0, 0)
    assert not stage.takes_instruction
    await stage.aclose()
    assert stage.observed is None


async def test_the_pool_of_the_release_has_as_many_threads_as_it_is_given(cross_encoder: Path) -> None:
    """One thread runs a round as two do, only later; none given means one for each usable core."""
    with worker_pool(1) as narrow, worker_pool() as wide:
        async with started(onnx_spec(cross_encoder), narrow) as one, started(onnx_spec(cross_encoder), wide) as many:
            assert (await score_with(one, DOCUMENTS)).scores == (await score_with(many, DOCUMENTS)).scores
