"""Pairs that are too long for vLLM, and bodies too large for what stands before it."""

from __future__ import annotations

import httpx
import pytest

from cascade.errors import StageRefused
from cascade.testing.upstream import FakeVllm
from cascade.types import Exclusion

from .arrange import VLLM, released

clipping_version = pytest.mark.parametrize("version", ["2025", "now"])

_TOO_LONG_NOW = (
    b'{"error":{"message":"This model\'s maximum context length is 512 tokens. However, your prompt contains at least '
    b"513 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
    b'prompt. (parameter=input_tokens, value=513)","type":"BadRequestError","param":"input_tokens","code":400}}'
)
_TOO_LONG_2025 = (
    b'{"object":"error","message":"This model\'s maximum context length is 512 tokens. However, you requested 1534 '
    b'tokens in the input for score. Please reduce the length of the input.","type":"BadRequestError",'
    b'"param":null,"code":400}'
)
_TOO_MANY_CHARACTERS = (
    b'{"error":{"message":"This model\'s maximum context length is 512 tokens. However, your prompt contains 7653 '
    b"characters (more than 5120 characters, which is the upper bound for 512 input tokens). Please reduce the length of "
    b'the input prompt. (parameter=input_text, value=7653)","type":"BadRequestError","param":"input_text","code":400}}'
)
_TOO_MANY_CHARACTERS_16 = (
    b'{"error":{"message":"You passed 7653 input characters and requested 0 output tokens. However, the model\'s context '
    b"length is only 512 tokens, resulting in a maximum input length of 512 tokens (at most 5120 characters). Please reduce "
    b'the length of the input prompt. (parameter=input_text, value=7653)","type":"BadRequestError","param":"input_text","code":400}}'
)


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
    [_TOO_LONG_NOW, _TOO_LONG_2025, _TOO_MANY_CHARACTERS, _TOO_MANY_CHARACTERS_16],
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
