"""The contract with SGLang's rerank route."""

from __future__ import annotations

import httpx
import pytest

from cascade.errors import StageError, StageInvalidAnswer, StageOverloaded, StageRefused
from cascade.stages.base import Observed
from cascade.testing.rerank_api import FakeSglang
from cascade.types import Exclusion

from .arrange import SGLANG, by_length, released


async def test_the_request_is_this_byte_for_byte() -> None:
    """It has no field for a model; an instruction goes under its own name for it, the caller's before the release's."""
    async with released(FakeSglang(), SGLANG, instruction="Find answers") as contract:
        await contract.score("who", ["Shakespeare."])
        await contract.score("who", ["Shakespeare."], instruction='Find "it"')
        assert contract.bodies == [
            b'{"return_documents":false,"instruct":"Find answers","query":"who","documents":["Shakespeare."]}',
            b'{"return_documents":false,"instruct":"Find \\"it\\"","query":"who","documents":["Shakespeare."]}',
        ]
        assert contract.stage.takes_instruction
        assert contract.paths == ["/v1/models", "/v1/rerank", "/v1/rerank"]


async def test_34_scores_come_out_of_a_bare_array() -> None:
    """The answer is no object, whatever its route looks like; logits arrive as they are."""
    async with released(FakeSglang(score_of=by_length), SGLANG) as contract:
        scored = await contract.score("q", ["aaa", "a", "aa"])
        assert contract.stage.observed == Observed(model="fake/reranker", max_length=512)
    assert scored.scores == (3.5, 5.5, 4.5)
    assert scored.cost.tokens_estimated


async def test_32_a_blank_document_is_never_sent() -> None:
    """It would be refused for all; nor is one blank that only begins so, far beyond the window."""
    server = FakeSglang()
    async with released(server, SGLANG) as contract:
        scored = await contract.score("q", ["a", "", " \n", " " * 50_000 + "b"])
    assert scored.excluded == {1: Exclusion.BLANK, 2: Exclusion.BLANK}
    assert server.posts[0].body["documents"] == ["a", "b"]


async def test_d9_one_document_that_is_too_long_is_clipped_once_and_its_siblings_keep_their_scores() -> None:
    """400 names what it counted and its limit: the document goes alone, clipped to it."""
    server = FakeSglang(score_of=lambda query, text: float(text.split()[0]))
    async with released(server, SGLANG) as contract:
        scored = await contract.score("q", ["1 a", "7 " + "word " * 900, "2 b"])
    assert scored.scores == (1.0, 7.0, 2.0)
    assert (scored.excluded, scored.cost.truncated, len(server.posts)) == ({}, 1, 4)
    assert 512 * 0.8 < server.tokens_of("q", server.posts[-1].body["documents"][0]) <= 512


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (httpx.Response(503, json={"object": "error", "message": "The request queue is full.", "type": "503"}), StageOverloaded, "status_503"),
        (httpx.Response(401, json={"error": "Unauthorized"}), StageRefused, "unauthorized"),
        (httpx.Response(400, json={"object": "error", "message": "[{'type': 'missing', 'input': {'query': 'q'}}]"}), StageRefused, "status_400"),
        (httpx.Response(400, json={"object": "error", "message": "This model does not support reranking"}), StageRefused, "not_a_reranker"),
        (httpx.Response(200, json={"object": "error", "message": "m"}), StageInvalidAnswer, "wrong_shape"),
        (httpx.Response(200, json={"error": "m"}), StageInvalidAnswer, "error_body"),
        (httpx.Response(200, json=[{"index": 0}]), StageInvalidAnswer, "wrong_shape"),
    ],
)  # fmt: skip
async def test_b5_each_failure_has_one_reason_and_one_code(
    answer: httpx.Response, kind: type[StageError], code: str
) -> None:
    """Flat errors, with a status as their type, are understood."""
    server = FakeSglang()
    async with released(server, SGLANG) as contract:
        server.script = [answer]
        with pytest.raises(StageError) as caught:
            await contract.score("q", ["a"])
    assert (type(caught.value), caught.value.code) == (kind, code)


async def test_a_gateway_that_hides_the_list_of_models_is_usable() -> None:
    """Nothing is learned, and nothing held against it."""

    class Silent(FakeSglang):
        def get(self, path: str) -> httpx.Response:
            return httpx.Response(404, json={"detail": "Not Found"})

    async with released(Silent(), SGLANG) as contract:
        assert contract.stage.observed == Observed()
        assert (await contract.score("q", ["a"])).scores[0] is not None
