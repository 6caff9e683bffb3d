"""What stages tell of their work: how long pairs are and how that is known, and each call of a model."""

from __future__ import annotations

import math
import time
from pathlib import Path

import httpx
import pytest

from cascade.errors import StageInvalidAnswer
from cascade.guard.aside import aside
from cascade.guard.deadline import Deadline
from cascade.guard.own_calls import own_calls
from cascade.policy.release import EmbeddingStage
from cascade.stages.embedded import Work
from cascade.stages.embedding import EmbeddingReranker
from cascade.stages.engine.workers import Workers
from cascade.stages.onnx import OnnxReranker
from cascade.telemetry.work import Counted, Ran, ReadPairs, WorkEvents
from cascade.testing.upstream import FakeServer, FakeTei
from cascade.text import Text
from cascade.tokens import PAIR_OVERHEAD_TOKENS, estimate_tokens
from tests.stages.arrange import score, stage_before, tei_spec
from tests.stages.engine.arrange import SumModel, deadline_in, engine_of
from tests.stages.onnx_arrange import constant_model, onnx_spec, reranker

_TEXTS = ["the lamp", "the keeper trims the lamp " * 3, "the keeper trims the lamp " * 3, "log"]


class _Told:
    """What was told, in order."""

    def __init__(self) -> None:
        self.read: list[ReadPairs] = []
        self.ran: list[Ran] = []

    @property
    def events(self) -> WorkEvents:
        return WorkEvents(self.read.append, self.ran.append)


async def _embedded(stage: OnnxReranker | EmbeddingReranker, *, texts: list[str] = _TEXTS) -> None:
    await stage.start()
    documents = [Text(text) for text in texts]
    await stage.score(Text("lamp"), documents, deadline=Deadline.after_ms(60_000, time.monotonic), call_id="t")


async def test_an_embedded_stage_measures_pairs_before_it_cuts_them(cross_encoder: Path, pool: Workers) -> None:
    """Of the same texts a short window leaves the lengths as they are, and reads more inputs."""
    wide, narrow = _Told(), _Told()
    await _embedded(reranker(onnx_spec(cross_encoder), pool, events=wide.events))
    spec = onnx_spec(cross_encoder, max_length=16, windows={"most": 3, "overlap_tokens": 2})
    await _embedded(reranker(spec, pool, events=narrow.events))
    (whole,), (cut,) = wide.read, narrow.read
    assert (whole.counted, whole.query_tokens) == (Counted.MEASURED, 4)
    assert sorted(whole.pair_tokens) == sorted(cut.pair_tokens)
    assert max(whole.pair_tokens) > 16
    assert list(whole.inputs) == [1, 1, 1, 1]
    assert sorted(cut.inputs) == [1, 1, 3, 3]


async def test_each_call_of_a_model_is_told_with_its_padding(cross_encoder: Path, pool: Workers) -> None:
    """One pair a call has none; in batches all inputs are run once, and equal lengths fill up nothing."""
    one, batched = _Told(), _Told()
    await _embedded(reranker(onnx_spec(cross_encoder), pool, events=one.events))
    assert [(each.inputs, each.padding) for each in one.ran] == [(1, 0)] * 4
    assert sum(each.tokens for each in one.ran) == sum(one.read[0].pair_tokens)
    spec = onnx_spec(cross_encoder, batching={"mode": "token-budget", "max_total_tokens": 4096, "max_wait_ms": 8})
    await _embedded(reranker(spec, pool, events=batched.events))
    assert sum(each.inputs for each in batched.ran) == 4
    assert sum(each.tokens for each in batched.ran) == sum(each.tokens for each in one.ran)


async def test_a_bi_encoder_tells_the_documents_that_it_read(bi_encoder: Path, pool: Workers) -> None:
    """One whose vector is kept is not read again, and the query's tokens are the query's."""
    told = _Told()
    spec = EmbeddingStage.model_validate(
        {"adapter": "onnx-embedding", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(bi_encoder)}}
    )
    stage = EmbeddingReranker("small", spec, pool, time.monotonic, events=told.events)
    await _embedded(stage)
    await _embedded(stage, texts=["the lamp", "a new one"])
    first, second = told.read
    assert (len(first.pair_tokens), len(second.pair_tokens)) == (3, 1)
    assert first.query_tokens == second.query_tokens
    assert first.query_tokens is not None
    assert first.query_tokens > 0


async def _http(server: FakeServer, query: str = "blue bird", texts: list[str] = _TEXTS) -> list[ReadPairs]:
    told = _Told()
    stage = stage_before(httpx.MockTransport(server), tei_spec(), work=told.events)
    await stage.start()
    try:
        await score(stage, query, texts)
    finally:
        await stage.aclose()
    return told.read


async def test_a_server_that_counts_scales_the_estimates() -> None:
    """Together the pairs are what it counted, each in proportion to its estimate; blank ones are none."""
    server = FakeTei(tokens_of=lambda query, text: 100)
    (told,) = await _http(server, texts=["aa " * 10, "bb " * 30, " "])
    assert told.counted is Counted.TOLD
    assert sum(told.pair_tokens) == pytest.approx(200)
    estimates = [
        estimate_tokens(text) + estimate_tokens("blue bird") + PAIR_OVERHEAD_TOKENS for text in ("aa " * 10, "bb " * 30)
    ]
    assert told.pair_tokens[1] / told.pair_tokens[0] == pytest.approx(estimates[1] / estimates[0])
    assert told.query_tokens == pytest.approx(estimate_tokens("blue bird") * 200 / sum(estimates))
    assert told.inputs == ()


class _Silent(FakeTei):
    """Tell no tokens, as a proxy that drops headers."""

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        response = await super().__call__(request)
        response.headers.pop("x-compute-tokens", None)
        return response


async def test_a_server_that_does_not_count_leaves_estimates() -> None:
    """They say that they are."""
    (told,) = await _http(_Silent(), texts=["bird"])
    expected = estimate_tokens("bird") + estimate_tokens("blue bird") + PAIR_OVERHEAD_TOKENS
    assert (told.counted, list(told.pair_tokens)) == (Counted.ESTIMATED, [expected])


async def test_what_nobody_waits_for_and_what_failed_is_none_of_the_traffic() -> None:
    """A shadow's rounds are not counted with it, and a round that did not count has no pairs."""
    with aside():
        assert await _http(FakeTei()) == []
    failing = FakeTei(script=[httpx.Response(400, json={"error": "no"})] * 4)
    with pytest.raises(Exception, match="large"):
        await _http(failing)
    assert await _http(FakeTei(), texts=[" "]) == []


async def test_an_embedded_stages_calls_for_nobody_are_the_machines_and_not_the_traffics(
    cross_encoder: Path, pool: Workers
) -> None:
    """Batches tell how the cores are used, whoever has it; lengths are those of requests."""
    told = _Told()
    with aside():
        await _embedded(reranker(onnx_spec(cross_encoder), pool, events=told.events))
    assert told.read == []
    assert len(told.ran) == len(_TEXTS)


async def test_the_sidecars_own_questions_are_none_of_the_traffic(cross_encoder: Path, pool: Workers) -> None:
    """Probes and smoke queries are asked of any stage, traffic or not, and no decision counts their pairs."""
    told = _Told()
    with own_calls():
        assert await _http(FakeTei()) == []
        await _embedded(reranker(onnx_spec(cross_encoder), pool, events=told.events))
    assert told.read == []


async def test_pairs_of_a_model_that_answers_no_numbers_are_not_told(
    cross_encoder: Path, pool: Workers, tmp_path: Path
) -> None:
    """The round does not count, so neither do its pairs."""
    told = _Told()
    folder = constant_model(tmp_path / "m", cross_encoder, [math.nan], ["input_ids"])
    with pytest.raises(StageInvalidAnswer):
        await _embedded(reranker(onnx_spec(folder), pool, events=told.events))
    assert told.read == []


async def test_a_round_that_is_given_up_is_not_counted_while_threads_still_read_it(pool: Workers) -> None:
    """Only of a whole one is it certain that no thread adds to what is being counted."""
    model = SumModel()
    model.gate.clear()
    work = Work(engine_of(model, pool), deadline_in())
    with pytest.raises(TimeoutError), work.round("q", ["lamp"]):
        raise TimeoutError
    assert work.read is None
    model.gate.set()
    with work.round("q", ["lamp", "wind"]) as round_:
        await round_.done()
    assert work.read is not None
    assert len(work.read.pair_tokens) == 2
