"""llama.cpp's server behind the ``tei`` adapter: it takes TEI's request, and states its limits in its own words."""

import pytest

from cascade.errors import StageTimeout
from cascade.stages.base import Observed
from cascade.types import Exclusion

from .pairs import BATCHES_DIFFER, OVER_BATCH, OVER_LONG, QUERY, alone_at_llamacpp, documents, status_alone
from .rounds import open_stage, score
from .servers import Server

pytestmark = pytest.mark.engines


async def test_a_server_that_tells_no_limits_is_usable(llamacpp: Server) -> None:
    """Without ``/info`` nothing is known of the server, nothing speaks against it, and the adapter's defaults hold."""
    texts = documents(33)
    async with open_stage(llamacpp, "tei") as stage:
        assert stage.observed == Observed()
        assert stage.unusable is None
        scored = await score(stage, QUERY, texts)
    assert scored.cost.calls == 2


@pytest.mark.parametrize("count", [1, 31, 100])
async def test_every_document_gets_its_own_score(llamacpp: Server, count: int) -> None:
    """Split into calls of seven, each position carries the score of its own document."""
    texts = documents(count)
    async with open_stage(llamacpp, "tei", chunk_texts=7) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.scores == pytest.approx(alone_at_llamacpp(llamacpp, QUERY, texts), abs=BATCHES_DIFFER)
    assert scored.excluded == {}
    assert scored.cost.calls == -(-count // 7)
    assert scored.cost.tokens_estimated


async def test_chunks_do_not_change_scores(llamacpp: Server) -> None:
    """A hundred documents score alike in one call and in many."""
    texts = documents(100)
    async with open_stage(llamacpp, "tei", chunk_texts=100, chunk_tokens=10**6) as stage:
        together = await score(stage, QUERY, texts)
    async with open_stage(llamacpp, "tei", chunk_texts=3) as stage:
        apart = await score(stage, QUERY, texts)
    assert (together.cost.calls, apart.cost.calls) == (1, 34)
    assert apart.scores == pytest.approx(together.scores, abs=BATCHES_DIFFER)


@pytest.mark.parametrize(
    ("long", "status"), [(OVER_LONG, 400), (OVER_BATCH, 500)], ids=["over the context", "over the batch"]
)
async def test_an_over_long_document_is_clipped_once_and_its_siblings_keep_their_scores(
    llamacpp: Server, long: str, status: int
) -> None:
    """Refused for the context (400) or the batch (500), an over-long document costs three calls more, and is scored."""
    assert status_alone(llamacpp, "/rerank", {"query": QUERY, "texts": [long], "truncate": True}) == status
    texts = documents(30)
    async with open_stage(llamacpp, "tei") as stage:
        scored = await score(stage, QUERY, [*texts[:13], long, *texts[13:]])
    assert scored.excluded == {}
    assert scored.scores[13] is not None
    siblings = [*scored.scores[:13], *scored.scores[14:]]
    assert siblings == pytest.approx(alone_at_llamacpp(llamacpp, QUERY, texts), abs=BATCHES_DIFFER)
    assert (scored.cost.calls, scored.cost.truncated) == (4, 1)


async def test_over_long_documents_of_both_kinds_are_clipped_in_one_round(llamacpp: Server) -> None:
    """Documents over either limit, spread over several calls, are all scored, and the others keep their scores."""
    texts = documents(60)
    for place in range(3, 60, 10):
        texts[place] = f"{place} {OVER_BATCH if place % 20 == 3 else OVER_LONG}"
    short = [place for place in range(60) if place % 10 != 3]
    async with open_stage(llamacpp, "tei", chunk_texts=20) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.excluded == {}
    assert None not in scored.scores
    alone = alone_at_llamacpp(llamacpp, QUERY, [texts[place] for place in short])
    assert [scored.scores[place] for place in short] == pytest.approx(alone, abs=BATCHES_DIFFER)
    assert scored.cost.truncated == 6


async def test_a_round_of_over_long_documents_is_clipped_whole(llamacpp: Server) -> None:
    """Where every document is over a limit, every document is clipped and scored."""
    texts = [f"{number} {OVER_BATCH if number % 2 else OVER_LONG}" for number in range(8)]
    async with open_stage(llamacpp, "tei") as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.excluded == {}
    assert None not in scored.scores
    assert scored.cost.truncated == 8


async def test_blank_documents_are_not_scored(llamacpp: Server) -> None:
    """The server would score blanks; they are left out by position, and the others keep their scores."""
    texts = ["", *documents(5), " \n\t ", *documents(9)[5:], "\u3000"]
    written = [place for place, text in enumerate(texts) if text.strip()]
    async with open_stage(llamacpp, "tei", chunk_texts=4) as stage:
        scored = await score(stage, QUERY, texts)
    assert scored.excluded == dict.fromkeys((0, 6, 11), Exclusion.BLANK)
    alone = alone_at_llamacpp(llamacpp, QUERY, [texts[place] for place in written])
    assert [scored.scores[place] for place in written] == pytest.approx(alone, abs=BATCHES_DIFFER)


async def test_any_script_reaches_the_server_unchanged(llamacpp: Server) -> None:
    """Korean, emoji and control characters score as when asked directly."""
    query = "판다는 무엇을 먹나요 🐼"
    texts = ["자이언트 판다는 주로 대나무를 먹는다", "🐼 eats 🎋, not 🍔", 'quotes " and \\ and \u2028 lines \x1f']
    async with open_stage(llamacpp, "tei") as stage:
        scored = await score(stage, query, texts)
    assert scored.scores == pytest.approx(alone_at_llamacpp(llamacpp, query, texts), abs=BATCHES_DIFFER)


async def test_a_round_ends_at_its_deadline_and_the_server_goes_on(llamacpp: Server) -> None:
    """Work that cannot be done in time ends the round at once; the next round is scored as if nothing had been."""
    texts = [text * 3 for text in documents(200)]
    async with open_stage(llamacpp, "tei") as stage:
        before = await score(stage, QUERY, texts[:9])
        with pytest.raises(StageTimeout) as caught:
            await score(stage, QUERY, texts, deadline_ms=25)
        after = await score(stage, QUERY, texts[:9])
    assert caught.value.code == "deadline"
    assert after.scores == pytest.approx(before.scores, abs=BATCHES_DIFFER)
