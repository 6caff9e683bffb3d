"""The contract with hosted APIs, by their documentation: Cohere, Jina, Voyage, Mixedbread and NVIDIA's NIM."""

from __future__ import annotations

import math
from typing import Any

import httpx
import orjson
import pytest

from cascade.errors import StageError, StageInvalidAnswer, StageOverloaded, StageRefused, StageUnreachable
from cascade.stages.base import Observed
from cascade.testing.rerank_api import FakeHosted
from cascade.types import Exclusion, ScoreSpace

from .arrange import HOSTED, by_length, released

PROBABILITIES = ["cohere", "jina", "voyage", "mixedbread"]
each = pytest.mark.parametrize("kind", list(HOSTED))

BODIES = {
    "cohere": '{"model":"fake/reranker","query":"who","documents":["Shakespeare.","안녕"]}',
    "jina": '{"model":"fake/reranker","return_documents":false,"query":"who","documents":["Shakespeare.","안녕"]}',
    "voyage": '{"model":"fake/reranker","return_documents":false,"truncation":true,'
    '"query":"who","documents":["Shakespeare.","안녕"]}',
    "mixedbread": '{"model":"fake/reranker","return_input":false,"query":"who","input":["Shakespeare.","안녕"]}',
    "nim": '{"model":"fake/reranker","truncate":"END",'
    '"query":{"text":"who"},"passages":[{"text":"Shakespeare."},{"text":"안녕"}]}',
}
PATHS = {
    "cohere": ["/v2/rerank"],
    "jina": ["/v1/rerank"],
    "voyage": ["/v1/rerank"],
    "mixedbread": ["/v1/reranking"],
    "nim": ["/v1/models", "/v1/ranking"],
}


def hosted(kind: str, **fields: Any) -> FakeHosted:
    """Return the fake of an API."""
    return FakeHosted(kind=kind, **fields)  # type: ignore[arg-type]


@each
async def test_the_request_is_this_byte_for_byte(kind: str) -> None:
    """Each API is asked in its own names, for no echo, for no activation and for no top."""
    async with released(hosted(kind), HOSTED[kind]) as contract:
        await contract.score("who", ["Shakespeare.", "안녕"])
        assert contract.bodies == [BODIES[kind].encode()]
        assert contract.paths == PATHS[kind]


@pytest.mark.parametrize("kind", PROBABILITIES)
async def test_e5_scores_are_probabilities_and_are_never_squashed_again(kind: str) -> None:
    """Absolute values arrive as the API gave them, in the space that they are in unless declared otherwise."""
    async with released(hosted(kind, score_of=by_length), HOSTED[kind]) as contract:
        scores = (await contract.score("q", ["a" * 10, "a"])).scores
        assert contract.stage.space is ScoreSpace.PROBABILITY
    assert scores == pytest.approx([1 / (1 + math.exp(3.5)), 1 / (1 + math.exp(-5.5))])


async def test_e5_nim_scores_are_logits() -> None:
    """The one that answers logits is taken at its word."""
    async with released(hosted("nim", score_of=by_length), HOSTED["nim"]) as contract:
        scores = (await contract.score("q", ["a" * 10, "a"])).scores
        assert contract.stage.space is ScoreSpace.LOGIT
        assert contract.stage.observed == Observed(model="fake/reranker")
    assert scores == (-3.5, 5.5)


@each
async def test_d8_blank_documents_are_never_sent(kind: str) -> None:
    """They are refused over there, for all their siblings."""
    async with released(hosted(kind, score_of=by_length), HOSTED[kind]) as contract:
        scored = await contract.score("q", ["", "a", "\n\t"])
    assert scored.excluded == {0: Exclusion.BLANK, 2: Exclusion.BLANK}
    assert scored.scores[1] is not None


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("cohere", [1000, 500]),
        ("jina", [512, 512, 476]),
        ("voyage", [1000, 500]),
        ("mixedbread", [512, 512, 476]),
        ("nim", [512, 512, 476]),
    ],
)
async def test_d1_calls_hold_as_many_documents_as_the_api_takes(kind: str, sizes: list[int]) -> None:
    """Nobody tells the limit: it is known beforehand."""
    server = hosted(kind)
    async with released(server, HOSTED[kind], max_in_flight_texts=5_000, chunk_tokens=10**6) as contract:
        await contract.score("q", ["a"] * 1_500)
        sent = [orjson.loads(body) for body in contract.bodies]
    names = {"mixedbread": "input", "nim": "passages"}
    assert [len(body[names.get(kind, "documents")]) for body in sent] == sizes


@pytest.mark.parametrize(("kind", "most"), [("voyage", 1000), ("nim", 512), ("cohere", 10_000)])
async def test_d1_a_configured_size_above_the_apis_is_cut_to_it(kind: str, most: int) -> None:
    """A release cannot ask for more than is ever taken."""
    server = hosted(kind)
    fields: dict[str, Any] = {
        "chunk_texts": 20_000,
        "max_in_flight_texts": 50_000,
        "chunk_tokens": 10**7,
        "chunk_bytes": 10**8,
    }
    async with released(server, HOSTED[kind], **fields) as contract:
        await contract.score("q", ["a"] * (most + 1))
    assert len(server.posts) == 2


@each
@pytest.mark.parametrize(
    ("status", "outcome", "code"),
    [
        (400, StageRefused, "status_400"),
        (401, StageRefused, "unauthorized"),
        (402, StageRefused, "payment_required"),
        (403, StageRefused, "forbidden"),
        (404, StageRefused, "no_route"),
        (422, StageRefused, "status_422"),
        (429, StageOverloaded, "status_429"),
        (500, StageInvalidAnswer, "status_500"),
        (502, StageUnreachable, "status_502"),
        (503, StageOverloaded, "status_503"),
    ],
)
async def test_b5_each_status_has_one_reason_and_one_code(
    kind: str, status: int, outcome: type[StageError], code: str
) -> None:
    """An account that is empty or used up is told apart from a server that is down; nothing is repeated."""
    server = hosted(kind)
    async with released(server, HOSTED[kind]) as contract:
        server.script = [server.problem(status, "m")]
        with pytest.raises(StageError) as caught:
            await contract.score("q", ["a", "b"])
    assert (type(caught.value), caught.value.code) == (outcome, code)
    assert len(server.posts) == 1


@each
async def test_an_unknown_model_is_told_apart_from_an_unknown_route(kind: str) -> None:
    """Both are 404 where models are part of the catalogue."""
    async with released(hosted(kind, model="another"), HOSTED[kind]) as contract:
        with pytest.raises(StageRefused, match="unknown_model"):
            await contract.score("q", ["a"])


@each
async def test_the_key_is_sent_with_every_call(kind: str) -> None:
    """Bearer everywhere; a wrong one is a refusal."""
    async with released(hosted(kind, key="right"), HOSTED[kind], {"KEY": "right"}, auth={"env": "KEY"}) as contract:
        assert (await contract.score("q", ["a"])).scores[0] is not None
    async with released(hosted(kind, key="right"), HOSTED[kind], {"KEY": "wrong"}, auth={"env": "KEY"}) as contract:
        with pytest.raises(StageRefused, match="unauthorized"):
            await contract.score("q", ["a"])


@each
async def test_b5_a_payload_limit_is_met_by_halving(kind: str) -> None:
    """413 means too many bytes: the call is taken apart."""
    server = hosted(kind)
    async with released(server, HOSTED[kind]) as contract:
        server.script = [httpx.Response(413, text="<html>")]
        scored = await contract.score("q", ["a", "b", "c"])
    assert all(score is not None for score in scored.scores)
    assert len(server.posts) == 3


async def test_d9_cohere_is_asked_to_clip_only_the_document_that_it_found_too_long() -> None:
    """The second attempt is clipped here and bounded there; no other call carries the bound."""
    server = hosted("cohere", score_of=by_length)
    async with released(server, HOSTED["cohere"]) as contract:
        server.script = [server.problem(400, "too many tokens: the maximum sequence length is 300 tokens")]
        scored = await contract.score("q", ["word " * 120])
        first, second = (orjson.loads(body) for body in contract.bodies)
    assert "max_tokens_per_doc" not in first
    assert 200 < second["max_tokens_per_doc"] < 300
    assert first["documents"][0].startswith(second["documents"][0])
    assert (scored.excluded, scored.cost.truncated) == ({}, 1)


async def test_44_nim_is_asked_to_truncate_and_its_refusal_is_understood_all_the_same() -> None:
    """Where truncation is switched off before it, one long passage is clipped and its siblings keep their scores."""

    class Strict(FakeHosted):
        def post(self, path: str, body: Any, size: int) -> httpx.Response:
            return super().post(path, {**body, "truncate": "NONE"}, size)

    server = Strict(kind="nim", score_of=lambda query, text: float(text.split()[0]))
    async with released(server, HOSTED["nim"]) as contract:
        scored = await contract.score("q", ["1 a", "7 " + "word " * 900, "2 b"])
    assert scored.scores == (1.0, 7.0, 2.0)
    assert scored.cost.truncated == 1


@pytest.mark.parametrize(("kind", "estimated"), [("cohere", True), ("jina", False), ("voyage", False), ("nim", False)])
async def test_tokens_are_the_apis_where_it_counts_them(kind: str, estimated: bool) -> None:
    """Cohere bills searches, the others tokens."""
    async with released(hosted(kind), HOSTED[kind]) as contract:
        cost = (await contract.score("q", ["a b", "c"])).cost
    assert cost.tokens_estimated is estimated
    if not estimated:
        assert cost.tokens == (1 + 2 + 3) + (1 + 1 + 3)
