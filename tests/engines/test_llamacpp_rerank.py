"""llama.cpp's server behind its own adapter: it tells its context, and counts tokens."""

import time

import pytest

from cascade.errors import StageTimeout
from cascade.guard.deadline import Deadline
from cascade.stages.base import Observed
from cascade.stages.probe import Verdict, probe
from cascade.types import Exclusion

from .pairs import BATCHES_DIFFER, OVER_BATCH, OVER_LONG, QUERY, alone_at_llamacpp, documents, status_alone
from .rounds import open_stage, score
from .servers import Server

pytestmark = pytest.mark.engines


async def test_limits_are_learned_from_the_server(llamacpp: Server) -> None:
    """After start the stage knows the model, the build and the context of a slot, whatever the release declares."""
    async with open_stage(llamacpp, "llamacpp", max_length=8192) as stage:
        assert stage.observed == Observed(model=llamacpp.model, version=llamacpp.version, max_length=512)
        assert stage.unusable is None


@pytest.mark.parametrize("count", [1, 31, 100])
async def test_every_document_gets_its_own_score(llamacpp: Server, count: int) -> None:
    """Split into calls of seven, each position carries the score of its own document."""
    texts = documents(count)
    async with open_stage(llamacpp, "llamacpp", chunk_texts=7) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.scores == pytest.approx(alone_at_llamacpp(llamacpp, QUERY, texts), abs=BATCHES_DIFFER)
    assert scored.excluded == {}
    assert scored.cost.calls == -(-count // 7)


async def test_tokens_are_the_servers_own_count(llamacpp: Server) -> None:
    """The cost of a round adds up what the server counted over all calls, as if it had been one."""
    texts = documents(40)
    async with open_stage(llamacpp, "llamacpp", chunk_texts=40) as stage:
        together = await score(stage, QUERY, texts)
    async with open_stage(llamacpp, "llamacpp", chunk_texts=6) as stage:
        apart = await score(stage, QUERY, texts)
    assert not apart.cost.tokens_estimated
    assert apart.cost.tokens == together.cost.tokens > 40


@pytest.mark.parametrize(
    ("long", "status"), [(OVER_LONG, 400), (OVER_BATCH, 500)], ids=["over the context", "over the batch"]
)
async def test_an_over_long_document_is_clipped_once_and_its_siblings_keep_their_scores(
    llamacpp: Server, long: str, status: int
) -> None:
    """Refused for the context (400) or the batch (500), an over-long document costs three calls more, and is scored."""
    assert status_alone(llamacpp, "/v1/rerank", {"query": QUERY, "documents": [long]}) == status
    texts = documents(30)
    async with open_stage(llamacpp, "llamacpp", chunk_tokens=10**6) as stage:
        scored = await score(stage, QUERY, [*texts[:13], long, *texts[13:]])
    assert scored.excluded == {}
    assert scored.scores[13] is not None
    siblings = [*scored.scores[:13], *scored.scores[14:]]
    assert siblings == pytest.approx(alone_at_llamacpp(llamacpp, QUERY, texts), abs=BATCHES_DIFFER)
    assert (scored.cost.calls, scored.cost.truncated) == (4, 1)


async def test_blank_documents_are_not_scored(llamacpp: Server) -> None:
    """The server would score blanks; they are left out by position, and the others keep their scores."""
    texts = ["", *documents(5), " \n\t ", *documents(9)[5:], "\u3000"]
    written = [place for place, text in enumerate(texts) if text.strip()]
    async with open_stage(llamacpp, "llamacpp", chunk_texts=4) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.excluded == dict.fromkeys((0, 6, 11), Exclusion.BLANK)
    alone = alone_at_llamacpp(llamacpp, QUERY, [texts[place] for place in written])
    assert [scored.scores[place] for place in written] == pytest.approx(alone, abs=BATCHES_DIFFER)


async def test_any_script_reaches_the_server_unchanged(llamacpp: Server) -> None:
    """Korean, emoji and control characters score as when asked directly."""
    query = "판다는 무엇을 먹나요 🐼"
    texts = ["자이언트 판다는 주로 대나무를 먹는다", "🐼 eats 🎋, not 🍔", 'quotes " and \\ and \u2028 lines \x1f']
    async with open_stage(llamacpp, "llamacpp") as stage:
        scored = await score(stage, query, texts)
    assert scored.scores == pytest.approx(alone_at_llamacpp(llamacpp, query, texts), abs=BATCHES_DIFFER)


async def test_a_round_ends_at_its_deadline_and_the_server_goes_on(llamacpp: Server) -> None:
    """Work that cannot be done in time ends the round at once; the next round is scored as if nothing had been."""
    texts = [text * 3 for text in documents(200)]
    async with open_stage(llamacpp, "llamacpp") as stage:
        before = await score(stage, QUERY, texts[:9])
        with pytest.raises(StageTimeout) as caught:
            await score(stage, QUERY, texts, deadline_ms=25)
        after = await score(stage, QUERY, texts[:9])
    assert caught.value.code == "deadline"
    assert after.scores == pytest.approx(before.scores, abs=BATCHES_DIFFER)


async def test_the_probe_sees_through_a_model_that_learned_nothing(llamacpp: Server) -> None:
    """A healthy server whose model has random weights is judged by its scores: the relevant pair is not on top."""
    async with open_stage(llamacpp, "llamacpp") as stage:
        judged = await probe(stage, Deadline.after_ms(30_000, time.monotonic))
    assert (judged.verdict, judged.code) == (Verdict.WRONG_ORDER, "")


async def test_the_probe_sees_logits_that_are_declared_as_probabilities(llamacpp: Server) -> None:
    """Its scores are logits whatever is asked for, so a stage that says otherwise is found out."""
    async with open_stage(llamacpp, "llamacpp", score_space="probability") as stage:
        judged = await probe(stage, Deadline.after_ms(30_000, time.monotonic))
    assert judged.verdict is Verdict.OUTSIDE_SPACE
