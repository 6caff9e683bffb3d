"""The contract with Text Embeddings Inference, 1.7 to 1.9."""

from __future__ import annotations

import math
from collections.abc import Callable

import httpx
import orjson
import pytest

from cascade.errors import StageInvalidAnswer, StageOverloaded, StageRefused
from cascade.stages.base import Observed
from cascade.testing.upstream import FakeTei
from cascade.types import Exclusion, StageCost

from .arrange import TEI, released

VERSIONS = ["1.7", "1.8", "1.9"]

version = pytest.mark.parametrize("version", VERSIONS)


def by_length(query: str, text: str) -> float:
    """Score by length, a logit: the longer, the lower."""
    return 6.5 - len(text)


async def test_the_request_is_this_byte_for_byte() -> None:
    """Raw scores and truncation are asked for by their exact names and values, and nothing else is sent."""
    async with released(FakeTei(), TEI) as contract:
        await contract.score("who wrote hamlet", ["Shakespeare.", 'Bread "and"\nbutter.'])
        (body,) = contract.bodies
        assert body == (
            b'{"raw_scores":true,"truncate":true,"truncation_direction":"Right",'
            b'"query":"who wrote hamlet","texts":["Shakespeare.","Bread \\"and\\"\\nbutter."]}'
        )
        assert contract.paths == ["/info", "/rerank"]
        headers = contract.route.calls.last.request.headers
        assert headers["content-type"] == "application/json"
        assert "authorization" not in headers


@pytest.mark.parametrize("text", ["안녕하세요", "😀👩‍👩‍👧", "naïve café", "a\u2028\x00\x7f"])
async def test_text_leaves_as_utf8_and_not_escaped(text: str) -> None:
    """Korean is three bytes a character on the wire, not six, and what arrives is what was sent."""
    async with released(FakeTei(), TEI) as contract:
        await contract.score(text, [text])
        assert orjson.loads(contract.bodies[0])["texts"] == [text]
        assert text.replace("\x00", "\\u0000").encode() in contract.bodies[0]


@version
async def test_e5_raw_scores_arrive_as_the_server_gave_them(version: str) -> None:
    """Logits are neither squashed nor rescaled on the way: absolute values, not only their order."""
    async with released(FakeTei(version=version, score_of=by_length), TEI) as contract:
        scores = (await contract.score("q", ["a" * 10, "a", "aaaa"])).scores
    assert scores == (-3.5, 5.5, 2.5)


@version
async def test_e5_a_declared_probability_asks_for_activation_and_is_not_squashed_again(version: str) -> None:
    """The server's own sigmoid is applied once, and never a second time here."""
    server = FakeTei(version=version, score_of=by_length)
    async with released(server, TEI, score_space="probability") as contract:
        scores = (await contract.score("q", ["a" * 10, "a"])).scores
        assert contract.bodies[0].startswith(b'{"raw_scores":false,')
    assert scores == pytest.approx([1 / (1 + math.exp(3.5)), 1 / (1 + math.exp(-5.5))])


@version
async def test_d4_scores_belong_to_their_documents_though_the_server_ranks_them(version: str) -> None:
    """The answer is sorted, ties in reverse; scores come back in the order sent."""
    async with released(FakeTei(version=version, score_of=by_length), TEI) as contract:
        scores = (await contract.score("q", ["aa", "a", "bb", "aaa"])).scores
    assert scores == (4.5, 5.5, 4.5, 3.5)


@version
async def test_limits_are_learned_from_info(version: str) -> None:
    """What the server says of itself is kept as observed."""
    async with released(FakeTei(version=version, max_length=256, max_client_batch_size=8), TEI) as contract:
        assert contract.stage.observed == Observed(
            model="fake/reranker",
            revision=None,
            dtype="float16",
            version=f"{version}.0",
            max_length=256,
            max_texts=8,
            max_in_flight_texts=512,
        )


@version
async def test_d1_calls_hold_as_many_texts_as_the_server_takes(version: str) -> None:
    """The server's own limit is kept without a single refusal."""
    server = FakeTei(version=version, max_client_batch_size=8, score_of=by_length)
    async with released(server, TEI) as contract:
        scored = await contract.score("q", ["a" * number for number in range(1, 21)])
    assert [len(seen.body["texts"]) for seen in server.posts] == [8, 8, 4]
    assert scored.scores == tuple(6.5 - number for number in range(1, 21))


async def test_d1_a_configured_size_above_the_servers_is_cut_to_it() -> None:
    """A release cannot ask a server for more than it takes."""
    server = FakeTei(max_client_batch_size=8)
    async with released(server, TEI, chunk_texts=16) as contract:
        await contract.score("q", ["a"] * 20)
    assert [len(seen.body["texts"]) for seen in server.posts] == [8, 8, 4]


async def test_c3_a_configured_size_below_the_servers_is_kept() -> None:
    """Smaller calls may be faster."""
    server = FakeTei()
    async with released(server, TEI, chunk_texts=3) as contract:
        await contract.score("q", ["a"] * 7)
    assert [len(seen.body["texts"]) for seen in server.posts] == [3, 3, 1]


async def test_d1_without_info_calls_hold_32_texts() -> None:
    """A server that hides its limits is taken for one of default limits."""
    server = FakeTei(has_info=False)
    async with released(server, TEI) as contract:
        assert contract.stage.observed == Observed()
        assert contract.stage.unusable is None
        await contract.score("q", ["a"] * 50)
    assert [len(seen.body["texts"]) for seen in server.posts] == [32, 18]


async def test_c2_texts_in_flight_stay_below_the_servers_permits() -> None:
    """A server with few permits is never sent more texts than it has."""
    server = FakeTei(max_concurrent_requests=5)
    async with released(server, TEI) as contract:
        await contract.score("q", ["a"] * 12)
    assert [len(seen.body["texts"]) for seen in server.posts] == [5, 5, 2]


@version
async def test_d1_a_batch_over_the_limit_is_split_by_the_limit_in_the_message_and_learned(version: str) -> None:
    """413 and 422 both mean it; the refused call is split and the next round is not refused at all."""
    server = FakeTei(version=version, max_client_batch_size=12, has_info=False, score_of=by_length)
    async with released(server, TEI) as contract:
        scored = await contract.score("q", ["a" * number for number in range(1, 31)])
        assert [len(seen.body["texts"]) for seen in server.posts] == [30, 12, 12, 6]
        await contract.score("q", ["a"] * 30)
    assert [len(seen.body["texts"]) for seen in server.posts[4:]] == [12, 12, 6]
    assert scored.scores == tuple(6.5 - number for number in range(1, 31))
    assert scored.excluded == {}


@version
async def test_d1_a_limit_below_the_one_in_info_is_learned_from_the_message(version: str) -> None:
    """A gateway before several servers may answer /info from another one."""

    class Lying(FakeTei):
        def get(self, path: str) -> httpx.Response:
            return FakeTei(version=self.version, max_client_batch_size=32).get(path)

    server = Lying(version=version, max_client_batch_size=10)
    async with released(server, TEI) as contract:
        assert all(score is not None for score in (await contract.score("q", ["a"] * 25)).scores)
    assert [len(seen.body["texts"]) for seen in server.posts] == [25, 10, 10, 5]


@version
async def test_1_twenty_documents_of_200_kilobytes_pass_a_limit_of_two_megabytes(version: str) -> None:
    """Calls are cut by bytes, so the payload limit is never met."""
    server = FakeTei(version=version, max_length=16_384)
    documents = [f"{number} " + "word " * 40_000 for number in range(20)]
    async with released(server, TEI, max_length=16_384, chunk_tokens=10**7) as contract:
        scored = await contract.score("q", documents)
    assert all(score is not None for score in scored.scores)
    assert len(server.posts) > 1
    assert max(seen.size for seen in server.posts) <= 2_000_000
    assert [text for seen in server.posts for text in seen.body["texts"]] == documents


@version
async def test_1_a_payload_limit_in_plain_text_is_met_by_halving(version: str) -> None:
    """A body over a limit that nobody announced is taken apart; the plain-text answer is understood."""
    server = FakeTei(version=version, payload_limit=30_000, max_length=4_096)
    async with released(server, TEI, max_length=4_096, chunk_tokens=10**6) as contract:
        scored = await contract.score("q", [f"{number} " + "x" * 10_000 for number in range(8)])
    assert all(score is not None for score in scored.scores)
    assert [len(seen.body["texts"]) for seen in server.posts if seen.size <= 30_000] == [2, 2, 2, 2]


async def test_1_one_document_over_the_payload_limit_is_left_out_and_its_siblings_are_scored() -> None:
    """What cannot be sent at all is excluded as refused; the round counts."""
    server = FakeTei(payload_limit=30_000, max_length=4_096)
    async with released(server, TEI, max_length=4_096) as contract:
        scored = await contract.score("q", ["a", "x" * 50_000, "b"])
    assert scored.excluded == {1: Exclusion.REFUSED}
    assert [score is None for score in scored.scores] == [False, True, False]


async def test_1_a_gateway_that_says_413_in_json_is_met_by_halving_too() -> None:
    """413 means the body was too large, whoever says it and in whatever words."""
    server = FakeTei()
    async with released(server, TEI) as contract:
        server.script = [httpx.Response(413, json={"message": "Request Too Long"})]
        scored = await contract.score("q", ["a", "b", "c"])
    assert all(score is not None for score in scored.scores)
    assert [len(seen.body["texts"]) for seen in server.posts] == [3, 2, 1]


@version
async def test_7_truncation_is_asked_for_whatever_the_versions_default_is(version: str) -> None:
    """An over-long document is scored by every version, counted as not read in full, and refused by none."""
    server = FakeTei(version=version, max_length=64)
    async with released(server, TEI) as contract:
        scored = await contract.score("q", ["short", "word " * 200])
    assert all(score is not None for score in scored.scores)
    assert scored.cost.truncated == 1
    assert len(server.posts) == 1


@version
async def test_d9_one_document_that_is_too_long_is_clipped_once_and_its_siblings_keep_their_scores(
    version: str,
) -> None:
    """Where truncation does nothing, the long document goes alone, clipped from the numbers that the server stated."""
    server = FakeTei(version=version, truncates=False, max_length=128)
    long = "word " * 200
    async with released(server, TEI) as contract:
        alone = await contract.score("q word", ["word one", "two"])
        scored = await contract.score("q word", ["word one", long, "two"])
    assert (scored.scores[0], scored.scores[2]) == alone.scores
    assert scored.scores[1] == pytest.approx(1.0, abs=1e-2)
    assert scored.excluded == {}
    assert scored.cost.truncated == 1
    assert (alone.shortened, scored.shortened) == (frozenset(), frozenset({1}))
    clipped = server.posts[-1].body["texts"]
    assert len(clipped) == 1
    assert long.startswith(clipped[0])
    assert 128 * 0.8 < server.tokens_of("q word", clipped[0]) <= 128


@version
async def test_d9_a_document_that_is_refused_again_is_left_out(version: str) -> None:
    """After one clip no more is tried: the document is excluded as refused, and the round counts."""
    server = FakeTei(version=version, truncates=False, max_length=64, tokens_of=hates("bad"))
    async with released(server, TEI) as contract:
        scored = await contract.score("q", ["good", "bad " * 30, "fine"])
    assert scored.excluded == {1: Exclusion.REFUSED}
    assert scored.scores[1] is None
    assert sum("bad" in text for seen in server.posts for text in seen.body["texts"]) == 3


async def test_d9_a_round_whose_every_document_is_refused_does_not_count() -> None:
    """Nothing scored is a refusal, not an empty success."""
    server = FakeTei(truncates=False, max_length=64, tokens_of=hates("bad"))
    async with released(server, TEI) as contract:
        with pytest.raises(StageRefused, match="every_document_refused"):
            await contract.score("q", ["bad " * 30, "bad " * 40, ""])


def hates(word: str) -> Callable[[str, str], int]:
    """Count a document with a certain word as too long, however short it is."""
    return lambda query, text: 1_000 if word in text else 5


async def test_the_servers_own_counts_and_times_are_the_cost() -> None:
    """Tokens are added up over calls; of times that ran together the slowest counts."""
    async with released(FakeTei(), TEI, chunk_texts=2) as contract:
        cost = (await contract.score("one two", ["a b c", "d", "e"])).cost
    tokens = (2 + 3 + 3) + (2 + 1 + 3) + (2 + 1 + 3)
    assert cost == StageCost(2, tokens, False, 0, tokenize_ms=1, queue_ms=3, compute_ms=7, server_ms=12)


@pytest.mark.parametrize("kind", ["classifier", "embedding"])
async def test_8_a_model_that_is_no_reranker_is_unusable_and_not_asked(kind: str) -> None:
    """The wrong model is said at start, and every round refused without a call."""
    server = FakeTei(model_type=kind)
    async with released(server, TEI) as contract:
        assert contract.stage.unusable == "not_a_reranker"
        assert contract.stage.observed is None
        with pytest.raises(StageRefused, match="not_a_reranker"):
            await contract.score("q", ["a"])
    assert server.posts == []


async def test_a_wrong_key_is_noticed_at_start_though_the_answer_has_no_body() -> None:
    """401 from /info makes the stage unusable, since every call would be refused."""
    async with released(FakeTei(key="right"), TEI, {"KEY": "wrong"}, auth={"env": "KEY"}) as contract:
        assert contract.stage.unusable == "unauthorized"
        with pytest.raises(StageRefused, match="unauthorized"):
            await contract.score("q", ["a"])


async def test_the_right_key_is_sent_with_every_call() -> None:
    """Discovery and scoring both carry the token, exactly as TEI compares it."""
    async with released(FakeTei(key="right"), TEI, {"KEY": "right\n"}, auth={"env": "KEY"}) as contract:
        assert (await contract.score("q", ["a"])).scores[0] is not None
        sent = [call.request.headers["authorization"] for call in contract.route.calls]
    assert set(sent) == {"Bearer right"}
    assert len(sent) >= 2


async def test_c2_overload_is_told_as_overload() -> None:
    """429 is the server's word that it has no room: nothing is repeated."""
    server = FakeTei()
    async with released(server, TEI) as contract:
        server.script = [server.problem(429, "Model is overloaded", "Overloaded")]
        with pytest.raises(StageOverloaded, match="status_429"):
            await contract.score("q", ["a", "b"])
    assert len(server.posts) == 1


async def test_d7_a_backend_failure_is_an_invalid_answer() -> None:
    """424 tells of NaN, out of memory or a model of the wrong kind."""
    server = FakeTei()
    async with released(server, TEI) as contract:
        server.script = [server.problem(424, "score is NaN", "Backend")]
        with pytest.raises(StageInvalidAnswer, match="backend"):
            await contract.score("q", ["a"])


@version
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'[{"index":0,"score":1.0},{"index":0,"score":2.0}]', "duplicate_index"),
        (b'[{"index":0,"score":1.0},{"index":2,"score":2.0}]', "bad_index"),
        (b'[{"index":0,"score":1.0},{"index":-1,"score":2.0}]', "bad_index"),
        (b'[{"index":0,"score":1.0},{"index":true,"score":2.0}]', "bad_index"),
        (b'[{"index":0,"score":1.0}]', "wrong_count"),
        (b"[]", "wrong_count"),
        (b'[{"index":0,"score":1.0},{"index":1,"score":null}]', "not_a_number"),
        (b'[{"index":0,"score":1.0},{"index":1,"score":NaN}]', "not_json"),
        (b'{"error":"x","error_type":"Backend"}', "error_body"),
        (b'{"results":[]}', "wrong_shape"),
    ],
)
async def test_d5_an_answer_that_is_not_whole_is_refused(version: str, body: bytes, code: str) -> None:
    """Every index once and every score finite, or the round does not count."""
    server = FakeTei(version=version)
    async with released(server, TEI) as contract:
        server.script = [httpx.Response(200, content=body)]
        with pytest.raises(StageInvalidAnswer) as caught:
            await contract.score("q", ["a", "b"])
    assert caught.value.code == code
