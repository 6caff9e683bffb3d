"""vLLM, when it refuses: keys, models, and what is too long."""

import pytest

from cascade.errors import StageRefused
from cascade.types import StageScores

from .conftest import KEY
from .pairs import OVER_LONG, QUERY, alone_at_vllm, documents, status_alone
from .rounds import open_stage, score
from .servers import Server

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("start", [True, False], ids=["asked at start", "not asked before"])
async def test_a_wrong_key_refuses_the_round(vllm_with_key: Server, start: bool) -> None:
    """A key that the server does not know is told as such, at start and in a round."""
    spec = {"auth": {"env": "TOKEN"}}
    async with open_stage(vllm_with_key, "vllm", environment={"TOKEN": "another key"}, start=start, **spec) as stage:
        assert stage.unusable == ("unauthorized" if start else None)
        with pytest.raises(StageRefused) as caught:
            await score(stage, QUERY, documents(3))
    assert caught.value.code == "unauthorized"


async def test_no_key_refuses_the_round(vllm_with_key: Server) -> None:
    """A release that names no key is refused by a server that asks for one."""
    async with open_stage(vllm_with_key, "vllm") as stage:
        with pytest.raises(StageRefused) as caught:
            await score(stage, QUERY, documents(3))
    assert caught.value.code == "unauthorized"


async def test_the_right_key_is_let_in(vllm_with_key: Server) -> None:
    """With the key that the server asks for, limits are learned and documents scored."""
    texts = documents(20)
    async with open_stage(
        vllm_with_key, "vllm", environment={"TOKEN": f"{KEY}\n"}, auth={"env": "TOKEN"}, chunk_texts=6
    ) as stage:
        scored = await score(stage, QUERY, texts)
        assert stage.observed is not None
        assert stage.observed.max_length == 512
    alone = alone_at_vllm(vllm_with_key, QUERY, texts, use_activation=False, key=KEY)
    assert scored.scores == pytest.approx(alone, abs=1e-4)


@pytest.mark.parametrize("start", [True, False], ids=["asked at start", "not asked before"])
async def test_an_unknown_model_refuses_the_round(vllm: Server, start: bool) -> None:
    """A model that the server does not serve makes the stage unusable, and its rounds say why."""
    async with open_stage(vllm, "vllm", model="another/model", start=start) as stage:
        assert stage.unusable == ("unknown_model" if start else None)
        with pytest.raises(StageRefused) as caught:
            await score(stage, QUERY, documents(3))
    assert caught.value.code == "unknown_model"


def _assert_all_scored(scored: StageScores, expected: dict[int, float]) -> None:
    """Check that nothing is left out, and the scores at the positions of ``expected``."""
    assert scored.excluded == {}
    assert None not in scored.scores
    assert {place: scored.scores[place] for place in expected} == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("start", [True, False], ids=["limits known", "limits not asked for"])
async def test_an_over_long_document_is_clipped_once_and_its_siblings_keep_their_scores(
    vllm: Server, start: bool
) -> None:
    """One document over the limit costs three calls more: the rest, itself, and itself clipped."""
    texts = documents(31)
    alone = alone_at_vllm(vllm, QUERY, texts, use_activation=False)
    async with open_stage(vllm, "vllm", start=start, chunk_tokens=10**6) as stage:
        scored = await score(stage, QUERY, [*texts[:13], OVER_LONG, *texts[13:]])
    _assert_all_scored(scored, dict(enumerate(alone[:13])) | dict(enumerate(alone[13:], start=14)))
    assert (scored.cost.calls, scored.cost.truncated) == (4, 1)


async def test_a_clipped_document_still_fills_the_model(vllm: Server) -> None:
    """A clip leaves out no more than it must: over half of the limit is read, by the server's own count."""
    async with open_stage(vllm, "vllm") as stage:
        scored = await score(stage, QUERY, [OVER_LONG])
    assert not scored.cost.tokens_estimated
    assert 256 < scored.cost.tokens <= 512


async def test_over_long_documents_among_many_keep_everyone_in_place(vllm: Server) -> None:
    """Seven over-long documents in a round of 128, over several calls, leave nobody out of place."""
    texts = documents(128)
    long = range(5, 128, 18)
    for place in long:
        texts[place] = f"{place} {OVER_LONG}"
    short = [place for place in range(128) if place not in long]
    alone = alone_at_vllm(vllm, QUERY, [texts[place] for place in short], use_activation=False)
    async with open_stage(vllm, "vllm", chunk_texts=32) as stage:
        scored = await score(stage, QUERY, texts)
    _assert_all_scored(scored, dict(zip(short, alone, strict=True)))
    assert scored.cost.truncated == len(long)


async def test_a_round_of_over_long_documents_is_clipped_whole(vllm: Server) -> None:
    """Where every document is over the limit, every document is clipped and scored."""
    texts = [f"{number} {OVER_LONG}" for number in range(9)]
    async with open_stage(vllm, "vllm") as stage:
        scored = await score(stage, QUERY, texts)
    _assert_all_scored(scored, {})
    assert scored.cost.truncated == 9


async def test_a_document_that_no_estimate_foresees_is_clipped_by_the_server(vllm: Server) -> None:
    """Where a clip by estimate is still too long, the limit sent with it makes the server clip the rest."""
    dense = "qxzvkj " * 250  # 1500 tokens, which the estimate takes for 500
    clipped = dense[: len(dense) * 3 // 4]
    assert status_alone(vllm, "/v1/score", {"model": vllm.model, "text_1": QUERY, "text_2": [clipped]}) == 400
    texts = documents(8)
    alone = alone_at_vllm(vllm, QUERY, texts, use_activation=False)
    async with open_stage(vllm, "vllm") as stage:
        scored = await score(stage, QUERY, [*texts, dense])
    _assert_all_scored(scored, dict(enumerate(alone)))
    assert scored.cost.truncated == 1


async def test_a_huge_document_is_cut_before_it_is_sent(vllm: Server) -> None:
    """A document of megabytes is scored by its beginning, within the same few calls."""
    async with open_stage(vllm, "vllm") as stage:
        scored = await score(stage, QUERY, ["panda", OVER_LONG * 500])
    assert scored.excluded == {}
    assert (scored.cost.calls, scored.cost.truncated) == (4, 1)


async def test_a_very_long_query_is_clipped_to_leave_room_for_documents(vllm: Server) -> None:
    """A query over the limit keeps its beginning, and every document is scored against that."""
    texts = ["panda", "bamboo in china", "the capital of france"]
    async with open_stage(vllm, "vllm") as stage:
        scored = await score(stage, "of the by in on at " * 200, texts)
    assert scored.excluded == {}
    assert (scored.cost.calls, scored.cost.truncated) == (1, 3)
    written = "of the by in on at " * 200
    sent = written[: int(len(written) * 256 / round(len(written) / 3.5) * 0.9)]
    assert scored.scores == pytest.approx(alone_at_vllm(vllm, sent, texts, use_activation=False), abs=1e-4)


async def test_a_query_that_no_estimate_foresees_is_clipped_by_the_server(vllm: Server) -> None:
    """Where the query alone is over the limit after its clip by estimate, the server clips it, and all are scored."""
    texts = ["panda", "bamboo in china", "the capital of france", OVER_LONG]
    async with open_stage(vllm, "vllm") as stage:
        scored = await score(stage, "qxzvkj " * 300, texts)
    _assert_all_scored(scored, {})
    assert scored.cost.truncated == 4
