"""The contract with vLLM: its first score API of 2024, 2025, and now."""

from __future__ import annotations

import math

import httpx
import orjson
import pytest

from cascade.errors import StageError, StageInvalidAnswer, StageOverloaded, StageRefused
from cascade.stages.base import Observed
from cascade.testing.upstream import FakeVllm
from cascade.types import StageCost

from .arrange import VLLM, released

version = pytest.mark.parametrize("version", ["2024", "2025", "now"])


def by_length(query: str, text: str) -> float:
    """Score by length, a logit: the longer, the lower."""
    return 6.5 - len(text)


async def test_the_request_is_this_byte_for_byte() -> None:
    """Activation is switched off by every name that it had; nothing that hides the tail is sent."""
    async with released(FakeVllm(), VLLM) as contract:
        await contract.score("who wrote hamlet", ["Shakespeare.", "안녕 😀"])
        (body,) = contract.bodies
        assert (
            body
            == (
                '{"model":"fake/reranker","use_activation":false,"activation":false,'
                '"text_1":"who wrote hamlet","text_2":["Shakespeare.","안녕 😀"]}'
            ).encode()
        )
        assert contract.paths == ["/v1/models", "/version", "/v1/score"]


async def test_the_request_to_the_rerank_route_is_this_byte_for_byte() -> None:
    """A server without /v1/score is asked on /v1/rerank, with the field names of that route and no top_n."""
    async with released(FakeVllm(has_score_route=False), VLLM) as contract:
        await contract.score("who", ["Shakespeare.", "Bread."])
        await contract.score("who", ["Marlowe."])
        assert contract.bodies[1] == (
            b'{"model":"fake/reranker","use_activation":false,"activation":false,'
            b'"query":"who","documents":["Shakespeare.","Bread."]}'
        )
        assert contract.paths[2:] == ["/v1/score", "/v1/rerank", "/v1/rerank"]


@version
async def test_14_scoring_uses_guarded_paths_only(version: str) -> None:
    """Every scoring call goes below /v1, where a wrong key is noticed."""
    async with released(FakeVllm(version=version), VLLM) as contract:
        await contract.score("q", ["a"] * 5)
        assert {path for path in contract.paths if path != "/version"} == {"/v1/models", "/v1/score"}


@pytest.mark.parametrize("version", ["2025", "now"])
async def test_e5_raw_scores_arrive_as_the_server_gave_them(version: str) -> None:
    """Logits come back as logits, by whichever name the version knows the switch."""
    async with released(FakeVllm(version=version, score_of=by_length), VLLM) as contract:
        scores = (await contract.score("q", ["a" * 10, "a", "aaaa"])).scores
    assert scores == (-3.5, 5.5, 2.5)


@version
async def test_e5_a_declared_probability_asks_for_activation_and_is_not_squashed_again(version: str) -> None:
    """Probabilities keep their absolute values, those in one-element lists of the first release too."""
    server = FakeVllm(version=version, score_of=by_length)
    async with released(server, VLLM, score_space="probability") as contract:
        scores = (await contract.score("q", ["a" * 10, "a"])).scores
        sent = orjson.loads(contract.bodies[0])
    assert scores == pytest.approx([1 / (1 + math.exp(3.5)), 1 / (1 + math.exp(-5.5))])
    assert (sent["use_activation"], sent["activation"]) == (True, True)


@pytest.mark.parametrize("has_score_route", [True, False])
async def test_d4_scores_belong_to_their_documents_on_both_routes(has_score_route: bool) -> None:
    """One route keeps input order and the other ranks: the scores are the same."""
    server = FakeVllm(has_score_route=has_score_route, score_of=by_length)
    async with released(server, VLLM) as contract:
        scored = await contract.score("q", ["aa", "a", "bb", "aaa"])
    assert scored.scores == (4.5, 5.5, 4.5, 3.5)


async def test_an_echo_of_long_documents_is_read() -> None:
    """The rerank route repeats every document in its answer, which may be as large as the request."""
    server = FakeVllm(has_score_route=False, max_length=8_192)
    async with released(server, VLLM, max_length=8_192, chunk_tokens=10**6) as contract:
        scored = await contract.score("q", [f"{number} " + "\uc548" * 20_000 for number in range(6)])
    assert all(score is not None for score in scored.scores)


@version
async def test_limits_are_learned_from_the_list_of_models(version: str) -> None:
    """The longest pair and the version are kept as observed."""
    async with released(FakeVllm(version=version, max_length=128), VLLM) as contract:
        assert contract.stage.observed == Observed(model="fake/reranker", version="0.32.0", max_length=128)


async def test_of_several_models_the_limits_of_the_right_one_are_learned() -> None:
    """Adapters and aliases are listed beside the model."""

    class Several(FakeVllm):
        def get(self, path: str) -> httpx.Response:
            if path != "/v1/models":
                return super().get(path)
            cards = [
                {"id": "other", "root": "other", "max_model_len": 64},
                {"id": "fake/reranker", "root": "/models/fake", "max_model_len": 256},
            ]
            return httpx.Response(200, json={"object": "list", "data": cards})

    async with released(Several(), VLLM) as contract:
        assert contract.stage.observed == Observed(model="/models/fake", version="0.32.0", max_length=256)


@pytest.mark.parametrize("listing", [httpx.Response(404), httpx.Response(200, json={"data": []})])
async def test_a_server_that_lists_no_models_is_usable(listing: httpx.Response) -> None:
    """A gateway may hide the list: nothing is learned, and nothing held against it."""

    class Silent(FakeVllm):
        def get(self, path: str) -> httpx.Response:
            return listing if path == "/v1/models" else httpx.Response(404)

    async with released(Silent(), VLLM) as contract:
        assert contract.stage.observed == Observed()
        assert (await contract.score("q", ["a"])).scores[0] is not None


async def test_c3_calls_hold_128_texts_unless_configured() -> None:
    """The server has no limit of its own, so calls are cut for fairness."""
    server = FakeVllm()
    async with released(server, VLLM) as contract:
        await contract.score("q", ["a"] * 200)
    assert [len(seen.body["text_2"]) for seen in server.posts] == [128, 72]


async def test_an_unknown_model_in_the_list_makes_the_stage_unusable() -> None:
    """A misspelt model is said at start and never asked for."""
    server = FakeVllm(model="other/reranker")
    async with released(server, VLLM) as contract:
        assert contract.stage.unusable == "unknown_model"
        with pytest.raises(StageRefused, match="unknown_model"):
            await contract.score("q", ["a"])
    assert server.posts == []


@version
async def test_an_unknown_model_is_told_apart_from_an_unknown_route(version: str) -> None:
    """Both are 404; for the model no other route is tried."""
    server = FakeVllm(version=version)
    async with released(server, VLLM) as contract:
        server.script = [server.problem(404, "The model `fake/reranker` does not exist.", "NotFoundError")]
        with pytest.raises(StageRefused, match="unknown_model"):
            await contract.score("q", ["a"])
    assert len(server.posts) == 1


async def test_a_wrong_key_is_noticed_at_start() -> None:
    """401 has an error that is a bare string."""
    async with released(FakeVllm(key="right"), VLLM, {"KEY": "wrong"}, auth={"env": "KEY"}) as contract:
        assert contract.stage.unusable == "unauthorized"


async def test_the_right_key_is_sent_with_every_call() -> None:
    """Discovery and scoring both carry the token."""
    async with released(FakeVllm(key="right"), VLLM, {"KEY": "right"}, auth={"env": "KEY"}) as contract:
        assert (await contract.score("q", ["a"])).scores[0] is not None
        assert {call.request.headers["authorization"] for call in contract.route.calls} == {"Bearer right"}


async def test_tokens_are_the_servers_and_times_are_not_told() -> None:
    """Usage counts; vLLM tells no times."""
    async with released(FakeVllm(), VLLM, chunk_texts=2) as contract:
        cost = (await contract.score("one two", ["a b c", "d", "e"])).cost
    assert cost == StageCost(2, (2 + 3 + 3) + 2 * (2 + 1 + 3), tokens_estimated=False, truncated=0)


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (400, {"error": {"message": "Out of range float values are not JSON compliant: nan"}}, StageInvalidAnswer, "not_finite"),
        (400, {"object": "error", "message": "Out of range float values are not JSON compliant"}, StageInvalidAnswer, "not_finite"),
        (400, {"error": {"message": "The model does not support Rerank (Score) API"}}, StageRefused, "not_a_reranker"),
        (501, {"error": {"message": "The model does not support Score API"}}, StageRefused, "not_a_reranker"),
        (400, {"error": {"message": "11 validation errors", "type": "Bad Request"}}, StageRefused, "status_400"),
        (401, {"error": "Unauthorized"}, StageRefused, "unauthorized"),
        (429, {"error": {"message": "slow down"}}, StageOverloaded, "status_429"),
        (503, {"error": {"message": "queue"}}, StageOverloaded, "status_503"),
        (500, {"error": {"message": "EngineCore died", "type": "InternalServerError"}}, StageInvalidAnswer, "status_500"),
        (200, {"object": "error", "message": "m", "code": 400}, StageInvalidAnswer, "error_body"),
        (200, {"error": {"message": "m"}}, StageInvalidAnswer, "error_body"),
        (200, [{"index": 0, "score": 1.0}], StageInvalidAnswer, "wrong_shape"),
        (200, {"id": "score-1"}, StageInvalidAnswer, "wrong_shape"),
        (200, {"data": []}, StageInvalidAnswer, "wrong_count"),
        (200, {"results": []}, StageInvalidAnswer, "wrong_count"),
        (200, {"data": [{"index": 0, "score": [1.0, 2.0]}]}, StageInvalidAnswer, "not_a_number"),
        (200, {"data": [{"index": 0, "score": []}]}, StageInvalidAnswer, "not_a_number"),
        (200, {"results": [{"index": 1, "relevance_score": 1.0}]}, StageInvalidAnswer, "bad_index"),
    ],
)  # fmt: skip
async def test_b5_each_failure_has_one_reason_and_one_code(
    status: int, body: object, kind: type[StageError], code: str
) -> None:
    """A 400 may be the server's own fault: the words tell, where they are known, and the status where not."""
    server = FakeVllm()
    async with released(server, VLLM) as contract:
        server.script = [httpx.Response(status, json=body)]
        with pytest.raises(StageError) as caught:
            await contract.score("q", ["a"])
    assert (type(caught.value), caught.value.code) == (kind, code)


async def test_d7_a_score_that_is_not_finite_ends_the_round() -> None:
    """The server refuses to write NaN, and says so with a 400 that is no fault of the request."""
    async with released(FakeVllm(score_of=lambda query, text: math.nan), VLLM) as contract:
        with pytest.raises(StageInvalidAnswer, match="not_finite"):
            await contract.score("q", ["a"])


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": -1}, {"total_tokens": "7"}, {"total_tokens": True}, 7])
async def test_usage_that_cannot_be_read_is_estimated(usage: object) -> None:
    """Odd usage spoils no scores."""
    server = FakeVllm()
    async with released(server, VLLM) as contract:
        body = {"data": [{"index": 0, "score": 0}], "usage": usage}
        server.script = [httpx.Response(200, json=body)]
        scored = await contract.score("q" * 35, ["d" * 70])
    assert scored.scores == (0.0,)
    assert scored.cost == StageCost(1, 34, tokens_estimated=True, truncated=0)
