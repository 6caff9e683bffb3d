"""The embedded cross-encoder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cascade.errors import ConfigError, StageInvalidAnswer, StageTimeout
from cascade.guard.deadline import Deadline
from cascade.policy.release import OnnxStage
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.embedded import Call, cost_of
from cascade.stages.onnx import OnnxReranker, _batches
from cascade.stages.onnx_model import OnnxModel, worker_pool
from cascade.text import Text
from cascade.types import Exclusion, ScoreSpace, StageScores

_QUERY = "how is a lighthouse kept"
_DOCUMENTS = [
    "the keeper trims the lamp",
    "bread is baked in an oven",
    "a tide table lists the hours of high water for each day of the year " * 6,
    "lamp",
    "the log records wind and weather " * 3,
]


def _spec(folder: Path, **changes: Any) -> OnnxStage:
    fields = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(folder)}}
    return OnnxStage.model_validate({**fields, **changes})


@asynccontextmanager
async def _started(spec: OnnxStage, pool: ThreadPoolExecutor) -> AsyncIterator[OnnxReranker]:
    stage = OnnxReranker("large", spec, pool, time.monotonic)
    await stage.start()
    yield stage
    await stage.aclose()


async def _score(stage: OnnxReranker, documents: Sequence[str], query: str = _QUERY) -> StageScores:
    deadline = Deadline.after_ms(60_000, time.monotonic)
    return await stage.score(Text(query), [Text(d) for d in documents], deadline=deadline, call_id="t")


async def test_scores_do_not_depend_on_the_other_documents(cross_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """One pair a call: a pair's score is bit-equal alone, among others, and in another order."""
    async with _started(_spec(cross_encoder), pool) as stage:
        together = (await _score(stage, _DOCUMENTS)).scores
        alone = [(await _score(stage, [document])).scores[0] for document in _DOCUMENTS]
        reversed_ = (await _score(stage, _DOCUMENTS[::-1])).scores
    assert list(together) == alone == list(reversed_[::-1])


async def test_token_budget_gives_the_same_scores_in_fewer_calls(cross_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """A float32 model may be batched: scores agree to rounding, at the right documents, in fewer calls."""
    async with _started(_spec(cross_encoder), pool) as stage:
        one_pair = await _score(stage, _DOCUMENTS)
    batching = {"mode": "token-budget", "max_tokens": 128}
    async with _started(_spec(cross_encoder, batching=batching), pool) as stage:
        batched = await _score(stage, _DOCUMENTS)
    assert np.allclose(np.array(batched.scores, float), np.array(one_pair.scores, float), atol=1e-5)
    assert one_pair.cost.calls == len(_DOCUMENTS)
    assert 1 < batched.cost.calls < len(_DOCUMENTS)
    assert batched.cost.tokens == one_pair.cost.tokens


def test_the_packaged_int8_model_is_refused_in_batches(pool: ThreadPoolExecutor) -> None:
    """Dynamic quantisation moves scores with batch mates; the load measures it and says which mode to use."""
    large = load_release(default_release_path(), {}).release.stages.large
    assert isinstance(large, OnnxStage)
    batched = OnnxStage.model_validate(large.model_dump() | {"batching": {"mode": "token-budget", "max_tokens": 512}})
    with pytest.raises(ConfigError, match=r"move by up to 0\.\d+ with their batch mates; use one-pair"):
        asyncio.run(OnnxReranker("large", batched, pool, time.monotonic).start())


async def test_the_packaged_model_ranks_an_answer_first(pool: ThreadPoolExecutor) -> None:
    """The weights of the default release are loaded right: fixed pairs get the logits they got before."""
    large = load_release(default_release_path(), {}).release.stages.large
    assert isinstance(large, OnnxStage)
    async with _started(large, pool) as stage:
        scored = await _score(
            stage, ["A hull displaces water, so boats float.", "Bread is baked."], "why do boats float"
        )
    assert scored.scores[0] == pytest.approx(7.7, abs=1.5)
    assert scored.scores[1] == pytest.approx(-11.0, abs=1.5)
    assert stage.space is ScoreSpace.LOGIT


async def test_a_model_of_our_own_is_what_it_was(cross_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """A second look finds what was loaded, and nothing once it is given back."""
    async with _started(_spec(cross_encoder), pool) as stage:
        observed = stage.observed
        assert await stage.look_again()
        assert stage.observed == observed is not None
    assert not await stage.look_again()


async def test_blank_documents_are_excluded(cross_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """Blank documents get no score and no call."""
    async with _started(_spec(cross_encoder), pool) as stage:
        scored = await _score(stage, ["lamp", "", " \n\t", "log"])
    assert scored.excluded == {1: Exclusion.BLANK, 2: Exclusion.BLANK}
    assert [score is None for score in scored.scores] == [False, True, True, False]
    assert scored.cost.calls == 2


async def test_only_blank_documents_need_no_call(cross_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """A round without a document to score costs nothing and excludes all."""
    async with _started(_spec(cross_encoder), pool) as stage:
        scored = await _score(stage, [" ", ""])
    assert scored.scores == (None, None)
    assert scored.cost.calls == scored.cost.tokens == 0


async def test_truncated_pairs_are_counted(cross_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """A pair over max_length is cut to it and counted."""
    async with _started(_spec(cross_encoder, max_length=40), pool) as stage:
        scored = await _score(stage, ["lamp", "lamp and log and tide " * 40], query="lamp")
    assert scored.cost.truncated == 1
    assert 40 < scored.cost.tokens < 80


async def test_a_very_long_document_costs_little(cross_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """Text far beyond the window is not even tokenised: five megabytes score like their beginning."""
    beginning = "the keeper trims the lamp " * 600
    async with _started(_spec(cross_encoder, max_length=64), pool) as stage:
        scored = await _score(stage, [beginning, beginning + "x " * 2_500_000])
    assert scored.scores[0] == scored.scores[1]


async def test_a_deadline_ends_the_round_and_drops_what_waits(cross_encoder: Path) -> None:
    """Past the deadline the round is a timeout, and calls that had not begun never run."""
    with ThreadPoolExecutor(1) as narrow:
        async with _started(_spec(cross_encoder), narrow) as stage:
            deadline = Deadline.after_ms(30, time.monotonic)
            with pytest.raises(StageTimeout, match="large: deadline") as caught:
                await stage.score(Text(_QUERY), [Text("tide " * 400)] * 2000, deadline=deadline, call_id="t")
            assert caught.value.__context__ is None
            assert 0 < caught.value.sent < 2000
            began = time.monotonic()
            await _score(stage, ["lamp"])
    assert time.monotonic() - began < 5


async def test_cancelling_drops_what_waits(cross_encoder: Path) -> None:
    """A caller that goes away frees the threads within one call."""
    with ThreadPoolExecutor(1) as narrow:
        async with _started(_spec(cross_encoder), narrow) as stage:
            task = asyncio.create_task(_score(stage, ["tide " * 400] * 2000))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await _score(stage, ["lamp"])).cost.calls == 1


_SENTENCES = [
    "The keeper trims the lamp at dusk and writes the hour in the log, as every evening. ",
    "\u706f\u53f0\u306e\u756a\u4eba\u304c\u6bce\u665a\u706f\u308a\u3092\u3068\u3082\u3059\u3002",
    "Der W\u00e4rter stutzt den Docht, wenn die D\u00e4mmerung kommt, und schreibt es auf. ",
    "\uc774 \ub4f1\ub300\ub294 \ubc24\ub9c8\ub2e4 \ube5b\ub09c\ub2e4 ",
]


@pytest.mark.parametrize("budget", [256, 2048, 16_384])
def test_a_batch_stays_within_twice_its_budget_in_real_tokens(budget: int) -> None:
    """Padded to its longest, no batch of prose of several scripts has more than twice the tokens planned."""
    large = load_release(default_release_path(), {}).release.stages.large
    assert isinstance(large, OnnxStage)
    model = OnnxModel(large.weights, 512)
    texts = {
        number: _SENTENCES[number % len(_SENTENCES)] * (1 + number * number % 97 * (1 + number % 7))
        for number in range(300)
    }
    batches = _batches(texts, _QUERY, budget, 512)
    assert sorted(position for batch in batches for position in batch) == list(range(300))
    assert any(len(batch) > 1 for batch in batches) is (budget > 512 or len(batches) < 300)
    for batch in batches:
        padded = max(len(model.encode(_QUERY, texts[position]).ids) for position in batch) * len(batch)
        assert len(batch) == 1 or padded <= 2 * budget


def test_long_and_dense_texts_are_planned_by_what_is_read_of_them() -> None:
    """A text over the window costs the window; a CJK character costs a token, not a quarter of one."""
    long = dict.fromkeys(range(6), "word " * 5000)
    assert _batches(long, "q", 128 * 3, 128) == [[0, 1, 2], [3, 4, 5]]
    dense = dict.fromkeys(range(4), "灯" * 95)
    assert _batches(dense, "q", 200, 512) == [[0, 1], [2, 3]]


def test_the_cost_of_calls_is_shared_by_the_threads_that_ran_them() -> None:
    """Milliseconds are those on the round's path: half of the sum on two threads, and the wait of the first call."""
    calls = [
        Call(1.0, tokens=10, truncated=0, thread=1, queue_s=0.002, tokenize_s=0.001, compute_s=0.030),
        Call(2.0, tokens=20, truncated=1, thread=2, queue_s=0.004, tokenize_s=0.003, compute_s=0.020),
        Call(3.0, tokens=30, truncated=1, thread=1, queue_s=0.040, tokenize_s=0.004, compute_s=0.030),
    ]
    cost = cost_of(calls)
    assert (cost.calls, cost.tokens, cost.tokens_estimated, cost.truncated) == (3, 60, False, 2)
    assert (cost.tokenize_ms, cost.queue_ms, cost.compute_ms) == pytest.approx((4.0, 2.0, 40.0))
    assert cost.server_ms is None


def test_only_a_model_that_is_to_be_batched_is_run_in_a_batch_at_load(
    tmp_path: Path, cross_encoder: Path, pool: ThreadPoolExecutor
) -> None:
    """A model that takes one pair at a time is loaded in one-pair mode, and refused in the other."""
    folder = _constant_model(tmp_path / "m", cross_encoder, [1.0], ["input_ids"])
    asyncio.run(OnnxReranker("large", _spec(folder), pool, time.monotonic).start())
    batched = _spec(folder, batching={"mode": "token-budget", "max_tokens": 512})
    with pytest.raises(ConfigError, match="one score a pair"):
        asyncio.run(OnnxReranker("large", batched, pool, time.monotonic).start())


def _constant_model(folder: Path, cross_encoder: Path, values: list[float], inputs: list[str]) -> Path:
    """Write a model that answers the same values for any input."""
    folder.mkdir()
    graph = helper.make_graph(
        [
            helper.make_node(
                "Constant", [], ["logits"], value=helper.make_tensor("v", TensorProto.FLOAT, [len(values)], values)
            )
        ],
        "constant",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [len(values)])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    (folder / "tokenizer.json").write_bytes((cross_encoder / "tokenizer.json").read_bytes())
    return folder


@pytest.mark.parametrize(
    ("values", "inputs", "message"),
    [
        ([1.0, 2.0], ["input_ids"], "one score a pair"),
        ([1.0], ["pixel_values"], "wants inputs pixel_values"),
    ],
)
def test_an_unfit_model_is_refused_at_load(
    tmp_path: Path, cross_encoder: Path, pool: ThreadPoolExecutor, values: list[float], inputs: list[str], message: str
) -> None:
    """A model with other outputs or inputs is a configuration error that says so."""
    folder = _constant_model(tmp_path / "m", cross_encoder, values, inputs)
    with pytest.raises(ConfigError, match=message):
        asyncio.run(OnnxReranker("large", _spec(folder), pool, time.monotonic).start())


def test_a_file_that_is_no_model_is_refused_at_load(
    tmp_path: Path, cross_encoder: Path, pool: ThreadPoolExecutor
) -> None:
    """Garbage in model.onnx is a configuration error naming the folder."""
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    (tmp_path / "tokenizer.json").write_bytes((cross_encoder / "tokenizer.json").read_bytes())
    with pytest.raises(ConfigError, match="cannot be loaded"):
        asyncio.run(OnnxReranker("large", _spec(tmp_path), pool, time.monotonic).start())


async def test_d7_a_score_that_is_not_finite_fails_the_round(
    tmp_path: Path, cross_encoder: Path, pool: ThreadPoolExecutor
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
    async with _started(_spec(folder), pool) as stage:
        with pytest.raises(StageInvalidAnswer, match="not_a_number"):
            await _score(stage, ["lamp"])


async def test_what_is_observed_and_declared(cross_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """A stage tells its model once loaded, and declares the fingerprint of its release."""
    stage = OnnxReranker("large", _spec(cross_encoder, revision="r1"), pool, time.monotonic)
    assert stage.observed is None
    with pytest.raises(RuntimeError, match="started before"):
        await _score(stage, ["lamp"])
    await stage.start()
    assert stage.observed is not None
    assert stage.observed.model == stage.fingerprint.model == "m"
    assert stage.fingerprint.revision == "r1"
    assert stage.unusable is None
    assert stage.congestion is None
    assert not stage.takes_instruction
    await stage.aclose()
    assert stage.observed is None


async def test_the_pool_of_the_release_has_as_many_threads_as_it_is_given(cross_encoder: Path) -> None:
    """One thread runs a round as two do, only later; none given means one for each usable core."""
    with worker_pool(1) as narrow, worker_pool() as wide:
        async with _started(_spec(cross_encoder), narrow) as one, _started(_spec(cross_encoder), wide) as many:
            assert (await _score(one, _DOCUMENTS)).scores == (await _score(many, _DOCUMENTS)).scores
