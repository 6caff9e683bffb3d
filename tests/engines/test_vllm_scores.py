"""vLLM, asked by the stage that serves: whose scores, in which space, at which documents."""

import asyncio
import math
import time
from dataclasses import replace

import pytest

from cascade.errors import StageTimeout
from cascade.policy.merge import to_unit
from cascade.policy.release import VllmStage
from cascade.stages.base import Observed
from cascade.stages.http import HttpReranker
from cascade.stages.upstream import Upstream, build_transport
from cascade.stages.vllm import VllmWire
from cascade.types import Exclusion, ScoreSpace

from .pairs import BATCHES_DIFFER, QUERY, alone_at_llamacpp, alone_at_vllm, documents
from .rounds import one_stage, open_stage, score
from .servers import Server

pytestmark = pytest.mark.engines


async def test_limits_are_learned_from_the_server(vllm: Server) -> None:
    """After start the stage knows the model, the version and the longest pair, whatever the release declares."""
    async with open_stage(vllm, "vllm", max_length=8192) as stage:
        assert stage.unusable is None
        assert stage.observed is not None
        assert str(stage.observed.model).endswith("micro-ce")
        assert replace(stage.observed, model=None) == Observed(version=vllm.version, max_length=512)


async def test_raw_scores_are_the_logits_of_the_server(vllm: Server) -> None:
    """A stage declared as logits gets what vLLM gives without activation."""
    texts = documents(12)
    async with open_stage(vllm, "vllm") as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.scores == pytest.approx(alone_at_vllm(vllm, QUERY, texts, use_activation=False), abs=1e-5)


async def test_a_logit_maps_to_the_probability_that_the_server_gives(vllm: Server) -> None:
    """The outward map of a raw score equals vLLM's own activation."""
    texts = documents(12)
    async with open_stage(vllm, "vllm") as stage:
        scored = await score(stage, QUERY, texts)
    units = [to_unit(raw, ScoreSpace.LOGIT) for raw in scored.scores if raw is not None]
    assert units == pytest.approx(alone_at_vllm(vllm, QUERY, texts, use_activation=True), abs=1e-5)


async def test_a_stage_declared_as_probabilities_gets_them(vllm: Server) -> None:
    """With the space probability the activation is asked for, and scores stay as they come."""
    texts = documents(12)
    async with open_stage(vllm, "vllm", score_space="probability") as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.scores == pytest.approx(alone_at_vllm(vllm, QUERY, texts, use_activation=True), abs=1e-5)


@pytest.mark.parametrize("count", [1, 31, 128, 200])
async def test_every_document_gets_its_own_score(vllm: Server, count: int) -> None:
    """Split into calls of seven, each position carries the score of its own document."""
    texts = documents(count)
    alone = alone_at_vllm(vllm, QUERY, texts, use_activation=False)
    assert len({round(value, 4) for value in alone}) > 0.8 * count, "scores too alike to tell documents apart"
    async with open_stage(vllm, "vllm", chunk_texts=7) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.scores == pytest.approx(alone, abs=1e-4)
    assert scored.excluded == {}
    assert scored.cost.calls == math.ceil(count / 7)


async def test_chunks_do_not_change_scores(vllm: Server) -> None:
    """Two hundred documents score alike in one call and in many."""
    texts = documents(200)
    async with open_stage(vllm, "vllm", chunk_texts=200, chunk_tokens=10**6) as stage:
        together = await score(stage, QUERY, texts)
    async with open_stage(vllm, "vllm", chunk_texts=3) as stage:
        apart = await score(stage, QUERY, texts)
    assert (together.cost.calls, apart.cost.calls) == (1, 67)
    assert apart.scores == pytest.approx(together.scores, abs=1e-4)


async def test_tokens_are_the_servers_own_count(vllm: Server) -> None:
    """The cost of a round adds up what vLLM counted over all calls, as if it had been one."""
    texts = documents(40)
    async with open_stage(vllm, "vllm", chunk_texts=40) as stage:
        together = await score(stage, QUERY, texts)
    async with open_stage(vllm, "vllm", chunk_texts=6) as stage:
        apart = await score(stage, QUERY, texts)
    assert not apart.cost.tokens_estimated
    assert apart.cost.tokens == together.cost.tokens > 40
    assert apart.cost.truncated == 0


async def test_rounds_at_the_same_time_keep_their_scores_apart(vllm: Server) -> None:
    """Queries that share one stage and its connections never see each other's scores."""
    texts = documents(20)
    queries = [f"{word} {QUERY}" for word in ("paris", "france", "capital", "bamboo", "native", "bear")]
    alone = [alone_at_vllm(vllm, query, texts, use_activation=False) for query in queries]
    async with open_stage(vllm, "vllm", chunk_texts=3, max_in_flight_texts=12) as stage:
        rounds = await asyncio.gather(*(score(stage, query, texts) for query in queries))
    for scored, expected in zip(rounds, alone, strict=True):
        assert scored.scores == pytest.approx(expected, abs=1e-4)


async def test_blank_documents_are_not_scored(vllm: Server) -> None:
    """Blank documents are left out by position, and the others keep their scores."""
    texts = ["", *documents(5), " \n\t ", *documents(9)[5:], "\u3000"]
    written = [place for place, text in enumerate(texts) if text.strip()]
    alone = alone_at_vllm(vllm, QUERY, [texts[place] for place in written], use_activation=False)
    async with open_stage(vllm, "vllm", chunk_texts=4) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.excluded == dict.fromkeys((0, 6, 11), Exclusion.BLANK)
    assert [scored.scores[place] for place in written] == pytest.approx(alone, abs=1e-4)
    assert [scored.scores[place] for place in (0, 6, 11)] == [None, None, None]


async def test_any_script_reaches_the_server_unchanged(vllm: Server) -> None:
    """Korean, emoji, combining marks, right-to-left text and control characters score as when asked directly."""
    query = "판다는 무엇을 먹나요 🐼"
    texts = [
        "자이언트 판다는 주로 대나무를 먹는다",
        "🐼 eats 🎋, not 🍔",
        "bamboo \u0301\u0308 e\u0301 \u202e dnalo \u202c",
        'quotes " and \\ and \u2028 lines \x00 and \x1f control',
        "الباندا تأكل الخيزران",
        "👩\u200d👩\u200d👧\u200d👦 𝕡𝕒𝕟𝕕𝕒",
    ]
    async with open_stage(vllm, "vllm", chunk_texts=2) as stage:
        scored = await score(stage, query, texts)
    assert scored.scores == pytest.approx(alone_at_vllm(vllm, query, texts, use_activation=False), abs=1e-4)


async def test_the_rerank_route_gives_the_scores_of_the_score_route(vllm: Server) -> None:
    """Moved to its other route, which answers by rank, the stage puts the same scores at the same documents."""
    texts = documents(31)
    async with open_stage(vllm, "vllm", chunk_texts=7) as stage:
        expected = await score(stage, QUERY, texts)
    spec = one_stage(vllm, "vllm", chunk_texts=7).stages.small
    assert isinstance(spec, VllmStage)
    wire = VllmWire(vllm.model, raw_scores=True)
    wire.routes = ("/v1/rerank",)
    upstream = Upstream(spec.url, build_transport(spec), connect_ms=spec.connect_ms)
    moved = HttpReranker("small", spec, wire, upstream, time.monotonic)
    try:
        scored = await score(moved, QUERY, texts)
    finally:
        await moved.aclose()
    assert scored.scores == pytest.approx(expected.scores, abs=1e-4)


async def test_a_server_without_a_score_route_is_asked_on_its_rerank_route(llamacpp: Server) -> None:
    """Told that there is no such route, the stage moves on by itself, once, and loses no document."""
    texts = documents(31)
    async with open_stage(llamacpp, "vllm", chunk_texts=7) as stage:
        first = await score(stage, QUERY, texts)
        second = await score(stage, QUERY, texts)
    alone = alone_at_llamacpp(llamacpp, QUERY, texts)
    assert first.scores == pytest.approx(alone, abs=BATCHES_DIFFER)
    assert second.scores == pytest.approx(alone, abs=BATCHES_DIFFER)
    assert second.cost.calls == 5, "the route that is missing was asked again"


async def test_a_round_ends_at_its_deadline_and_the_server_goes_on(vllm: Server) -> None:
    """Work that cannot be done in time ends the round at once; the next round is scored as if nothing had been."""
    texts = [text * 4 for text in documents(200)]
    async with open_stage(vllm, "vllm") as stage:
        before = await score(stage, QUERY, texts[:9])
        with pytest.raises(StageTimeout) as caught:
            await score(stage, QUERY, texts, deadline_ms=25)
        after = await score(stage, QUERY, texts[:9])
    assert caught.value.code == "deadline"
    assert after.scores == pytest.approx(before.scores, abs=1e-4)
