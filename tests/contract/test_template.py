"""Templates: applied by exactly one side, and never cut."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.stages.serializers import serializer
from cascade.testing.rerank_api import FakeInfinity, FakeLlamaCpp, FakeSglang
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm

from .arrange import HOSTED, INFINITY, LLAMACPP, SGLANG, TEI, VLLM, released

QWEN = serializer("qwen3-reranker@1")
BEGIN, END = QWEN.document("").removesuffix(QWEN.document_suffix), QWEN.document_suffix
OWN = {"serializer": "qwen3-reranker@1"}


def in_characters(query: str, text: str) -> int:
    """Count a token for every three and a half characters, and the special ones."""
    return round((len(query) + len(text)) / 3.5) + 3


SERVERS = [
    (FakeTei(truncates=False, tokens_of=in_characters), TEI, "texts", "query"),
    (FakeVllm(tokens_of=in_characters), VLLM, "text_2", "text_1"),
    (FakeVllm(tokens_of=in_characters, version="2025"), VLLM, "text_2", "text_1"),
    (FakeLlamaCpp(tokens_of=in_characters), LLAMACPP, "documents", "query"),
    (FakeSglang(tokens_of=in_characters), SGLANG, "documents", "query"),
    (FakeInfinity(), INFINITY, "documents", "query"),
]
IDS = ["tei", "vllm", "vllm-2025", "llamacpp", "sglang", "infinity"]
each = pytest.mark.parametrize(("server", "declared", "documents", "query"), SERVERS, ids=IDS)


@each
async def test_e1_with_a_template_the_texts_are_the_whole_prompt_and_nothing_asks_for_another(
    server: FakeServer, declared: dict[str, Any], documents: str, query: str
) -> None:
    """Neither an instruction nor a bound on tokens goes beside the text: the server is to add and to cut nothing."""
    server.seen.clear()
    async with released(server, {**declared, **OWN}) as contract:
        assert contract.stage.takes_instruction
        await contract.score("who", ["Shakespeare."])
        await contract.score("who", ["Shakespeare."], instruction="Find the author")
    first, second = (seen.body for seen in server.posts)
    assert first[documents] == [QWEN.document("Shakespeare.")]
    assert (first[query], second[query]) == (QWEN.query("who"), QWEN.query("who", "Find the author"))
    for body in (first, second):
        assert not body.keys() & {"instruction", "instruct", "max_tokens_per_doc", "max_tokens_per_query"}
    assert declared is not TEI or first["truncate"] is False


@each
async def test_e1_clipping_cuts_the_text_and_keeps_the_template(
    server: FakeServer, declared: dict[str, Any], documents: str, query: str
) -> None:
    """Where a model answers after the prompt's last token, that token always arrives."""
    server.seen.clear()
    long = "word " * 3_000
    async with released(server, {**declared, **OWN}) as contract:
        scored = await contract.score("who " * 2_000, ["Shakespeare.", long])
    assert (scored.excluded, scored.cost.truncated) == ({}, 2)
    for seen in server.posts:
        assert seen.body[query].startswith(QWEN.query_prefix)
        assert seen.body[query].endswith(QWEN.query_suffix)
        assert not seen.body.keys() & {"max_tokens_per_doc", "max_tokens_per_query"}
        for text in seen.body[documents]:
            assert text.startswith(BEGIN)
            assert text.endswith(END)
    last = server.posts[-1].body
    assert in_characters(last[query], last[documents][-1]) <= 512
    kept = last[documents][-1].removeprefix(BEGIN).removesuffix(END)
    assert long.startswith(kept)
    assert len(kept) > 300


@pytest.mark.parametrize(
    ("server", "declared", "field"), [(FakeVllm(), VLLM, "instruction"), (FakeSglang(), SGLANG, "instruct")]
)
async def test_16_without_a_template_the_server_is_told_the_instruction_by_its_own_name(
    server: FakeServer, declared: dict[str, Any], field: str
) -> None:
    """The caller's wins over the release's, and without either nothing is sent."""
    async with released(server, declared) as contract:
        await contract.score("q", ["a"])
        await contract.score("q", ["a"], instruction="caller's")
    async with released(server, declared, instruction="release's") as contract:
        await contract.score("q", ["a"])
        await contract.score("q", ["a"], instruction="caller's")
    assert [seen.body.get(field) for seen in server.posts] == [None, "caller's", "release's", "caller's"]


@pytest.mark.parametrize("declared", [TEI, INFINITY, LLAMACPP, *HOSTED.values()], ids=lambda told: told["adapter"])
async def test_16_an_instruction_that_would_reach_nobody_is_refused(declared: dict[str, Any]) -> None:
    """Neither the server nor the serializer takes one: said at start, not ignored."""
    with pytest.raises(ConfigError, match="neither the serializer nor the server of this adapter takes one"):
        async with released(FakeTei(), declared, instruction="Find answers"):
            pass


async def test_16_a_callers_instruction_that_reaches_nobody_changes_nothing() -> None:
    """The stage says beforehand that it takes none."""
    server = FakeTei()
    async with released(server, TEI) as contract:
        assert not contract.stage.takes_instruction
        await contract.score("q", ["a"], instruction="canary")
        assert b"canary" not in contract.bodies[0]
