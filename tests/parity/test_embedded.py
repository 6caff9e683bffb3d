"""The packaged int8 cross-encoder against itself: one pair a call, and in batches."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cascade.guard.deadline import Deadline
from cascade.parity.batches import Situation, measure_jitter
from cascade.parity.scoring import Caller
from cascade.parity.token_ids import token_reader
from cascade.policy.release import OnnxStage, TeiStage, TokenBudget
from cascade.policy.stage_specs import Attention
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.engine.workers import Workers, worker_pool
from cascade.stages.graph.exact import exact_form
from cascade.stages.onnx import OnnxReranker
from cascade.stages.onnx_loaded import LoadedCrossEncoder
from cascade.text import Text


class _Batched(OnnxReranker):
    """The stage without the check that refuses this model in batches."""

    def _check(self, loaded: LoadedCrossEncoder) -> None:
        """Take any."""


def _spec(**changes: object) -> OnnxStage:
    large = load_release(default_release_path(), {}).release.stages.large
    assert isinstance(large, OnnxStage)
    return large.model_copy(update=changes)


@pytest.fixture
def pool() -> Iterator[Workers]:
    """Give the threads of embedded stages."""
    with worker_pool(2) as threads:
        yield threads


async def test_batches_of_an_int8_model_are_told_as_jitter(pool: Workers) -> None:
    """One pair a call nothing moves, bit for bit; in batches scores move with their mates and equal calls are equal."""
    spec = _spec(max_length=32)
    found = []
    batching = TokenBudget(mode="token-budget", max_total_tokens=4096)
    batches = spec.model_copy(update={"batching": batching})
    one_pair = OnnxReranker("large", spec, pool, time.monotonic, rewritten=exact_form)
    for stage in (one_pair, _Batched("large", batches, pool, time.monotonic)):
        await stage.start()
        found.append(await measure_jitter(Caller(stage, "REF", time.monotonic).scores, 32))
        await stage.aclose()
    alone, batched = found
    assert alone.greatest == 0.0
    assert batched.moved[Situation.REPEATS].greatest == 0.0
    assert batched.moved[Situation.LONG_MATES].greatest > 0.01
    assert batched.moved[Situation.MIXED].greatest > 0.01


async def test_token_ids_are_those_that_the_stage_reads(pool: Workers) -> None:
    """Their number is what the stage counts, also for a pair beyond the window; another serializer reads others."""
    spec = _spec(max_length=64, attention=Attention.EXPORTED)  # which ids are read does not hang on it
    read = token_reader(spec)
    assert read is not None
    stage = OnnxReranker("large", spec, pool, time.monotonic)
    await stage.start()
    texts = ["a lamp\n\nand its oil", "oil " * 200]
    deadline = Deadline.after_ms(60_000, time.monotonic)
    answer = await stage.score(Text("lamp oil"), [Text(text) for text in texts], deadline=deadline, call_id="t")
    await stage.aclose()
    ids = [read("lamp oil", text) for text in texts]
    assert answer.cost.tokens == sum(map(len, ids))
    assert len(ids[1]) == 64
    shorter = token_reader(_spec(max_length=32))
    assert shorter is not None
    assert shorter("lamp oil", texts[1]) != ids[1]
    assert shorter("lamp oil", texts[0]) == ids[0]


def test_a_bi_encoder_reads_query_and_document_apart() -> None:
    """One sequence after the other; a stage behind HTTP reads elsewhere."""
    release = load_release(default_release_path(), {}).release
    assert release.stages.small is not None
    read = token_reader(release.stages.small)
    assert read is not None
    assert read("a lamp", "its oil") == (101, 1037, 10437, 102, 101, 2049, 3514, 102)
    tei = TeiStage.model_validate({"adapter": "tei", "url": "http://h", "model": "m", "engine": "tei/1.9"})
    assert token_reader(tei) is None
