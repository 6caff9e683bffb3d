"""The contract with Infinity."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from cascade.errors import StageError, StageInvalidAnswer, StageOverloaded, StageRefused
from cascade.stages.base import Observed
from cascade.testing.rerank_api import FakeInfinity
from cascade.types import StageCost

from .arrange import INFINITY, by_length, released


async def test_the_request_is_this_byte_for_byte() -> None:
    """Raw scores are asked for and no echo; nothing that hides the tail is sent."""
    async with released(FakeInfinity(), INFINITY) as contract:
        await contract.score("who", ["Shakespeare.", "안녕"])
        assert contract.bodies == [
            '{"model":"fake/reranker","raw_scores":true,"return_documents":false,'
            '"query":"who","documents":["Shakespeare.","안녕"]}'.encode()
        ]
        assert [path for path in contract.paths if path != "/models"] == ["/rerank"]


async def test_e5_a_declared_probability_asks_for_the_activation_once() -> None:
    """The server's sigmoid is asked for and not applied again here."""
    server = FakeInfinity(score_of=by_length)
    async with released(server, INFINITY, score_space="probability") as contract:
        scores = (await contract.score("q", ["a" * 10, "a"])).scores
        assert b'"raw_scores":false' in contract.bodies[0]
    assert scores == pytest.approx([1 / (1 + math.exp(3.5)), 1 / (1 + math.exp(-5.5))])


async def test_what_it_calls_tokens_is_not_believed() -> None:
    """It counts characters: tokens are estimated, and said to be."""
    async with released(FakeInfinity(), INFINITY) as contract:
        cost = (await contract.score("q" * 35, ["d" * 70])).cost
    assert cost == StageCost(1, 10 + 4 + 20, tokens_estimated=True, truncated=0)


@pytest.mark.parametrize(("chunk_texts", "sizes"), [(None, [512, 512, 512, 512, 52]), (5_000, [2048, 52])])
async def test_d1_no_call_holds_more_documents_than_it_ever_takes(chunk_texts: int | None, sizes: list[int]) -> None:
    """It states its limit nowhere but in its schema; a release cannot ask it for more."""
    server = FakeInfinity()
    fields: dict[str, Any] = {"chunk_texts": chunk_texts, "max_in_flight_texts": 5_000, "chunk_tokens": 10**6}
    async with released(server, INFINITY, **fields) as contract:
        await contract.score("q", ["a"] * 2_100)
    assert [len(seen.body["documents"]) for seen in server.posts] == sizes


async def test_d9_no_text_has_more_characters_than_it_takes() -> None:
    """A wide window does not let a document through that fails the whole request."""
    server = FakeInfinity()
    async with released(server, INFINITY, max_length=32_768, chunk_bytes=10**7) as contract:
        scored = await contract.score("x" * 200_000, ["y" * 200_000, "z"])
    assert all(score is not None for score in scored.scores)
    assert scored.cost.truncated == 2


async def test_d7_null_in_place_of_a_score_fails_the_round() -> None:
    """What is not finite is written as null with status 200: no score, and no rank for its siblings either."""
    server = FakeInfinity(score_of=lambda query, text: math.nan if text == "bad" else 1.0)
    async with released(server, INFINITY) as contract:
        with pytest.raises(StageInvalidAnswer, match="not_a_number"):
            await contract.score("q", ["good", "bad"])


async def test_the_model_is_observed_and_any_name_scores_at_a_server_with_one() -> None:
    """What is served is told beside what is declared."""
    async with released(FakeInfinity(models=("another",)), INFINITY) as contract:
        assert contract.stage.observed == Observed(model="another")
        assert (await contract.score("q", ["a"])).scores[0] is not None


@pytest.mark.parametrize(
    ("server", "code"),
    [
        (FakeInfinity(models=("one", "two")), "unknown_model"),
        (FakeInfinity(capabilities=("embed",)), "not_a_reranker"),
        (FakeInfinity(key="right"), "unauthorized"),
    ],
    ids=["model", "capability", "key"],
)
async def test_what_can_never_score_is_said_at_start(server: FakeInfinity, code: str) -> None:
    """A name that it does not have, a model of another kind and a wrong key are each told as what they are."""
    async with released(server, INFINITY) as contract:
        assert contract.stage.unusable == code
        with pytest.raises(StageRefused, match=code):
            await contract.score("q", ["a"])
    assert server.posts == []


async def test_of_several_models_the_named_one_is_taken() -> None:
    """Its neighbours say nothing about it."""
    async with released(FakeInfinity(models=("other", "fake/reranker")), INFINITY) as contract:
        assert contract.stage.observed == Observed(model="fake/reranker")


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (httpx.Response(429, json={"error": {"message": "model is currently overloaded"}}), StageOverloaded, "status_429"),
        (httpx.Response(422, json={"detail": [{"input": ["a"], "msg": "m"}]}), StageRefused, "status_422"),
        (httpx.Response(400, json={"error": {"message": "Invalid model: Engine for model name `m` not found."}}), StageRefused, "unknown_model"),
        (httpx.Response(400, json={"error": {"message": "model=`m` does not support `rerank`."}}), StageRefused, "not_a_reranker"),
        (httpx.Response(401, json={"detail": "Unauthorized"}), StageRefused, "unauthorized"),
        (httpx.Response(500, json={"error": {"message": "InternalServerError"}}), StageInvalidAnswer, "status_500"),
        (httpx.Response(200, json={"error": {"message": "m"}}), StageInvalidAnswer, "error_body"),
        (httpx.Response(200, json={"detail": "m"}), StageInvalidAnswer, "error_body"),
        (httpx.Response(200, json={"object": "rerank"}), StageInvalidAnswer, "wrong_shape"),
        (httpx.Response(200, json=[]), StageInvalidAnswer, "wrong_shape"),
    ],
)  # fmt: skip
async def test_b5_each_failure_has_one_reason_and_one_code(
    answer: httpx.Response, kind: type[StageError], code: str
) -> None:
    """Its own errors and its framework's are both understood."""
    server = FakeInfinity()
    async with released(server, INFINITY) as contract:
        server.script = [answer]
        with pytest.raises(StageError) as caught:
            await contract.score("q", ["a"])
    assert (type(caught.value), caught.value.code) == (kind, code)
