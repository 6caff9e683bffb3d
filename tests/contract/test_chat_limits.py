"""A prompt or an answer that is longer than was thought: what the server's words lead to, and how much is read of an answer."""

from __future__ import annotations

import httpx
import pytest

from cascade.errors import StageInvalidAnswer, StageRefused
from cascade.testing.chat import FakeChat, passages_of, written_order

from .chat import GENEROUS, by_length, order, ordering

_STATED = {
    "vllm 0.10": (
        "This model's maximum context length is 8192 tokens. However, you requested 12000 tokens (11824 in the messages, "
        "176 in the completion). Please reduce the length of the messages or completion."
    ),
    "vllm 0.11": (
        "'max_tokens' or 'max_completion_tokens' is too large: 176. This model's maximum context length is 8192 tokens and "
        "your request has 11824 input tokens (176 > 8192 - 11824)."
    ),
}
"""How a server says how much was given."""
_UNSTATED = {
    "vllm 0.15": (
        "This model's maximum context length is 8192 tokens. However, you requested 176 output tokens and your prompt "
        "contains at least 8017 input tokens, for a total of at least 8193 tokens. Please reduce the length of the input "
        "prompt or the number of requested output tokens."
    ),
    "vllm 0.32": (
        "This model's maximum context length is 8192 tokens. However, your prompt contains at least 8193 input tokens, which "
        "exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
    ),
    "characters": (
        "This model's maximum context length is 8192 tokens. However, your prompt contains 90000 characters (more than 81920 "
        "characters, which is the upper bound for 8192 input tokens). Please reduce the length of the input prompt."
    ),
    "engine": (
        "The decoder prompt (length 11824) is longer than the maximum model length of 8192. Make sure that `max_model_len` is "
        "no smaller than the number of text tokens."
    ),
}
"""How a server says that it is too much, and no more."""


def _sizes(server: FakeChat) -> list[int]:
    """Return the characters of the passages of each prompt."""
    return [sum(len(text) for _, text in passages_of(seen.body)) for seen in server.posts]


@pytest.mark.parametrize("message", [*_STATED.values(), *_UNSTATED.values()], ids=[*_STATED, *_UNSTATED])
async def test_d9_what_is_too_long_is_cut_by_what_was_counted_or_by_half(message: str) -> None:
    """Passages are far below their room, so it is their own length that counts; and the list fits when it comes again."""
    server = FakeChat(score_of=by_length)
    async with ordering(server, passage_tokens=2000) as stage:
        server.script = [server.problem(400, message, "BadRequestError")]
        scored = await order(stage, "q", ["word " * (200 + place) for place in range(20)])
    first, second = _sizes(server)
    assert 0.3 * first < second < (0.6 if message in _UNSTATED.values() else 0.7) * first
    assert [number for number, _ in passages_of(server.posts[1].body)] == list(range(1, 21))
    assert (scored.cost.truncated, scored.cost.calls) == (20, 2)
    assert None not in scored.scores


async def test_d9_a_short_passage_is_not_cut_to_nothing_beside_long_ones() -> None:
    """A share of every passage, but none goes below eight tokens; where all are that short nothing is sent again."""
    server = FakeChat(score_of=by_length)
    async with ordering(server, breaker=GENEROUS) as stage:
        server.script = [server.too_long(9000, 40)]
        await order(stage, "q", ["word " * 100, "a short one here", "word " * 90])
        (_, long), (_, short), _ = passages_of(server.posts[1].body)
        assert short == "a short one here"
        assert len(long) < 400
        server.script = [server.problem(400, _UNSTATED["engine"], "BadRequestError")]
        with pytest.raises(StageRefused, match="too_long"):
            await order(stage, "q", ["short", "shorter"])
    assert len(server.posts) == 3


async def test_an_answer_is_read_as_far_as_the_release_lets_the_model_write() -> None:
    """Thinking of tens of thousands of tokens is no fault where it was declared; what is longer than any answer is."""
    thinking = "<think>" + "so be it " * 12_000 + "</think>"
    server = FakeChat(max_length=131_072, score_of=by_length, writes=lambda numbers: thinking + written_order(numbers))
    async with ordering(server, answer_tokens=32_768, max_length=131_072) as stage:
        assert (await order(stage, "q", ["aa", "a"])).scores == (0.5, 1.0)
    async with ordering(server, breaker=GENEROUS) as stage:
        with pytest.raises(StageInvalidAnswer, match="answer_too_large"):
            await order(stage, "q", ["aa", "a"])
        server.script = [httpx.Response(200, content=b" " * 2_000_000)]
        with pytest.raises(StageInvalidAnswer, match="answer_too_large"):
            await order(stage, "q", ["aa", "a"])
