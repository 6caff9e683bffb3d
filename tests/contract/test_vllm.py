"""The contract with vLLM: its first score API of 2024, 2025, and now."""

from __future__ import annotations

import math

import httpx
import orjson
import pytest

from cascade.errors import StageError, StageInvalidAnswer, StageOverloaded, StageRefused
from cascade.stages.base import Observed
from cascade.testing.upstream import FakeVllm
from cascade.types import Exclusion, StageCost

from .arrange import VLLM, released

version = pytest.mark.parametrize("version", ["2024", "2025", "now"])
clipping_version = pytest.mark.parametrize("version", ["2025", "now"])

TOO_LONG_NOW = (
    b'{"error":{"message":"This model\'s maximum context length is 512 tokens. However, your prompt contains at least '
    b"513 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
    b'prompt. (parameter=input_tokens, value=513)","type":"BadRequestError","param":"input_tokens","code":400}}'
)
TOO_LONG_2025 = (
    b'{"object":"error","message":"This model\'s maximum context length is 512 tokens. However, you requested 1534 '
    b'tokens in the input for score. Please reduce the length of the input.","type":"BadRequestError",'
    b'"param":null,"code":400}'
)
TOO_MANY_CHARACTERS = (
    b'{"error":{"message":"This model\'s maximum context length is 512 tokens. However, your prompt contains 7653 '
    b"characters (more than 5120 characters, which is the upper bound for 512 input tokens). Please reduce the length of "
    b'the input prompt. (parameter=input_text, value=7653)","type":"BadRequestError","param":"input_text","code":400}}'
)
TOO_MANY_CHARACTERS_16 = (
    b'{"error":{"message":"You passed 7653 input characters and requested 0 output tokens. However, the model\'s context '
    b"length is only 512 tokens, resulting in a maximum input length of 512 tokens (at most 5120 characters). Please reduce "
    b'the length of the input prompt. (parameter=input_text, value=7653)","type":"BadRequestError","param":"input_text","code":400}}'
)


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


@clipping_version
async def test_d9_one_document_that_is_too_long_is_clipped_once_and_its_siblings_keep_their_scores(
    version: str,
) -> None:
    """400 is about one document: it goes alone, clipped here and, where the server can, there too."""
    server = FakeVllm(version=version)
    long = "word " * 700
    async with released(server, VLLM) as contract:
        alone = await contract.score("q word", ["word one", "two"])
        scored = await contract.score("q word", ["word one", long, "two"])
    assert (scored.scores[0], scored.scores[2]) == alone.scores
    assert scored.scores[1] == pytest.approx(1.0, abs=1e-2)
    assert scored.excluded == {}
    assert scored.cost.truncated == 1
    last = server.posts[-1].body
    assert len(last["text_2"]) == 1
    assert long.startswith(last["text_2"][0])
    assert server.tokens_of("q word", last["text_2"][0]) <= 512
    assert 300 < last["max_tokens_per_doc"] < 512


@clipping_version
async def test_d9_only_a_clipped_document_carries_a_clip(version: str) -> None:
    """The field is for one document's second attempt: no other call has it."""
    server = FakeVllm(version=version)
    async with released(server, VLLM) as contract:
        await contract.score("q", ["a", "word " * 700, "b"])
    assert [("max_tokens_per_doc" in seen.body, len(seen.body["text_2"])) for seen in server.posts] == [
        (False, 3),
        (False, 2),
        (False, 1),
        (True, 1),
    ]


@pytest.mark.parametrize(
    "body",
    [TOO_LONG_NOW, TOO_LONG_2025, TOO_MANY_CHARACTERS, TOO_MANY_CHARACTERS_16],
    ids=["now", "2025", "characters", "characters of 0.16"],
)
@pytest.mark.parametrize("status", [400, 500])
async def test_11_the_observed_error_of_a_long_pair_is_understood(body: bytes, status: int) -> None:
    """The very words lead to one clipped attempt, with a status of either kind; a count of characters is none of tokens."""
    server = FakeVllm(max_length=100_000)
    async with released(server, VLLM) as contract:
        server.script = [httpx.Response(status, content=body)]
        scored = await contract.score("q", ["word " * 1_530])
    assert scored.scores[0] is not None
    assert scored.cost.truncated == 1
    first, second = (seen.body["text_2"][0] for seen in server.posts)
    assert len(first) * 0.2 < len(second) < len(first) * 0.35


async def test_d9_a_length_fault_without_a_count_is_clipped_by_the_estimate() -> None:
    """Where the server counts nothing, the document is still clipped once, however short it seemed."""
    server = FakeVllm()
    async with released(server, VLLM) as contract:
        server.script = [server.problem(400, "Input exceeds the maximum model length of 512.", "BadRequestError")]
        scored = await contract.score("q", ["word " * 100])
    assert scored.scores[0] is not None
    assert len(server.posts[1].body["text_2"][0]) < 500


@clipping_version
async def test_d9_a_document_that_is_refused_again_is_left_out(version: str) -> None:
    """After one clip no more is tried, and the round counts."""

    class Stubborn(FakeVllm):
        def too_long(self, query: str, texts: list[str], body: object) -> httpx.Response | None:
            return super().too_long(query, texts, {})

    server = Stubborn(version=version, tokens_of=lambda query, text: 1_000 if "bad" in text else 5)
    async with released(server, VLLM) as contract:
        scored = await contract.score("q", ["good", "bad " * 30, "fine"])
    assert scored.excluded == {1: Exclusion.REFUSED}
    assert scored.scores[0] is not None
    assert scored.scores[2] is not None


async def test_d9_a_round_whose_every_document_is_refused_does_not_count() -> None:
    """Nothing scored is a refusal."""
    server = FakeVllm(version="2025", tokens_of=lambda query, text: 1_000)
    async with released(server, VLLM) as contract:
        with pytest.raises(StageRefused, match="every_document_refused"):
            await contract.score("q", ["a" * 50, "b" * 50])


async def test_11_a_long_query_is_clipped_before_it_is_refused() -> None:
    """The learned limit bounds the query, so a long one costs no document."""
    server = FakeVllm(max_length=64, tokens_of=lambda query, text: round(len(query) / 3.5 + len(text) / 3.5) + 3)
    async with released(server, VLLM) as contract:
        scored = await contract.score("what is " * 100, ["a short one", "another"])
    assert all(score is not None for score in scored.scores)
    assert scored.cost.truncated == 2
    assert len(server.posts[0].body["text_1"]) <= 32 * 3.5


async def test_b5_a_payload_limit_before_the_server_is_met_by_halving() -> None:
    """413 comes from a proxy: the call is taken apart."""
    server = FakeVllm()
    async with released(server, VLLM) as contract:
        server.script = [httpx.Response(413, text="<html>413 Request Entity Too Large</html>")]
        scored = await contract.score("q", ["a", "b", "c"])
    assert all(score is not None for score in scored.scores)


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
