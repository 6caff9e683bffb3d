"""The contract with llama.cpp's server: through TEI's request, and through its own."""

from __future__ import annotations

import httpx
import pytest

from cascade.errors import StageInvalidAnswer, StageOverloaded, StageRefused
from cascade.stages.base import Observed
from cascade.testing.rerank_api import FakeLlamaCpp
from cascade.types import Exclusion

from .arrange import LLAMACPP, TEI, released

VIA_TEI = {**TEI, "engine": "llamacpp/b1"}


def by_first_word(query: str, text: str) -> float:
    """Score by the number that a text begins with."""
    return float(text.split(maxsplit=1)[0]) - 1.6107288599014282


async def test_limits_are_not_told_and_the_stage_is_usable() -> None:
    """Its /info is an error in JSON with status 404: no limits, nothing against it."""
    async with released(FakeLlamaCpp(), VIA_TEI) as contract:
        assert contract.stage.observed == Observed()
        assert contract.stage.unusable is None


async def test_e5_raw_logits_arrive_as_they_are() -> None:
    """Scores are logits whatever is asked for, and are placed by index out of a ranked answer."""
    async with released(FakeLlamaCpp(score_of=by_first_word), VIA_TEI) as contract:
        scores = (await contract.score("q", ["0 a", "2 b", "1 c"])).scores
    assert scores == (-1.6107288599014282, 2 - 1.6107288599014282, 1 - 1.6107288599014282)


async def test_the_observed_answer_is_read() -> None:
    """The very bytes of a running server give these scores; tokens are estimated, since it does not count them."""
    server = FakeLlamaCpp()
    async with released(server, VIA_TEI) as contract:
        body = (
            b'[{"index":2,"score":-1.1364567279815674},{"index":1,"score":-1.3820805549621582},'
            b'{"index":0,"score":-1.6107288599014282}]'
        )
        server.script = [httpx.Response(200, content=body)]
        scored = await contract.score("who wrote hamlet", ["Shakespeare wrote Hamlet.", "Bread is baked.", "x"])
    assert scored.scores == (-1.6107288599014282, -1.3820805549621582, -1.1364567279815674)
    assert scored.cost.tokens_estimated


@pytest.mark.parametrize(
    ("words", "calls"),
    [(600, 3), (2_006, 3), (2_300, 3)],
    ids=["over the context (400)", "far over the context (400)", "over the batch (500)"],
)
async def test_d9_a_pair_that_is_too_long_in_either_way_is_clipped_to_the_context_and_scored(
    words: int, calls: int
) -> None:
    """Both errors are about length; the batch size in the second is no limit to clip to, the context is smaller."""
    server = FakeLlamaCpp(score_of=by_first_word)
    long = "7 " + "a" + " b" * words
    async with released(server, VIA_TEI) as contract:
        scored = await contract.score("q", ["1 a", long, "2 b"])
    assert scored.scores == tuple(score - 1.6107288599014282 for score in (1, 7, 2))
    assert scored.excluded == {}
    assert scored.cost.truncated == 1
    assert len(server.posts) == calls + 1  # all together, the rest, the long one, the long one clipped
    clipped = server.posts[-1].body["texts"][0]
    assert long.startswith(clipped)
    assert 512 * 0.8 < server.tokens_of("q", clipped) <= 512


async def test_d9_a_query_that_leaves_no_room_excludes_only_what_does_not_fit() -> None:
    """Where the query has more tokens than it seemed, a clipped document may be refused again; short ones are scored."""
    server = FakeLlamaCpp(score_of=by_first_word, max_length=64, tokens_of=lambda query, text: 60 + len(text.split()))
    async with released(server, VIA_TEI, max_length=64) as contract:
        scored = await contract.score("w " * 200, ["1 a", "2 " + "b " * 100])
    assert scored.scores == (1 - 1.6107288599014282, None)
    assert scored.excluded == {1: Exclusion.REFUSED}


async def test_d7_the_sentinel_of_a_pair_that_was_not_scored_is_no_score() -> None:
    """-1000000 with status 200 means that nothing came out of the model."""
    server = FakeLlamaCpp()
    async with released(server, VIA_TEI) as contract:
        server.script = [httpx.Response(200, content=b'[{"index":0,"score":-1000000.0},{"index":1,"score":0.5}]')]
        with pytest.raises(StageInvalidAnswer, match="not_a_number"):
            await contract.score("q", ["a", "b"])


@pytest.mark.parametrize(
    ("status", "message", "kind", "code"),
    [
        (503, "Loading model", StageOverloaded, "status_503"),
        (501, "This server does not support reranking. Start it with `--reranking`", StageRefused, "status_501"),
        (500, "vector::_M_default_append", StageInvalidAnswer, "status_500"),
        (400, '"texts" must be provided', StageRefused, "status_400"),
    ],
)
async def test_b5_its_other_errors_are_told_apart(status: int, message: str, kind: type[Exception], code: str) -> None:
    """Loading is overload, a server without reranking a refusal, the rest its own fault."""
    server = FakeLlamaCpp()
    async with released(server, VIA_TEI) as contract:
        server.script = [httpx.Response(status, json={"error": {"code": status, "message": message, "type": "t"}})]
        with pytest.raises(kind, match=code):
            await contract.score("q", ["a"])


async def test_its_own_request_is_this_byte_for_byte() -> None:
    """There is no switch for raw scores and none for truncation: nothing but query and documents is sent."""
    async with released(FakeLlamaCpp(), LLAMACPP) as contract:
        await contract.score("who", ["Shakespeare.", "안녕"])
        assert contract.bodies == [
            '{"model":"fake/reranker","query":"who","documents":["Shakespeare.","안녕"]}'.encode()
        ]
        assert contract.paths == ["/props", "/v1/rerank"]


async def test_the_slots_context_is_the_longest_pair() -> None:
    """Model, build and context are told where the key is asked for, so that a wrong one is noticed at start."""
    async with released(FakeLlamaCpp(max_length=256), LLAMACPP) as contract:
        assert contract.stage.observed == Observed(model="fake/reranker", version="b1-7e4c0a9", max_length=256)
    async with released(FakeLlamaCpp(key="right"), LLAMACPP) as contract:
        assert contract.stage.unusable == "unauthorized"


@pytest.mark.parametrize(
    "props", [{"default_generation_settings": None}, {"default_generation_settings": {"n_ctx": 0}}]
)
async def test_odd_properties_tell_no_limit(props: dict[str, object]) -> None:
    """A fork that says less is usable all the same."""

    class Odd(FakeLlamaCpp):
        def get(self, path: str) -> httpx.Response:
            return httpx.Response(200, json=props)

    async with released(Odd(), LLAMACPP) as contract:
        assert contract.stage.observed == Observed()


async def test_tokens_of_its_own_answer_are_the_servers() -> None:
    """Its own format counts tokens, TEI's does not."""
    async with released(FakeLlamaCpp(), LLAMACPP) as contract:
        cost = (await contract.score("q", ["a b", "c"])).cost
    assert (cost.tokens, cost.tokens_estimated) == ((1 + 2 + 3) + (1 + 1 + 3), False)


@pytest.mark.parametrize(
    ("batch", "status", "kept"), [(2048, 400, 512), (256, 500, 256)], ids=["over the context", "over the batch"]
)
async def test_d9_both_forms_of_too_long_are_understood_in_its_own_format(batch: int, status: int, kept: int) -> None:
    """A 500 about the batch and a 400 about the context both lead to one clipped attempt, within what was stated."""
    server = FakeLlamaCpp(score_of=by_first_word, batch=batch)
    async with released(server, LLAMACPP) as contract:
        scored = await contract.score("q", ["1 a", "7 " + "b " * 900, "2 b"])
    assert server.post("/v1/rerank", server.posts[0].body, 0).status_code == status
    assert scored.scores == tuple(score - 1.6107288599014282 for score in (1, 7, 2))
    assert (scored.excluded, scored.cost.truncated) == ({}, 1)
    assert kept * 0.8 < server.tokens_of("q", server.posts[-1].body["documents"][0]) <= kept


async def test_d7_the_sentinel_fails_the_round_in_its_own_format() -> None:
    """One pair that was not scored spoils the round, whatever its siblings got."""
    server = FakeLlamaCpp(unscored=lambda text: text == "bad")
    async with released(server, LLAMACPP) as contract:
        with pytest.raises(StageInvalidAnswer, match="not_a_number"):
            await contract.score("q", ["good", "bad"])


async def test_b5_a_server_that_loads_its_model_is_overloaded_and_nothing_speaks_against_it() -> None:
    """503 on every path passes: limits are asked for again, and a round meanwhile has no room."""
    server = FakeLlamaCpp(loading=True)
    async with released(server, LLAMACPP) as contract:
        assert contract.stage.observed is None
        assert contract.stage.unusable is None
        with pytest.raises(StageOverloaded, match="status_503"):
            await contract.score("q", ["a"])


async def test_b5_a_server_that_was_not_started_for_reranking_says_so() -> None:
    """501 with its hint is no reranker."""
    async with released(FakeLlamaCpp(reranking=False), LLAMACPP) as contract:
        with pytest.raises(StageRefused, match="not_a_reranker"):
            await contract.score("q", ["a"])
