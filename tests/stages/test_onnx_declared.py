"""What a release may declare of an embedded cross-encoder, and what becomes of faults."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import tokenizers
from onnx import TensorProto, helper
from structlog.testing import capture_logs
from tokenizers import processors

from cascade.errors import ConfigError, StageInvalidAnswer, StageUnreachable
from cascade.policy.release import TokenBudget
from cascade.stages.engine.workers import Workers, worker_pool
from cascade.stages.onnx_model import SessionOptions
from cascade.types import ScoreSpace

from .engine.arrange import until
from .onnx_arrange import DOCUMENTS, constant_model, onnx_spec, reranker, score_with, started

_LONG = "the keeper trims the lamp and writes in the log " * 12


async def test_a_document_in_windows_scores_as_its_best_one(cross_encoder: Path, pool: Workers) -> None:
    """What is scored is the highest of its windows; the first of them is what is scored without."""
    windows = {"most": 8, "overlap_tokens": 4}
    async with started(onnx_spec(cross_encoder, max_length=48), pool) as stage:
        first = await score_with(stage, [_LONG, "lamp"])
    async with started(onnx_spec(cross_encoder, max_length=48, windows=windows), pool) as stage:
        whole = await score_with(stage, [_LONG, "lamp"])
    assert whole.scores[1] == first.scores[1]
    assert None not in (*whole.scores, *first.scores)
    assert float(whole.scores[0] or 0) >= float(first.scores[0] or 0)
    assert (first.cost.windows, first.cost.calls, first.cost.truncated) == (0, 2, 1)
    assert whole.cost.windows > 1
    assert whole.cost.calls == 2 + whole.cost.windows


async def test_what_lies_beyond_the_last_window_is_told(cross_encoder: Path, pool: Workers) -> None:
    """A document longer than all its windows counts as not read in full; text far beyond them is not looked at."""
    windows = {"most": 2, "overlap_tokens": 0}
    async with started(onnx_spec(cross_encoder, max_length=32, windows=windows), pool) as stage:
        cut = await score_with(stage, [_LONG, _LONG + "x " * 1_000_000], query="lamp")
        fits = await score_with(stage, ["the lamp and the log of tides"], query="lamp")
    assert (cut.cost.windows, cut.cost.truncated) == (2, 2)
    assert cut.scores[0] == cut.scores[1]
    assert fits.cost.truncated == 0


async def test_windows_are_batched_with_the_same_scores(cross_encoder: Path, pool: Workers) -> None:
    """Windows share calls like any pairs."""
    plain = onnx_spec(cross_encoder, max_length=48, windows={"most": 8, "overlap_tokens": 4})
    batched = plain.model_copy(update={"batching": TokenBudget(mode="token-budget", max_total_tokens=512)})
    async with started(plain, pool) as one, started(batched, pool) as many:
        alone, together = await score_with(one, [_LONG, "lamp"]), await score_with(many, [_LONG, "lamp"])
    assert np.allclose(np.array(together.scores, float), np.array(alone.scores, float), atol=1e-5)
    assert together.cost.calls < alone.cost.calls
    assert together.cost.windows == alone.cost.windows


@pytest.mark.parametrize("place", [0, 12])
async def test_a_window_without_a_score_fails_the_round(
    tmp_path: Path, cross_encoder: Path, pool: Workers, place: int
) -> None:
    """Wherever it is: the best of the others is not the document's score."""
    (tmp_path / "tokenizer.json").write_bytes((cross_encoder / "tokenizer.json").read_bytes())
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    bread = tokenizer.encode("b", add_special_tokens=False).ids[0]
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["floats", "third"], ["first"], axis=1),
        helper.make_node("Sub", ["first", "bread"], ["apart"]),
        helper.make_node("Div", ["apart", "apart"], ["logits"]),
    ]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch"])
    held = [
        helper.make_tensor("third", TensorProto.INT64, [], [3]),
        helper.make_tensor("bread", TensorProto.FLOAT, [], [float(bread)]),
    ]
    graph = helper.make_graph(nodes, "bread", [ids], [out], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    words = ["a"] * 24
    spec = onnx_spec(tmp_path, max_length=16, windows={"most": 4, "overlap_tokens": 0})
    async with started(spec, pool) as stage:
        assert (await score_with(stage, [" ".join(words)], "the")).scores == (1.0,)
        words[place] = "b"
        with pytest.raises(StageInvalidAnswer, match="not_a_number"):
            await score_with(stage, [" ".join(words)], "the")


async def test_kept_token_ids_change_no_score(cross_encoder: Path, pool: Workers) -> None:
    """A document that comes again scores bit for bit as it did, kept or not."""
    async with (
        started(onnx_spec(cross_encoder), pool) as keeps,
        started(onnx_spec(cross_encoder, cached_token_bytes=0), pool) as forgets,
    ):
        scored = [(await score_with(stage, DOCUMENTS)).scores for stage in (keeps, keeps, forgets)]
    assert scored[0] == scored[1] == scored[2]


async def test_a_sigmoid_gives_probabilities(cross_encoder: Path, pool: Workers) -> None:
    """It is applied to the logits, and nothing else changes."""
    async with started(onnx_spec(cross_encoder), pool) as stage:
        logits = (await score_with(stage, DOCUMENTS)).scores
    async with started(onnx_spec(cross_encoder, activation="sigmoid", score_space="probability"), pool) as stage:
        probabilities = (await score_with(stage, DOCUMENTS)).scores
        assert stage.space is ScoreSpace.PROBABILITY
    expected = 1 / (1 + np.exp(-np.array(logits, float)))
    assert np.array(probabilities, float) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("value", [float("-inf"), float("inf"), float("nan")])
async def test_a_sigmoid_makes_no_score_of_what_is_not_finite(
    tmp_path: Path, cross_encoder: Path, pool: Workers, value: float
) -> None:
    """A model that overflows has no score, though a sigmoid would give one."""
    folder = constant_model(tmp_path / "m", cross_encoder, [value], ["input_ids"])
    async with started(onnx_spec(folder, activation="sigmoid", score_space="probability"), pool) as stage:
        with pytest.raises(StageInvalidAnswer, match="not_a_number"):
            await score_with(stage, ["lamp"])


@pytest.mark.parametrize("value", [-1000.0, 1000.0])
async def test_a_sigmoid_of_far_out_logits_is_finite(
    tmp_path: Path, cross_encoder: Path, pool: Workers, value: float
) -> None:
    """No logit overflows it."""
    folder = constant_model(tmp_path / "m", cross_encoder, [value], ["input_ids"])
    async with started(onnx_spec(folder, activation="sigmoid", score_space="probability"), pool) as stage:
        assert (await score_with(stage, ["lamp"])).scores == (float(value > 0),)


@pytest.mark.parametrize(("value", "refused"), [(0.0, False), (1.0, False), (1.5, True), (-0.5, True)])
def test_an_output_that_is_no_probability_is_refused_as_one(
    tmp_path: Path, cross_encoder: Path, pool: Workers, value: float, refused: bool
) -> None:
    """A model that is said to score probabilities by itself must do so on fixed pairs."""
    folder = constant_model(tmp_path / "m", cross_encoder, [value], ["input_ids"])
    stage = reranker(onnx_spec(folder, score_space="probability"), pool)
    if not refused:
        asyncio.run(stage.start())
        return
    with pytest.raises(ConfigError, match="activation: score_space says probability"):
        asyncio.run(stage.start())


async def test_requests_at_the_same_time_get_their_own_scores(cross_encoder: Path, pool: Workers) -> None:
    """Batches over requests give each what it gets alone."""
    batching = {"mode": "token-budget", "max_total_tokens": 512, "max_wait_ms": 2}
    queries = [f"query {number} of the lamp" for number in range(6)]
    async with (
        started(onnx_spec(cross_encoder), pool) as one,
        started(onnx_spec(cross_encoder, batching=batching), pool) as many,
    ):
        alone = [(await score_with(one, DOCUMENTS, query)).scores for query in queries]
        together = await asyncio.gather(*(score_with(many, DOCUMENTS, query) for query in queries))
    for mine, theirs in zip(alone, together, strict=True):
        assert np.allclose(np.array(theirs.scores, float), np.array(mine, float), atol=1e-5)


async def test_a_model_that_fails_is_an_invalid_answer(
    tmp_path: Path, cross_encoder: Path, pool: Workers, capfd: pytest.CaptureFixture[str]
) -> None:
    """What onnxruntime raises ends the round as a fault of the stage and is counted; it writes nothing itself."""
    folder = tmp_path / "narrow"
    folder.mkdir()
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch"])
    table = helper.make_tensor("table", TensorProto.FLOAT, [1100], [0.5] * 1100)
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Gather", ["table", "length"], ["logits"]),
    ]
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "narrow", [ids], [out], [table, one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    (folder / "tokenizer.json").write_bytes((cross_encoder / "tokenizer.json").read_bytes())
    faults: list[BaseException] = []
    spec = onnx_spec(folder, max_length=2048, attention="exported")
    stage = reranker(spec, pool, count_fault=faults.append)
    await stage.start()
    with pytest.raises(StageInvalidAnswer, match="large: model_failed") as caught:
        await score_with(stage, ["lamp", "lamp " * 900])
    assert caught.value.__context__ is None
    assert caught.value.sent >= 1
    assert len(faults) == 1
    assert (await score_with(stage, ["lamp"])).scores == (0.5,)
    await stage.aclose()
    assert capfd.readouterr() == ("", "")


def test_a_model_that_cannot_take_pairs_of_max_length_is_refused_at_load(
    tmp_path: Path, cross_encoder: Path, pool: Workers
) -> None:
    """A window that the model does not have is found before the first long document comes."""
    folder = tmp_path / "short"
    folder.mkdir()
    model = onnx.load(cross_encoder / "model.onnx")
    onnx.save(model, folder / "model.onnx")
    (folder / "tokenizer.json").write_bytes((cross_encoder / "tokenizer.json").read_bytes())
    asyncio.run(reranker(onnx_spec(folder, max_length=512), pool).start())
    told = r"^large: weights: the model fails on fixed pairs: Fail; it may not take max_length \(1024\) tokens: lower that setting"
    with pytest.raises(ConfigError, match=told):
        asyncio.run(reranker(onnx_spec(folder, max_length=1024), pool).start())


async def test_giving_a_stage_back_ends_its_rounds(cross_encoder: Path) -> None:
    """Rounds that wait when a stage is closed end as not reached."""
    with worker_pool(1) as narrow:
        async with started(onnx_spec(cross_encoder), narrow) as stage:
            task = asyncio.create_task(score_with(stage, ["tide " * 400] * 500))
            await until(lambda: stage.congestion is not None and bool(stage.congestion.running))
            assert stage.congestion is not None
            assert (stage.congestion.waiting or 0) > 100
            await stage.aclose()
            with pytest.raises(StageUnreachable, match="large: closed"):
                await task
            assert stage.congestion is None


@pytest.mark.parametrize(("flags", "refused"), [("sse2 avx2", True), ("avx2 avx_vnni", False), ("asimddp", False)])
def test_static_int8_is_refused_where_the_cpu_cannot(
    cross_encoder: Path, pool: Workers, monkeypatch: pytest.MonkeyPatch, flags: str, refused: bool
) -> None:
    """Weights of that kind need instructions of their own; float32 weights do not."""
    monkeypatch.setattr("cascade.stages.embedded.cpu_instructions", lambda: frozenset(flags.split()))
    asyncio.run(reranker(onnx_spec(cross_encoder), pool).start())
    stage = reranker(onnx_spec(cross_encoder, quantization="static-int8"), pool)
    if not refused:
        asyncio.run(stage.start())
        return
    with pytest.raises(ConfigError, match="large: quantization: static-int8 needs a CPU with VNNI"):
        asyncio.run(stage.start())


@pytest.mark.parametrize(
    "session",
    [
        SessionOptions(graph_level="off"),
        SessionOptions(graph_level="extended", arena=False),
        SessionOptions(intra_threads=2, spinning=False, denormal_as_zero=True),
    ],
)
async def test_session_options_move_no_score(cross_encoder: Path, pool: Workers, session: SessionOptions) -> None:
    """They are about speed: scores agree to rounding."""
    other = reranker(onnx_spec(cross_encoder), pool, session=session)
    await other.start()
    async with started(onnx_spec(cross_encoder), pool) as stage:
        scored = [(await score_with(each, DOCUMENTS)).scores for each in (stage, other)]
    await other.aclose()
    assert np.allclose(np.array(scored[0], float), np.array(scored[1], float), atol=1e-5)


@pytest.mark.parametrize("cached", [0, 1_000_000])
async def test_a_tokenizer_that_cannot_be_read_by_sides_keeps_nothing_and_says_so(
    tmp_path: Path, cross_encoder: Path, pool: Workers, cached: int
) -> None:
    """Pairs are read whole then; the log tells it where ids were to be kept."""
    (tmp_path / "model.onnx").write_bytes((cross_encoder / "model.onnx").read_bytes())
    tokenizer = tokenizers.Tokenizer.from_file(str(cross_encoder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing("$A", "$B $A", [])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with capture_logs() as lines:
        async with started(onnx_spec(tmp_path, cached_token_bytes=cached), pool) as stage:
            first, again = [(await score_with(stage, DOCUMENTS)).scores for _ in range(2)]
    assert first == again
    assert [line["event"] for line in lines] == ["token cache off"] * bool(cached)


async def test_the_log_tells_how_far_scores_move_in_batches(cross_encoder: Path, pool: Workers) -> None:
    """What was measured at load, by number; one pair a call has nothing to tell."""
    with capture_logs() as lines:
        for mode in ({"mode": "one-pair"}, {"mode": "token-budget"}):
            async with started(onnx_spec(cross_encoder, batching=mode), pool):
                pass
    (line,) = lines
    assert line["event"] == "batch invariance"
    assert re.fullmatch(r"scores of fixed pairs move by at most \d\.\de[-+]\d\d with their batch mates", line["said"])
