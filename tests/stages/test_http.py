"""A round over HTTP: joined by index, bounded in time and in texts, whole or not at all."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.errors import (
    StageError,
    StageInvalidAnswer,
    StageOverloaded,
    StageRefused,
    StageTimeout,
    StageUnreachable,
)
from cascade.policy.release import HttpStage
from cascade.stages.http import HttpReranker
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm
from cascade.types import Exclusion, ScoreSpace, StageCost

from .arrange import running, score, stage_before, tei_spec, vllm_spec


@dataclass
class Traffic:
    """Pass requests on to a server, each after its own delay, and count the texts under way."""

    server: FakeServer
    delays_ms: Iterator[float] = field(default_factory=lambda: itertools.repeat(1.0))
    texts: int = 0
    most_texts: int = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return await self.server(request)
        response = await self.server(request)
        body = orjson.loads(await request.aread())
        texts = len(next(body[name] for name in ("texts", "text_2", "documents") if name in body))
        self.texts += texts
        self.most_texts = max(self.most_texts, self.texts)
        try:
            await asyncio.sleep(next(self.delays_ms) / 1000)
        finally:
            self.texts -= texts
        return response

    def before(self, spec: HttpStage) -> HttpReranker:
        """Return a stage whose requests pass here."""
        return stage_before(httpx.MockTransport(self), spec)


def one_for_each_text(query: str, text: str) -> float:
    """Score by the number that a text begins with: no two alike, none in order."""
    return float(int(text.split(maxsplit=1)[0]) * 7919 % 1009)


@settings(deadline=None)
@given(
    count=st.integers(0, 70),
    chunk=st.integers(1, 40),
    chunk_tokens=st.integers(16, 4_000),
    delays_ms=st.lists(st.floats(0, 500), min_size=1, max_size=10),
    route=st.sampled_from(["tei", "vllm", "vllm-rerank"]),
)
def test_d2_chunked_scores_are_the_unchunked_ones(
    count: int, chunk: int, chunk_tokens: int, delays_ms: list[float], route: str
) -> None:
    """For any number of documents, any size of chunks and any order of replies, each document has its own score."""
    documents = [f"{number} some words" for number in range(count)]

    async def play() -> tuple[float | None, ...]:
        server: FakeServer
        spec: HttpStage
        if route == "tei":
            server, spec = FakeTei(score_of=one_for_each_text), tei_spec(chunk_texts=chunk, chunk_tokens=chunk_tokens)
        else:
            server = FakeVllm(score_of=one_for_each_text, has_score_route=route == "vllm")
            spec = vllm_spec(chunk_texts=chunk, chunk_tokens=chunk_tokens)
        stage = Traffic(server, itertools.cycle(delays_ms)).before(spec)
        scored = await score(stage, "q", documents, within_ms=60_000)
        assert scored.excluded == {}
        await stage.aclose()
        return scored.scores

    assert run_virtual(play()) == tuple(one_for_each_text("q", text) for text in documents)


@pytest.mark.parametrize("documents", [[], ["", " ", "\n\t"]])
def test_d8_nothing_to_score_asks_nothing(documents: list[str]) -> None:
    """No call leaves for no documents or blank ones; a blank one has a reason and no score."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            scored = await score(stage, "q", documents)
        assert scored.scores == (None,) * len(documents)
        assert scored.excluded == dict.fromkeys(range(len(documents)), Exclusion.BLANK)
        assert scored.cost == StageCost(calls=0, tokens=0, tokens_estimated=False, truncated=0)
        assert server.posts == []

    run_virtual(play())


def test_d8_blank_documents_are_not_sent_and_keep_their_place() -> None:
    """Scores belong to the positions of the round, not of the call."""

    async def play() -> None:
        server = FakeTei(score_of=one_for_each_text)
        async with running(server, tei_spec()) as stage:
            scored = await score(stage, "q", ["", "3 a", "  ", "5 b"])
        assert scored.scores == (None, one_for_each_text("q", "3"), None, one_for_each_text("q", "5"))
        assert scored.excluded == {0: Exclusion.BLANK, 2: Exclusion.BLANK}
        assert server.posts[0].body["texts"] == ["3 a", "5 b"]

    run_virtual(play())


def test_b14_a_server_that_answers_late_ends_at_the_deadline_and_is_cancelled() -> None:
    """The round ends when its budget does, and no call is left behind at the server."""

    async def play() -> None:
        server = FakeTei(delay_ms=5_000)
        async with running(server, tei_spec(chunk_texts=2)) as stage:
            began = asyncio.get_running_loop().time()
            with pytest.raises(StageTimeout) as caught:
                await score(stage, "q", ["a", "b", "c"], within_ms=120)
            assert asyncio.get_running_loop().time() - began == pytest.approx(0.12)
        assert str(caught.value) == "large: deadline after 120 ms of 120 ms"
        assert caught.value.elapsed_ms == pytest.approx(120)
        assert caught.value.budget_ms == pytest.approx(120)
        assert server.cancelled == 2

    run_virtual(play())


def test_c1_a_caller_that_goes_away_takes_its_calls_along() -> None:
    """Cancelling a round cancels every call of it and is not turned into anything else."""

    async def play() -> None:
        server = FakeTei(delay_ms=5_000)
        async with running(server, tei_spec(chunk_texts=2)) as stage:
            round_ = asyncio.create_task(score(stage, "q", ["a", "b", "c"], within_ms=60_000))
            await asyncio.sleep(0.05)
            round_.cancel()
            with pytest.raises(asyncio.CancelledError):
                await round_
        assert server.cancelled == 2

    run_virtual(play())


def test_a_chunk_that_fails_ends_its_siblings() -> None:
    """A round that cannot count any more costs the server no more."""

    async def play() -> None:
        server = FakeTei()
        server.script = [httpx.Response(500)]
        traffic = Traffic(server, iter([10.0, 5_000.0, 5_000.0]))
        stage = traffic.before(tei_spec(chunk_texts=1))
        began = asyncio.get_running_loop().time()
        with pytest.raises(StageInvalidAnswer, match="status_500"):
            await score(stage, "q", ["a", "b", "c"])
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.01)
        assert traffic.texts == 0
        await stage.aclose()

    run_virtual(play())


@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        (httpx.Response(429), StageOverloaded, "status_429"),
        (httpx.Response(503), StageOverloaded, "status_503"),
        (httpx.Response(502), StageUnreachable, "status_502"),
        (httpx.Response(504), StageTimeout, "status_504"),
        (httpx.Response(500), StageInvalidAnswer, "status_500"),
        (httpx.Response(424), StageInvalidAnswer, "backend"),
        (httpx.Response(204), StageInvalidAnswer, "status_without_scores"),
        (httpx.Response(401), StageRefused, "unauthorized"),
        (httpx.Response(403), StageRefused, "forbidden"),
        (httpx.Response(404), StageRefused, "no_route"),
        (httpx.Response(501), StageRefused, "status_501"),
        (httpx.Response(422, text="Failed to deserialize"), StageRefused, "status_422"),
        (httpx.Response(422, json={"error": "m", "error_type": "Tokenizer"}), StageRefused, "status_422"),
        (httpx.Response(200, text="<html>"), StageInvalidAnswer, "not_json"),
        (httpx.Response(200, json=[]), StageInvalidAnswer, "wrong_count"),
        (httpx.Response(200, json={"error": "down"}), StageInvalidAnswer, "error_body"),
        (httpx.Response(200, json=[{"index": 7, "score": 1.0}]), StageInvalidAnswer, "bad_index"),
        (httpx.Response(200, json=[{"index": 0, "score": None}]), StageInvalidAnswer, "not_a_number"),
        (httpx.Response(200, content=b"x" * 500_000), StageInvalidAnswer, "answer_too_large"),
        (httpx.ConnectError("m"), StageUnreachable, "refused"),
        (httpx.ConnectTimeout("m"), StageUnreachable, "connect_timeout"),
        (httpx.ReadError("m"), StageUnreachable, "cut"),
        (httpx.RemoteProtocolError("m"), StageInvalidAnswer, "not_http"),
        (httpx.DecodingError("m"), StageInvalidAnswer, "bad_encoding"),
    ],
)
def test_b5_each_failure_has_one_reason_and_one_code(
    failure: httpx.Response | Exception, kind: type[StageError], code: str
) -> None:
    """The reason decides what the caller is told, the code what the operator is; the next round is not affected."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            server.script = [failure]
            with pytest.raises(StageError) as caught:
                await score(stage, "q", ["q"])
            assert type(caught.value) is kind
            assert caught.value.code == code
            assert str(caught.value) == f"large: {code} after 0 ms of 1000 ms"
            assert (await score(stage, "q", ["q"])).scores == pytest.approx([1.0], abs=1e-5)

    run_virtual(play())


def test_a_round_of_many_calls_fails_with_the_reason_of_the_call_that_failed() -> None:
    """One failed call of several is told as plainly as one alone, and nothing of the others is kept."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec(chunk_texts=1)) as stage:
            server.script = [None, None, httpx.Response(429), None]
            with pytest.raises(StageOverloaded, match="status_429"):
                await score(stage, "q", list("abcd"))

    run_virtual(play())


def test_13_request_ids_of_one_round_are_pairwise_different() -> None:
    """Chunks and second attempts carry ids of their own: an engine may choke on one that is in use."""

    async def play() -> None:
        server = FakeTei(version="1.8", max_client_batch_size=4, has_info=False)
        async with running(server, tei_spec(chunk_texts=8)) as stage:
            await score(stage, "q", [f"d{number}" for number in range(20)], call_id="abc-large")
        ids = [seen.headers["x-request-id"] for seen in server.posts]
        assert len(ids) > 3
        assert len(set(ids)) == len(ids)
        assert all(id_.startswith("abc-large-") for id_ in ids)

    run_virtual(play())


def test_the_cost_of_a_round_adds_tokens_and_takes_the_slowest_of_the_times() -> None:
    """Chunks run at the same time, so their times do not add up."""

    def answer(tokens: int, tokenize: int, queue: int, compute: int, total: int) -> httpx.Response:
        headers = {"x-compute-tokens": tokens, "x-tokenization-time": tokenize, "x-queue-time": queue}
        headers["x-total-time"] = total
        told = {name: str(value) for name, value in {**headers, "x-inference-time": compute}.items()}
        return httpx.Response(200, json=[{"index": 0, "score": 1.0}], headers=told)

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec(chunk_texts=1)) as stage:
            server.script = [answer(100, 1, 30, 5, 40), answer(7, 2, 4, 60, 70)]
            cost = (await score(stage, "q", ["a", "b"])).cost
        assert cost == StageCost(2, 107, False, 0, tokenize_ms=2, queue_ms=30, compute_ms=60, server_ms=70)

    run_virtual(play())


@pytest.mark.parametrize("value", ["-1", "1.5", "x", "", "\u00b2", "1" * 16])
def test_a_header_that_is_no_whole_number_tells_nothing(value: str) -> None:
    """Tokens are estimated, and said to be, where the server does not count them legibly."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            headers = [(b"x-compute-tokens", value.encode()), (b"x-queue-time", value.encode())]
            server.script = [httpx.Response(200, json=[{"index": 0, "score": 1.0}], headers=headers)]
            cost = (await score(stage, "q" * 35, ["d" * 70])).cost
        assert cost == StageCost(1, 10 + 4 + 20, tokens_estimated=True, truncated=0)

    run_virtual(play())


def test_c2_texts_in_flight_are_bounded_over_all_rounds() -> None:
    """Rounds that run at the same time share one bound, and all of them are answered."""

    async def play() -> None:
        server = FakeTei()
        traffic = Traffic(server, itertools.cycle([3.0, 1.0, 2.0]))
        stage = traffic.before(tei_spec(chunk_texts=4, max_in_flight_texts=10))
        rounds = [score(stage, "q", ["q"] * 13, within_ms=60_000) for _ in range(6)]
        for scored in await asyncio.gather(*rounds):
            assert len(scored.scores) == 13
        assert 8 <= traffic.most_texts <= 10
        await stage.aclose()

    run_virtual(play())


def test_c2_no_call_holds_more_texts_than_may_be_in_flight() -> None:
    """A call is not larger than the bound, whatever the size of chunks."""

    async def play() -> None:
        traffic = Traffic(FakeTei())
        stage = traffic.before(tei_spec(max_in_flight_texts=6))
        await score(stage, "q", ["q"] * 20)
        assert traffic.most_texts == 6
        await stage.aclose()

    run_virtual(play())


def test_waiting_for_room_counts_against_the_deadline() -> None:
    """A round that gets no room in time ends at its deadline without a call."""

    async def play() -> None:
        server = FakeTei(delay_ms=500)
        async with running(server, tei_spec(max_in_flight_texts=1)) as stage:
            first = asyncio.create_task(score(stage, "q", ["a"]))
            await asyncio.sleep(0)
            with pytest.raises(StageTimeout):
                await score(stage, "q", ["b"], within_ms=100)
            assert (await first).scores[0] is not None
        assert len(server.posts) == 1

    run_virtual(play())


@pytest.mark.parametrize("space", [ScoreSpace.LOGIT, ScoreSpace.PROBABILITY])
def test_e5_the_space_is_the_declared_one(space: ScoreSpace) -> None:
    """A stage says of its scores what its release says, and never looks at them to find out."""

    async def play() -> None:
        async with running(FakeTei(), tei_spec(score_space=space.value)) as stage:
            assert stage.space is space
            assert stage.fingerprint.score_space is space

    run_virtual(play())


def test_the_serializer_writes_what_is_sent_and_blank_is_judged_before_it() -> None:
    """Query and documents leave as the serializer writes them."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec(serializer="single-line@1")) as stage:
            await score(stage, " who\nwrote ", ["a\n\n b", "\n"])
        assert server.posts[0].body["query"] == "who wrote"
        assert server.posts[0].body["texts"] == ["a b"]

    run_virtual(play())


def test_a_long_query_is_clipped_to_half_of_the_longest_pair_and_counted() -> None:
    """Where the server clips nothing, a query never crowds the documents out; every pair counts as not read in full."""

    async def play() -> None:
        server = FakeVllm()
        query = "x" * 3_500
        async with running(server, vllm_spec()) as stage:
            scored = await score(stage, query, ["a", "b"])
        sent = server.posts[0].body["text_1"]
        assert query.startswith(sent)
        assert 256 * 3.5 * 0.8 < len(sent) <= 256 * 3.5
        assert scored.cost.truncated == 2

    run_virtual(play())


def test_a_server_that_clips_is_given_the_query_whole() -> None:
    """It knows its own tokens: what the estimate takes for half of the window may be a quarter of it."""

    async def play() -> None:
        server = FakeTei()
        query = "internationalization " * 130
        async with running(server, tei_spec()) as stage:
            scored = await score(stage, query, ["a", "b"])
            await score(stage, "x" * 50_000, ["a"])
        assert server.posts[0].body["query"] == query
        assert scored.cost.truncated == 2
        assert len(server.posts[1].body["query"]) == 512 * 24

    run_virtual(play())


def test_a_pair_costs_no_more_of_a_call_than_the_model_reads_of_it() -> None:
    """Long texts at a server that clips do not make every document a call of its own."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            await score(stage, "x" * 12_000, ["y" * 12_000] * 32)
        assert [len(seen.body["texts"]) for seen in server.posts] == [32]

    run_virtual(play())


def test_a_document_that_begins_with_nothing_is_not_sent_as_nothing() -> None:
    """White space without end at the head of a document gives way to its words."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            await score(stage, " " * 30_000 + "query", [" " * 30_000 + "words"])
        assert server.posts[0].body["query"] == "query"
        assert server.posts[0].body["texts"] == ["words"]

    run_virtual(play())


def test_megabytes_are_neither_folded_nor_counted() -> None:
    """What lies far beyond the window costs the event loop nothing but a look at whether it is blank."""

    async def play() -> float:
        server = FakeTei()
        huge = "\u4f60 " * 4_000_000
        async with running(server, tei_spec(serializer="single-line@1")) as stage:
            began = time.process_time()
            await score(stage, huge, [huge] * 4)
            spent = time.process_time() - began
        assert len(server.posts[0].body["query"]) <= 512 * 24
        return spent

    assert run_virtual(play()) < 1.0


@pytest.mark.parametrize(
    ("failure", "sent"),
    [
        (httpx.Response(500), 3),
        (httpx.ReadError("m"), 3),
        (httpx.ConnectError("m"), 0),
        (httpx.ConnectTimeout("m"), 0),
        (httpx.Response(200, json=[]), 3),
    ],
    ids=["500", "cut", "refused", "no connection", "short"],
)
def test_a_failed_round_tells_how_many_documents_had_left(failure: httpx.Response | Exception, sent: int) -> None:
    """Blank documents never leave; without a connection none does."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            server.script = [failure]
            with pytest.raises(StageError) as caught:
                await score(stage, "q", ["a", "", "b", "c"])
        assert caught.value.sent == sent

    run_virtual(play())


def test_a_round_that_never_left_has_sent_nothing() -> None:
    """A stage that is unusable sends nothing, nor does a round that waits for room; one under way tells its part."""

    async def play() -> None:
        async with running(FakeTei(model_type="embedding"), tei_spec()) as stage:
            with pytest.raises(StageRefused) as refused:
                await score(stage, "q", ["a", "b"])
        assert refused.value.sent == 0
        async with running(FakeTei(delay_ms=500), tei_spec(max_in_flight_texts=2, chunk_texts=2)) as stage:
            first = asyncio.create_task(score(stage, "q", ["a", "b", "c"], within_ms=100))
            await asyncio.sleep(0.01)
            with pytest.raises(StageTimeout) as waiting:
                await score(stage, "q", ["d", "e"], within_ms=50)
            with pytest.raises(StageTimeout) as partly:
                await first
        assert waiting.value.sent == 0
        assert partly.value.sent == 2

    run_virtual(play())


def test_a_document_that_is_sent_twice_has_left_once() -> None:
    """Second attempts do not count again."""

    async def play() -> None:
        server = FakeTei(max_client_batch_size=2, has_info=False)
        async with running(server, tei_spec(chunk_texts=4)) as stage:
            server.script = [None, httpx.Response(500), None]
            with pytest.raises(StageInvalidAnswer) as caught:
                await score(stage, "q", ["a", "b", "c", "d"])
        assert caught.value.sent == 4

    run_virtual(play())


def test_a_document_far_beyond_the_longest_pair_is_not_sent_in_full() -> None:
    """No bandwidth goes to what no model reads; the pair counts as not read in full."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec(max_length=128)) as stage:
            scored = await score(stage, "q", ["x" * 50_000, "short"])
        assert [len(text) for text in server.posts[0].body["texts"]] == [128 * 24, 5]
        assert scored.cost.truncated == 1

    run_virtual(play())


def test_chunk_bytes_count_the_query_too() -> None:
    """No body is larger than the configured bytes, as long as a document fits at all."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec(chunk_bytes=4_000, max_length=2_048)) as stage:
            await score(stage, "\u4f60" * 400, ["\uc548" * 200 for _ in range(12)])
        assert len(server.posts) > 1
        assert max(seen.size for seen in server.posts) <= 4_000

    run_virtual(play())


def test_a_route_that_was_missing_for_a_while_is_found_again() -> None:
    """A proxy that knows no route during a deployment does not cost the stage its routes for good."""

    async def play() -> None:
        server = FakeVllm(version="2024")
        async with running(server, vllm_spec()) as stage:
            server.script = [httpx.Response(404), httpx.Response(404)]
            with pytest.raises(StageRefused, match="no_route"):
                await score(stage, "q", ["q"])
            assert (await score(stage, "q", ["q"])).scores[0] is not None
        assert [seen.path for seen in server.posts] == ["/v1/score", "/v1/rerank", "/v1/score"]

    run_virtual(play())


def test_rounds_at_the_same_time_do_not_move_each_other_between_routes() -> None:
    """A route is remembered after scores came from it; one that only failed moves no other round."""

    async def play() -> None:
        server = FakeVllm(score_of=one_for_each_text)
        async with running(server, vllm_spec()) as stage:
            server.script = [httpx.Response(404), httpx.Response(500)]
            failing, well = await asyncio.gather(
                score(stage, "q", ["1"]), score(stage, "q", ["2"]), return_exceptions=True
            )
            await score(stage, "q", ["3"])
            server.has_score_route = False
            await score(stage, "q", ["4"])
            await score(stage, "q", ["5"])
        assert [isinstance(ended, StageError) for ended in (failing, well)] == [False, True]
        by_text = {str(seen.body.get("text_2", seen.body.get("documents"))): seen.path for seen in server.posts}
        assert by_text["['2']"] == "/v1/score"
        assert by_text["['3']"] == "/v1/rerank"
        assert [seen.path for seen in server.posts[-2:]] == ["/v1/rerank", "/v1/rerank"]

    run_virtual(play())


def test_chunks_that_miss_a_route_together_move_on_together() -> None:
    """Calls under way on a route that is missing are all sent again on the other one, once each."""

    async def play() -> None:
        server = FakeVllm(has_score_route=False, score_of=one_for_each_text)
        async with running(server, vllm_spec(chunk_texts=1)) as stage:
            scored = await score(stage, "q", ["1", "2", "3"])
            await score(stage, "q", ["4"])
        assert scored.scores == tuple(one_for_each_text("q", text) for text in "123")
        assert [seen.path for seen in server.posts] == ["/v1/score"] * 3 + ["/v1/rerank"] * 4
        assert scored.cost.calls == 6

    run_virtual(play())


def test_g1_a_stage_on_its_way_prints_no_text() -> None:
    """The representation of a stage and of its tasks holds nothing of a round."""

    async def play() -> None:
        server = FakeTei(delay_ms=100)
        async with running(server, tei_spec(chunk_texts=1)) as stage:
            round_ = asyncio.create_task(score(stage, "canary query", ["canary one", "canary two"]))
            await asyncio.sleep(0.05)
            shown = repr(stage) + "".join(map(repr, asyncio.all_tasks()))
            await round_
        assert "canary" not in shown

    run_virtual(play())
