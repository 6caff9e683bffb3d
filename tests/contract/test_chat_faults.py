"""What a listwise stage makes of answers that are no orders, and of a server that fails."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from cascade.errors import (
    StageError,
    StageInvalidAnswer,
    StageOverloaded,
    StageRefused,
    StageTimeout,
)
from cascade.guard.deadline import Deadline
from cascade.stages.probe import Verdict, probe
from cascade.testing.chat import FakeChat, written_order
from cascade.testing.clock import run_virtual
from cascade.types import BreakerState

from .chat import GENEROUS, by_length, order, ordering


async def test_a_broken_order_is_mended_by_rule_and_counted() -> None:
    """Named twice, unknown, left out: four documents, each in one place, in the order given where nothing is said."""
    server = FakeChat(writes=lambda numbers: "Sure: [3] > [3] > [9] > [2]")
    async with ordering(server) as stage:
        scored = await order(stage, "q", ["a", "b", "c", "d"])
    assert scored.scores == (0.5, 0.75, 1.0, 0.25)
    assert scored.cost.repaired == 1 + 1 + 2 + 1


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("[1] > [1]", "duplicate_index"),
        ("[1] > [3]", "bad_index"),
        ("[2]", "wrong_count"),
        ("[2] > [1].", "not_bare"),
        ("no", "no_order"),
        ("", "no_order"),
        (None, "no_order"),
    ],
)
async def test_a_broken_order_is_refused_where_the_release_says_so(written: str | None, code: str) -> None:
    """Then the round does not count, and nothing of it is kept."""
    async with ordering(FakeChat(writes=lambda numbers: written), broken_order="refuse") as stage:
        with pytest.raises(StageInvalidAnswer, match=code):
            await order(stage, "q", ["a", "b"])


@pytest.mark.parametrize("rule", ["repair", "refuse"])
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"refusal": "I will not order these."}, "refusal"),
        ({"finish_reason": "content_filter"}, "refusal"),
        ({"writes": lambda numbers: "<think>[1] > [2], or rather"}, "no_order"),
        ({"writes": lambda numbers: ""}, "no_order"),
    ],
)
async def test_an_answer_without_an_order_is_a_fault_under_either_rule(
    rule: str, fields: dict[str, Any], code: str
) -> None:
    """A refusal, thinking that did not end, nothing: there is no order to mend."""
    async with ordering(FakeChat(**fields), broken_order=rule) as stage:
        with pytest.raises(StageInvalidAnswer, match=code):
            await order(stage, "q", ["a", "b"])


async def test_a_cut_answer_is_mended_or_refused() -> None:
    """``finish_reason`` tells: what was written counts, unless the release wants whole orders."""
    async with ordering(FakeChat(writes=lambda numbers: "[2] > [3]", finish_reason="length")) as stage:
        scored = await order(stage, "q", ["a", "b", "c"])
    assert list(scored.scores) == pytest.approx([1 / 3, 1.0, 2 / 3])
    assert scored.cost.repaired == 1
    async with ordering(FakeChat(finish_reason="length"), broken_order="refuse") as stage:
        with pytest.raises(StageInvalidAnswer, match="cut_order"):
            await order(stage, "q", ["a", "b"])


async def test_thinking_before_the_answer_is_no_fault() -> None:
    """Under either rule, and nothing counts as mended."""
    for rule in ("repair", "refuse"):
        server = FakeChat(
            writes=lambda numbers: f"<think>[1] > [2]?</think>\n{written_order(numbers)}", score_of=by_length
        )
        async with ordering(server, broken_order=rule) as stage:
            scored = await order(stage, "q", ["aa", "a"])
        assert (scored.scores, scored.cost.repaired) == ((0.5, 1.0), 0)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"not json", "not_json"),
        (b"[]", "wrong_shape"),
        (b"{}", "wrong_shape"),
        (b'{"error":{"message":"canary"}}', "error_body"),
        (b'{"choices":[]}', "wrong_shape"),
        (b'{"choices":{}}', "wrong_shape"),
        (b'{"choices":[{"message":null}]}', "wrong_shape"),
        (b'{"choices":[{"message":{"content":7}}]}', "wrong_shape"),
        (b'{"choices":[{"message":{"content":[{"type":"text","text":"[1]"}]}}]}', "wrong_shape"),
    ],
)
async def test_d6_an_answer_of_another_shape_is_never_believed(body: bytes, code: str) -> None:
    """And no word of it is in the error."""
    server = FakeChat()
    async with ordering(server) as stage:
        server.script = [httpx.Response(200, content=body)]
        with pytest.raises(StageInvalidAnswer, match=code) as caught:
            await order(stage, "q", ["canary", "b"])
    assert "canary" not in repr(caught.value)


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (httpx.ConnectError("m"), True),
        (httpx.Response(429), True),
        (httpx.Response(503), True),
        (httpx.ReadError("m"), False),
        (httpx.Response(500), False),
        (httpx.Response(502), False),
        (httpx.Response(504), False),
    ],
)
def test_b1_a_call_that_the_server_may_have_worked_on_is_not_made_again(
    failure: httpx.Response | Exception, again: bool
) -> None:
    """An order costs a whole generation: only what was turned away at the door is asked for again."""

    async def play() -> None:
        server = FakeChat()
        async with ordering(server, retries=1, breaker=GENEROUS) as stage:
            for _ in range(20):  # each pays for a part of a retry, and tells how long a call takes
                await order(stage, "q", ["a", "b"])
            before = len(server.posts)
            server.script = [failure]
            try:
                await order(stage, "q", ["a", "b"])
            except StageError:
                assert not again
            assert len(server.posts) - before == 1 + again

    run_virtual(play())


@pytest.mark.parametrize(
    ("reply", "kind", "code"),
    [
        (httpx.Response(404, json={"error": {"message": "The model `x` does not exist."}}), StageRefused, "unknown_model"),
        (httpx.Response(404, json={"detail": "Not Found"}), StageRefused, "no_route"),
        (httpx.Response(400, json={"error": {"message": "canary: no chat template is defined"}}), StageRefused, "no_chat"),
        (httpx.Response(400, json={"error": {"message": "The model does not support Chat Completions API"}}), StageRefused, "no_chat"),
        (httpx.Response(400, json={"error": {"message": "canary"}}), StageRefused, "status_400"),
        (httpx.Response(401, json={"error": "Unauthorized"}), StageRefused, "unauthorized"),
        (httpx.Response(429, json={"error": {"message": "slow"}}), StageOverloaded, "status_429"),
        (httpx.Response(500, json={"error": {"message": "EngineCore died"}}), StageInvalidAnswer, "status_500"),
        (httpx.Response(204), StageInvalidAnswer, "status_without_scores"),
    ],
)  # fmt: skip
async def test_b5_each_refusal_is_told_by_its_cause(reply: httpx.Response, kind: type[StageError], code: str) -> None:
    """By status and wording, and no word of the server's is passed on."""
    server = FakeChat()
    async with ordering(server) as stage:
        server.script = [reply]
        with pytest.raises(kind, match=code) as caught:
            await order(stage, "q", ["canary"])
    assert "canary" not in repr(caught.value)


def test_c1_a_deadline_ends_the_call_at_the_server_too() -> None:
    """The server sees its client go."""

    async def play() -> None:
        server = FakeChat(hangs=True)
        async with ordering(server) as stage:
            with pytest.raises(StageTimeout, match="deadline"):
                await order(stage, "q", ["a", "b"], within_ms=30)
        assert server.cancelled == 1

    run_virtual(play())


def test_b7_a_server_that_writes_no_orders_is_left_alone() -> None:
    """An answer that is none counts as a failure; a refusal of these passages says nothing of others."""

    async def play() -> None:
        rubbish = FakeChat(writes=lambda numbers: "no")
        refusing = FakeChat(refusal="no")
        for server, state in ((rubbish, BreakerState.OPEN), (refusing, BreakerState.CLOSED)):
            async with ordering(server) as stage:
                for _ in range(5):
                    with pytest.raises(StageInvalidAnswer):
                        await order(stage, "q", ["a", "b"])
                assert stage.guarded.breaker is state

    run_virtual(play())


@pytest.mark.parametrize(
    ("writes", "verdict"),
    [
        (None, Verdict.OK),
        (lambda numbers: written_order([numbers[1], numbers[0], *numbers[2:]]), Verdict.WRONG_ORDER),
        (lambda numbers: "[1] > [1]", Verdict.NO_PERMUTATION),
        (lambda numbers: "what?", Verdict.FAILED),
    ],
)
async def test_d6_the_probe_orders_four_passages(writes: Any, verdict: Verdict) -> None:
    """The order of known passages must be a permutation, and the one that answers the query first."""
    async with ordering(FakeChat(writes=writes, score_of=lambda query, text: float("Paris" in text))) as stage:
        found = await probe(stage, Deadline.after_ms(1000, asyncio.get_running_loop().time))
    assert found.verdict is verdict
