"""The contract with an OpenAI-compatible chat endpoint: what is sent, what is believed, what is mended, what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from cascade.errors import (
    ConfigError,
    StageRefused,
)
from cascade.policy.release import ChatStage, parse_release
from cascade.stages.base import Observed
from cascade.stages.build import build_stage
from cascade.stages.engine.workers import worker_pool
from cascade.testing.chat import FakeChat, passages_of, written_order
from cascade.testing.clock import run_virtual
from cascade.types import BreakerState, Exclusion, ScoreSpace, StageName

from .chat import CHAT, GENEROUS, by_length, order, ordering


async def test_the_request_is_this_byte_for_byte() -> None:
    """One call: no sampling, a seed, an end to the answer; instruction and query before the passages."""
    server = FakeChat()
    async with ordering(server) as stage:
        scored = await order(stage, "who wrote hamlet", ["Bread.", "hamlet, who wrote it", "안녕 😀"])
    (sent,) = server.posts
    assert sent.path == "/v1/chat/completions"
    assert {key: value for key, value in sent.body.items() if key != "messages"} == {
        "model": "fake/chat", "temperature": 0, "seed": 0, "n": 1, "stream": False, "max_tokens": 8 * 3 + 16,
    }  # fmt: skip
    assert [message["role"] for message in sent.body["messages"]] == ["system", "user"]
    assert sent.body["messages"][1]["content"].startswith(
        "Instruction: Order the passages by how well they answer the search query\n"
        "Search query: who wrote hamlet\n\nPassages:\n[1] Bread.\n[2] hamlet, who wrote it\n[3] 안녕 😀\n\n"
    )
    assert list(scored.scores) == pytest.approx([1 / 3, 1.0, 2 / 3])


@pytest.mark.parametrize(("form", "field"), [("regex", "structured_outputs"), ("json-schema", "response_format")])
async def test_the_server_is_asked_to_hold_the_answer_to_the_form(form: str, field: str) -> None:
    """By vLLM's regex, or by a schema that others have too; and the answer is read in that form."""
    server = FakeChat(score_of=by_length)
    async with ordering(server, form=form) as stage:
        scored = await order(stage, "q", ["aaa", "a", "aa"])
        assert (await order(stage, "q", ["a"])).scores == (1.0,)
    assert list(scored.scores) == pytest.approx([1 / 3, 1.0, 2 / 3])
    assert scored.cost.repaired == 0
    told, alone = (seen.body[field] for seen in server.posts)
    if form == "regex":
        assert told == {"regex": r"\[(1|2|3)\]( > \[(1|2|3)\]){2}"}
        assert alone == {"regex": r"\[(1)\]"}
    else:
        items = {"type": "integer", "enum": [1, 2, 3]}
        schema = {"type": "array", "items": items, "minItems": 3, "maxItems": 3}
        assert told == {"type": "json_schema", "json_schema": {"name": "order", "schema": schema}}


async def test_what_a_release_says_of_the_call_is_sent() -> None:
    """Seed, thinking, room for the answer and the instruction; a caller's instruction wins."""
    server = FakeChat()
    fields: dict[str, Any] = {"seed": 7, "thinking": False, "answer_tokens": 99, "instruction": "Find the author"}
    async with ordering(server, **fields) as stage:
        await order(stage, "q", ["a"])
        await order(stage, "q", ["a"], instruction="Find the [1] date")
    first, second = (seen.body for seen in server.posts)
    assert (first["seed"], first["max_tokens"], first["chat_template_kwargs"]) == (7, 99, {"enable_thinking": False})
    assert first["messages"][1]["content"].startswith("Instruction: Find the author\n")
    assert second["messages"][1]["content"].startswith("Instruction: Find the (1) date\n")


@pytest.mark.parametrize("count", [1, 20, 200])
async def test_the_whole_list_is_one_call_however_long(count: int) -> None:
    """It is never split, and counts as one text among those in flight."""
    server = FakeChat(score_of=by_length, max_length=100_000)
    async with ordering(server, max_length=100_000) as stage:
        scored = await order(stage, "q", ["a" * (count - place) for place in range(count)])
        assert stage.is_listwise
        assert stage.space is ScoreSpace.RANK
        assert stage.guarded.in_flight_texts == 0
    assert len(server.posts) == 1
    assert list(scored.scores) == sorted(value for value in scored.scores if value is not None)
    assert (scored.cost.calls, scored.cost.tokens_estimated) == (1, False)


async def test_d8_blank_documents_are_never_sent_and_have_no_place() -> None:
    """The others are numbered without gaps, and come back at their own positions."""
    server = FakeChat(score_of=by_length)
    async with ordering(server) as stage:
        scored = await order(stage, "q", ["", "aa", " \n", "a"])
        nothing = await order(stage, "q", ["", " "])
    assert scored.scores == (None, 0.5, None, 1.0)
    assert scored.excluded == {0: Exclusion.BLANK, 2: Exclusion.BLANK}
    assert [passages_of(seen.body) for seen in server.posts] == [[(1, "aa"), (2, "a")]]
    assert (nothing.scores, nothing.cost.calls) == ((None, None), 0)


@pytest.mark.parametrize(
    ("usage", "tokens", "prefix"),
    [
        ({"prompt_tokens": 90, "total_tokens": 99, "prompt_tokens_details": {"cached_tokens": 64}}, 99, 64),
        ({"prompt_tokens": 90, "total_tokens": 99, "prompt_tokens_details": None}, 99, None),
        ({"prompt_tokens": 90, "total_tokens": 99, "prompt_tokens_details": {"cached_tokens": -1}}, 99, None),
    ],
)
async def test_tokens_are_the_servers_and_the_prefix_is_told_where_it_tells(
    usage: dict[str, Any], tokens: int, prefix: int | None
) -> None:
    """A vLLM says how much of a prompt it had only where it was started so."""
    server = FakeChat()
    async with ordering(server) as stage:
        server.script = [server.answer("[1] > [2]", usage)]
        cost = (await order(stage, "q", ["a", "b"])).cost
    assert (cost.tokens, cost.tokens_estimated, cost.prefix_tokens) == (tokens, False, prefix)


@pytest.mark.parametrize("usage", [None, 7, {}, {"total_tokens": "9"}, {"total_tokens": True}])
async def test_tokens_that_are_not_told_are_estimated_for_the_prompt_with_the_query_once(usage: Any) -> None:
    """Twenty passages do not repeat the query twenty times."""
    server = FakeChat()
    async with ordering(server) as stage:
        server.script = [server.answer(written_order(range(1, 21)), usage)]
        cost = (await order(stage, "q " * 100, ["a"] * 20)).cost
    assert cost.tokens_estimated
    assert cost.tokens < 500


async def test_limits_and_version_are_learned() -> None:
    """From the list of models and the version, as of vLLM's score API."""
    async with ordering(FakeChat(max_length=2048)) as stage:
        assert stage.observed == Observed(model="fake/chat", version="0.32.0", max_length=2048)
    async with ordering(FakeChat(model="other")) as stage:
        assert stage.unusable == "unknown_model"
        with pytest.raises(StageRefused, match="unknown_model"):
            await order(stage, "q", ["a"])


async def test_a_key_is_sent_and_a_wrong_one_is_noticed() -> None:
    """Discovery and calls both carry the token."""
    server = FakeChat(key="right")
    async with ordering(server, {"KEY": "wrong"}, auth={"env": "KEY"}) as stage:
        assert stage.unusable == "unauthorized"
    async with ordering(server, {"KEY": "right"}, auth={"env": "KEY"}) as stage:
        assert (await order(stage, "q", ["a"])).scores == (1.0,)


async def test_d9_passages_are_cut_to_their_room_and_counted() -> None:
    """A passage has a budget of its own; a short one beside it is left whole."""
    server = FakeChat()
    async with ordering(server, passage_tokens=32) as stage:
        scored = await order(stage, "q", ["word " * 500, "short"])
    (_, long), (_, short) = passages_of(server.posts[0].body)
    assert short == "short"
    assert 60 < len(long) <= 32 * 4
    assert scored.cost.truncated == 1


async def test_d9_many_passages_share_the_room_that_the_server_has() -> None:
    """The limit that the server states counts: the prompt fits, and every passage is in it."""
    server = FakeChat(max_length=1500)
    async with ordering(server, passage_tokens=400) as stage:
        scored = await order(stage, "q " * 2000, ["word " * 500] * 20)
    assert len(server.posts) == 1
    assert len(passages_of(server.posts[0].body)) == 20
    assert scored.cost.truncated == 20
    assert None not in scored.scores


async def test_d9_a_prompt_that_is_too_long_all_the_same_is_cut_once_as_a_whole() -> None:
    """The estimate was wrong: every passage is cut by what the server counted, and the list is sent again."""
    server = FakeChat(max_length=3000, score_of=by_length)
    texts = ["é" * (200 + place) for place in range(20)]
    async with ordering(server) as stage:
        server.script = [server.too_long(5600, 176)]
        scored = await order(stage, "q", texts)
    first, second = (passages_of(seen.body) for seen in server.posts)
    assert [number for number, _ in second] == list(range(1, 21))
    assert all(len(short) < len(long) for (_, long), (_, short) in zip(first, second, strict=True))
    assert (scored.cost.truncated, scored.cost.calls) == (20, 2)
    assert scored.shortened == frozenset(range(20))


async def test_d9_a_prompt_that_is_refused_again_or_cannot_fit_fails_the_round() -> None:
    """It is never sent in parts, and nothing is sent where passages would have no room."""
    server = FakeChat()
    async with ordering(server, breaker=GENEROUS) as stage:
        server.script = [server.too_long(9000, 24), server.too_long(9000, 24)]
        with pytest.raises(StageRefused, match="too_long"):
            await order(stage, "q", ["word " * 50] * 2)
        assert len(server.posts) == 2
        server.script = [httpx.Response(413)]
        with pytest.raises(StageRefused, match="payload_limit"):
            await order(stage, "q", ["a", "b"])
        before = len(server.posts)
        with pytest.raises(StageRefused, match="too_long"):
            await order(stage, "q", ["a"] * 2000)
        assert len(server.posts) == before
        assert stage.guarded.breaker is BreakerState.CLOSED


@pytest.mark.parametrize(
    "fields",
    [
        {"chunk_texts": 5},
        {"chunk_tokens": 100},
        {"score_space": "logit"},
        {"answer_tokens": 8000},
        {"form": "prose"},
        {"broken_order": "guess"},
        {"passage_tokens": 0},
    ],
)
def test_what_a_list_cannot_have_is_refused_in_a_release(fields: dict[str, Any]) -> None:
    """By the name of the field."""
    with pytest.raises(ValueError, match=next(iter(fields))):
        ChatStage.model_validate({**CHAT, **fields})


@pytest.mark.parametrize("name", ["passthrough@1", "qwen3-reranker@1"])
async def test_a_serializer_of_pairs_is_refused(name: str) -> None:
    """And one of lists at a stage that scores pairs."""
    with pytest.raises(ConfigError, match="pairs"):
        async with ordering(FakeChat(), serializer=name):
            pass


async def test_a_prompt_of_lists_is_refused_at_a_stage_that_scores_pairs() -> None:
    """A score route would score the prompt's pieces."""
    release = parse_release(
        {
            "release": "r",
            "stages": {"small": {**CHAT, "adapter": "vllm", "serializer": "listwise@1"}},
            "depth": 5,
            "escalation": "none",
            "budgets": {"total_ms": 90, "small_ms": 30, "large_ms": 50, "reserve_ms": 7},
        }
    )
    assert release.stages.small is not None
    with worker_pool(1) as pool, pytest.raises(ConfigError, match="lists"):
        build_stage(
            StageName.SMALL,
            release.stages.small,
            budget_ms=30,
            clock=asyncio.get_running_loop().time,
            pool=pool,
            environment={},
        )


def test_f1_everything_that_an_order_depends_on_is_in_the_fingerprint() -> None:
    """Whoever changes how an order is asked for, or mended, has another stage."""

    async def told(**fields: Any) -> bytes:
        async with ordering(FakeChat(), **fields) as stage:
            return orjson.dumps(stage.fingerprint)

    async def play() -> None:
        first = await told()
        changes: list[dict[str, Any]] = [
            {"form": "regex"},
            {"broken_order": "refuse"},
            {"passage_tokens": 64},
            {"seed": 3},
            {"thinking": False},
            {"instruction": "Find"},
            {"max_length": 4096},
            {"model": "other"},
        ]
        assert len({first, *[await told(**change) for change in changes]}) == 1 + len(changes)
        assert b'"score_space":"rank"' in first

    run_virtual(play())


async def test_f1_texts_that_the_cache_takes_for_one_make_one_prompt() -> None:
    """White space makes no difference, also to a passage that is cut: it is put on one line before."""
    server = FakeChat()
    spaced = ("word" + " " * 20) * 30
    async with ordering(server, passage_tokens=8) as stage:
        await order(stage, "q", [spaced, "b"])
        await order(stage, "q", [" ".join(spaced.split()), "b"])
    first, second = (passages_of(seen.body) for seen in server.posts)
    assert first == second
