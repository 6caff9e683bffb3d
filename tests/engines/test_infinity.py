"""Infinity behind its adapter: it clips by itself, counts characters, and works on for those who have left."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade.errors import StageTimeout
from cascade.guard.deadline import Deadline
from cascade.policy.merge import to_unit
from cascade.stages.probe import Verdict, probe
from cascade.types import Exclusion, ScoreSpace

from .pairs import OVER_BATCH, OVER_LONG, QUERY, alone_at_infinity, documents, status_alone
from .rounds import open_stage, score
from .servers import Server
from .sidecar import release_of, sidecar

pytestmark = pytest.mark.engines

_CLOSE = 1e-4
_TRIES = 1500
_CLIPPED_AT = 512


def _queued(server: Server) -> int:
    """Return how many pairs the server says are waiting."""
    models = httpx.get(f"{server.base_url}/models", trust_env=False, timeout=30).raise_for_status().json()
    return int(models["data"][0]["stats"]["queue_absolute"])


async def test_a_server_that_tells_its_name_only_is_usable(infinity: Server) -> None:
    """It names its model and no limit: the adapter's own hold, and nothing speaks against it."""
    async with open_stage(infinity, "infinity") as stage:
        assert stage.observed is not None
        assert (stage.observed.model, stage.observed.max_length) == (infinity.model, None)
        assert stage.unusable is None


@pytest.mark.parametrize(("asked_for", "calls"), [(None, 5), (5000, 2)], ids=["by default", "more asked for"])
async def test_calls_stay_within_the_limit_that_it_states_nowhere(
    infinity: Server, asked_for: int | None, calls: int
) -> None:
    """More documents than it takes in one request are split, whatever the release asks for, and all are scored."""
    texts = [f"panda {number}" for number in range(2049)]
    assert status_alone(infinity, "/rerank", {"query": QUERY, "documents": texts}) == 422
    async with open_stage(
        infinity, "infinity", chunk_texts=asked_for, chunk_tokens=10**6, max_in_flight_texts=4096
    ) as stage:
        scored = await score(stage, QUERY, texts)
    assert None not in scored.scores
    assert scored.cost.calls == calls


async def test_its_queue_is_heard_of(infinity: Server) -> None:
    """Beside its limits the stage learns how many pairs are waiting."""
    async with open_stage(infinity, "infinity") as stage:
        for _ in range(_TRIES):
            if stage.congestion is not None:
                break
            await asyncio.sleep(0.02)
        assert stage.congestion is not None
        assert stage.congestion.waiting is not None


async def test_raw_scores_are_the_logits_of_the_server(infinity: Server) -> None:
    """A stage declared as logits gets what Infinity gives as raw scores."""
    texts = documents(12)
    async with open_stage(infinity, "infinity") as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.scores == pytest.approx(alone_at_infinity(infinity, QUERY, texts), abs=1e-5)


async def test_a_logit_maps_to_the_probability_that_the_server_gives(infinity: Server) -> None:
    """The outward map of a raw score equals Infinity's own activation."""
    texts = documents(12)
    async with open_stage(infinity, "infinity") as stage:
        scored = await score(stage, QUERY, texts)
    units = [to_unit(raw, ScoreSpace.LOGIT) for raw in scored.scores if raw is not None]
    assert units == pytest.approx(alone_at_infinity(infinity, QUERY, texts, raw_scores=False), abs=1e-5)


async def test_a_stage_declared_as_probabilities_gets_them(infinity: Server) -> None:
    """With the space probability the activation is asked for, and scores stay as they come."""
    texts = documents(12)
    async with open_stage(infinity, "infinity", score_space="probability") as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.scores == pytest.approx(alone_at_infinity(infinity, QUERY, texts, raw_scores=False), abs=1e-5)


@pytest.mark.parametrize("count", [1, 31, 100])
async def test_every_document_gets_its_own_score(infinity: Server, count: int) -> None:
    """Split into calls of seven, each position carries the score of its own document."""
    texts = documents(count)
    alone = alone_at_infinity(infinity, QUERY, texts)
    assert len({round(value, 4) for value in alone}) > 0.8 * count, "scores too alike to tell documents apart"
    async with open_stage(infinity, "infinity", chunk_texts=7) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.scores == pytest.approx(alone, abs=_CLOSE)
    assert scored.excluded == {}
    assert scored.cost.calls == -(-count // 7)


async def test_chunks_do_not_change_scores(infinity: Server) -> None:
    """A hundred documents score alike in one call and in many."""
    texts = documents(100)
    async with open_stage(infinity, "infinity") as stage:
        together = await score(stage, QUERY, texts)
    async with open_stage(infinity, "infinity", chunk_texts=3) as stage:
        apart = await score(stage, QUERY, texts)
    assert (together.cost.calls, apart.cost.calls) == (1, 34)
    assert apart.scores == pytest.approx(together.scores, abs=_CLOSE)


async def test_characters_are_not_taken_for_tokens(infinity: Server) -> None:
    """What it calls tokens are characters, so the cost of a round is estimated."""
    texts = documents(20)
    async with open_stage(infinity, "infinity") as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.cost.tokens_estimated
    assert scored.cost.tokens < sum(map(len, texts))


async def test_blank_documents_are_not_scored(infinity: Server) -> None:
    """The server would score blanks; they are left out by position, and the others keep their scores."""
    texts = ["", *documents(5), " \n\t ", *documents(9)[5:], "\u3000"]
    written = [place for place, text in enumerate(texts) if text.strip()]
    async with open_stage(infinity, "infinity", chunk_texts=4) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.excluded == dict.fromkeys((0, 6, 11), Exclusion.BLANK)
    alone = alone_at_infinity(infinity, QUERY, [texts[place] for place in written])
    assert [scored.scores[place] for place in written] == pytest.approx(alone, abs=_CLOSE)


async def test_over_long_documents_are_clipped_by_the_server_and_counted(infinity: Server) -> None:
    """It clips without a word: one call, every score as when asked alone, and the count tells how many were too long."""
    texts = documents(30)
    texts[4], texts[13] = OVER_LONG, OVER_BATCH
    async with open_stage(infinity, "infinity", max_length=_CLIPPED_AT) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.scores == pytest.approx(alone_at_infinity(infinity, QUERY, texts), abs=_CLOSE)
    assert scored.excluded == {}
    assert (scored.cost.calls, scored.cost.truncated) == (1, 2)


@pytest.mark.parametrize("max_length", [_CLIPPED_AT, 8192])
async def test_a_document_beyond_its_limit_of_characters_is_cut_before_it_is_sent(
    infinity: Server, max_length: int
) -> None:
    """A document of megabytes, which it would refuse, gets the score of its beginning and spares its siblings."""
    huge = OVER_LONG * 100
    assert status_alone(infinity, "/rerank", {"query": QUERY, "documents": [huge]}) == 422
    async with open_stage(infinity, "infinity", max_length=max_length) as stage:
        scored = await score(stage, QUERY, ["panda", huge, "bamboo"])
    alone = alone_at_infinity(infinity, QUERY, ["panda", OVER_LONG, "bamboo"])
    assert scored.scores == pytest.approx(alone, abs=_CLOSE)
    assert scored.excluded == {}
    assert scored.cost.truncated == 1


async def test_any_script_reaches_the_server_unchanged(infinity: Server) -> None:
    """Korean, emoji, right-to-left text and control characters score as when asked directly."""
    query = "판다는 무엇을 먹나요 🐼"
    texts = [
        "자이언트 판다는 주로 대나무를 먹는다",
        "🐼 eats 🎋, not 🍔",
        'quotes " and \\ and \u2028 lines \x00 and \x1f control',
        "الباندا تأكل الخيزران",
        "👩\u200d👩\u200d👧\u200d👦 𝕡𝕒𝕟𝕕𝕒",
    ]
    async with open_stage(infinity, "infinity", chunk_texts=2) as stage:
        scored = await score(stage, query, texts)
    assert scored.scores == pytest.approx(alone_at_infinity(infinity, query, texts), abs=_CLOSE)


async def test_rounds_at_the_same_time_keep_their_scores_apart(infinity: Server) -> None:
    """Queries that share one stage, and batches at the server, never see each other's scores."""
    texts = documents(20)
    queries = [f"{word} {QUERY}" for word in ("paris", "france", "capital", "bamboo", "native", "bear")]
    alone = [alone_at_infinity(infinity, query, texts) for query in queries]
    async with open_stage(infinity, "infinity", chunk_texts=3, max_in_flight_texts=12) as stage:
        rounds = await asyncio.gather(*(score(stage, query, texts) for query in queries))
    for scored, expected in zip(rounds, alone, strict=True):
        assert scored.scores == pytest.approx(expected, abs=_CLOSE)


async def test_a_round_ends_at_its_deadline_while_the_server_works_on(infinity: Server) -> None:
    """It does not cancel: the round is over in time, the queue is not, and the next round is scored all the same."""
    few, many = documents(9), [text * 4 for text in documents(2000)]
    limits: dict[str, Any] = {"chunk_texts": 100, "chunk_tokens": 10**6, "max_in_flight_texts": 4096}
    async with open_stage(infinity, "infinity", adaptive_limit=False, **limits) as stage:
        before = await score(stage, QUERY, few)
        began = time.monotonic()
        with pytest.raises(StageTimeout) as caught:
            await score(stage, QUERY, many, deadline_ms=400)
        took = time.monotonic() - began
        queued = _queued(infinity)
        after = await score(stage, QUERY, few)
    assert caught.value.code == "deadline"
    assert took < 5
    assert queued > 0
    assert after.scores == pytest.approx(before.scores, abs=_CLOSE)


async def test_the_probe_sees_through_a_model_that_learned_nothing(infinity: Server) -> None:
    """A healthy server whose model has random weights is judged by its scores: the relevant pair is not on top."""
    async with open_stage(infinity, "infinity") as stage:
        judged = await probe(stage, Deadline.after_ms(30_000, time.monotonic))
    assert (judged.verdict, judged.code) == (Verdict.WRONG_ORDER, "")


def test_the_whole_sidecar_ranks_by_its_scores(logs: Path, llamacpp: Server, infinity: Server) -> None:
    """As the large stage of a sidecar, its own probabilities place the best, and nothing is degraded."""
    texts = documents(24)
    release = release_of("infinity", llamacpp, infinity, adapter="infinity", top_m=24)
    with sidecar(logs, release) as serving:
        reply = serving.post("/v1/rerank", {"query": QUERY, "documents": texts})
    assert reply.status_code == 200
    assert "x-cascade-degraded" not in reply.headers
    alone = alone_at_infinity(infinity, QUERY, texts, raw_scores=False)
    placed = reply.json()["results"]
    assert sorted(item["index"] for item in placed) == list(range(24))
    assert [item["relevance_score"] for item in placed] == pytest.approx(sorted(alone, reverse=True), abs=_CLOSE)
    assert [alone[item["index"]] for item in placed] == pytest.approx(sorted(alone, reverse=True), abs=_CLOSE)
