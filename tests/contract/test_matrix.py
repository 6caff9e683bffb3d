"""The compatibility matrix: one row a server and version, one test a promise, the same for all."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from cascade.errors import StageError, StageInvalidAnswer, StageOverloaded, StageTimeout
from cascade.guard.deadline import Deadline
from cascade.testing.clock import run_virtual
from cascade.testing.rerank_api import FakeHosted, FakeInfinity, FakeLlamaCpp, FakeSglang
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm
from cascade.text import Text
from cascade.types import Exclusion

from .arrange import HOSTED, INFINITY, LLAMACPP, SGLANG, TEI, VLLM, by_length, released


@dataclass(frozen=True)
class Row:
    """What one server of one version does.

    ``logits`` tells whether it gives them when asked; ``calls`` is how many a round of 40 texts takes;
    ``long_calls`` how many one of three texts takes of which one is too long, ``clips`` whether the
    server cuts that one itself; ``counts`` whether it tells tokens; ``times`` whether it tells
    milliseconds; ``limit`` is the longest pair as it tells it.
    """

    name: str
    serve: Callable[..., FakeServer]
    declared: Mapping[str, Any]
    logits: bool = True
    calls: int = 1
    long_calls: int = 4
    clips: bool = False
    counts: bool = True
    times: bool = False
    limit: int | None = 512
    ranks: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """Return the declaration, in the space that the server answers in."""
        return {**self.declared, "score_space": "logit" if self.logits else "probability"}


def tei(version: str) -> Callable[..., FakeServer]:
    """Return a maker of TEI servers of a version."""
    return lambda **fields: FakeTei(version=version, **fields)


def vllm(version: str, **more: Any) -> Callable[..., FakeServer]:
    """Return a maker of vLLM servers of a version."""
    return lambda **fields: FakeVllm(version=version, **more, **fields)


def hosted(kind: Any) -> Callable[..., FakeServer]:
    """Return a maker of a hosted API."""
    return lambda **fields: FakeHosted(kind=kind, **fields)


ROWS = [
    Row("tei-1.7", tei("1.7"), TEI, calls=2, long_calls=1, clips=True, times=True),
    Row("tei-1.8", tei("1.8"), TEI, calls=2, long_calls=1, clips=True, times=True),
    Row("tei-1.9", tei("1.9"), TEI, calls=2, long_calls=1, clips=True, times=True),
    Row("vllm-2024", vllm("2024"), VLLM, logits=False, ranks=False),
    Row("vllm-2025", vllm("2025"), VLLM, ranks=False),
    Row("vllm-2025-rerank", vllm("2025", has_score_route=False), VLLM, calls=2, long_calls=5),
    Row("vllm-now", vllm("now"), VLLM, ranks=False),
    Row("vllm-now-rerank", vllm("now", has_score_route=False), VLLM, calls=2, long_calls=5),
    Row("infinity", FakeInfinity, INFINITY, long_calls=1, clips=True, counts=False, limit=None),
    Row("llamacpp", FakeLlamaCpp, LLAMACPP),
    Row("llamacpp-via-tei", FakeLlamaCpp, TEI, calls=2, counts=False, limit=None),
    Row("sglang", FakeSglang, SGLANG, counts=False),
    Row("cohere", hosted("cohere"), HOSTED["cohere"], logits=False, long_calls=1, clips=True, counts=False, limit=None),
    Row("jina", hosted("jina"), HOSTED["jina"], logits=False, long_calls=1, clips=True, limit=None),
    Row("voyage", hosted("voyage"), HOSTED["voyage"], logits=False, long_calls=1, clips=True, limit=None),
    Row("mixedbread", hosted("mixedbread"), HOSTED["mixedbread"], logits=False, long_calls=1, clips=True, limit=None),
    Row("nim", hosted("nim"), HOSTED["nim"], long_calls=1, clips=True, limit=None),
]
each = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def unit(logit: float) -> float:
    """Return the probability of a logit."""
    return 1 / (1 + math.exp(-logit))


def from_number(query: str, text: str) -> float:
    """Score by the number that a text begins with: no two alike, none in order."""
    return int(text.split(maxsplit=1)[0]) * 7919 % 1009 / 200


@each
async def test_e5_scores_have_the_absolute_values_of_the_declared_space(row: Row) -> None:
    """Logits where the server gives them, its probabilities where it does not: no sigmoid too many or too few."""
    async with released(row.serve(score_of=by_length), row.settings) as contract:
        scores = (await contract.score("q", ["a" * 10, "a", "aaaa"])).scores
    assert scores == pytest.approx([logit if row.logits else unit(logit) for logit in (-3.5, 5.5, 2.5)])


@each
async def test_d4_scores_belong_to_their_documents(row: Row) -> None:
    """Ranked, in input order or split into calls: each document has its own score."""
    texts = [f"{number} word" for number in range(40)]
    server = row.serve(score_of=from_number)
    async with released(server, row.settings) as contract:
        scored = await contract.score("q", texts)
    expected = [from_number("q", text) for text in texts]
    assert scored.scores == pytest.approx(expected if row.logits else [unit(score) for score in expected])
    assert len(server.posts) == row.calls


@pytest.mark.parametrize("row", [row for row in ROWS if row.declared["adapter"] not in {"tei", "vllm"}], ids=lambda row: row.name)  # fmt: skip
async def test_36_an_answer_in_no_order_is_placed_by_index(row: Row) -> None:
    """Builds that do not sort, or sort unstably, change nothing."""
    texts = [f"{number} word" for number in range(40)]
    scores = []
    for shuffled in (False, True):
        async with released(row.serve(score_of=from_number, shuffled=shuffled), row.settings) as contract:
            scores.append((await contract.score("q", texts)).scores)
    assert scores[0] == scores[1]


@each
async def test_d8_blank_documents_are_never_sent(row: Row) -> None:
    """A server that refuses them never meets one, and a server that scores them is not asked to."""
    server = row.serve(score_of=by_length)
    async with released(server, row.settings) as contract:
        scored = await contract.score("q", ["", "a", " \n", "aa"])
    assert scored.excluded == {0: Exclusion.BLANK, 2: Exclusion.BLANK}
    assert scored.scores[1] == pytest.approx(5.5 if row.logits else unit(5.5))
    assert '""' not in str(server.posts[-1].body)


@each
async def test_d9_a_document_that_is_too_long_costs_its_siblings_nothing(row: Row) -> None:
    """The server cuts it, or it is clipped here after one refusal; either way it counts as not read in full."""
    server = row.serve(score_of=from_number)
    async with released(server, row.settings) as contract:
        scored = await contract.score("q", ["1 a", "7 " + "word " * 900, "2 b"])
    expected = [from_number("q", text) for text in ("1", "7", "2")]
    assert scored.scores == pytest.approx(expected if row.logits else [unit(score) for score in expected])
    assert (scored.excluded, scored.cost.truncated) == ({}, 1)
    assert len(server.posts) == row.long_calls
    assert (row.long_calls == 1) is row.clips


@each
async def test_what_the_server_tells_of_its_cost_is_taken_and_no_more(row: Row) -> None:
    """Tokens where it counts tokens, milliseconds where it tells them, estimates said to be estimates elsewhere."""
    async with released(row.serve(), row.settings) as contract:
        cost = (await contract.score("one two", ["a b c", "d"])).cost
    assert cost.tokens_estimated is not row.counts
    if row.counts:
        assert cost.tokens == (2 + 3 + 3) + (2 + 1 + 3)
    assert (cost.server_ms is not None) is (cost.queue_ms is not None) is row.times


@each
async def test_the_limit_that_the_server_tells_is_learned(row: Row) -> None:
    """The longest pair is observed where it is told, and unknown where it is not."""
    async with released(row.serve(), row.settings) as contract:
        observed = contract.stage.observed
    assert observed is not None
    assert observed.max_length == row.limit


@each
async def test_c2_no_room_is_told_as_overload_and_nothing_is_repeated(row: Row) -> None:
    """429 and 503 mean the same of every server."""
    for status in (429, 503):
        server = row.serve()
        async with released(server, row.settings) as contract:
            await contract.score("q", ["a"])
            before = len(server.posts)
            server.script = [httpx.Response(status, json={"error": {"message": "overloaded"}})]
            with pytest.raises(StageOverloaded, match=f"status_{status}"):
                await contract.score("q", ["a", "b"])
        assert len(server.posts) == before + 1


@each
def test_3_a_server_that_only_waits_when_it_is_full_costs_the_deadline_and_no_more(row: Row) -> None:
    """TEI up to 1.8 and vLLM without a queue limit never say 429: the deadline holds with them too."""

    async def play() -> None:
        async with released(row.serve(hangs=True), row.settings) as contract:
            clock = asyncio.get_running_loop().time
            began = clock()
            with pytest.raises(StageTimeout, match="deadline"):
                await contract.stage.score(
                    Text("q"), [Text("a")], deadline=Deadline.after_ms(30, clock), call_id="call"
                )
            assert clock() - began == pytest.approx(0.03)

    run_virtual(play())


@each
async def test_d7_an_answer_without_every_score_fails_the_round(row: Row) -> None:
    """Null, too few and twice the same are refused in every format."""
    server = row.serve(score_of=by_length)
    async with released(server, row.settings) as contract:
        whole = await contract.score("q", ["a", "aa"])
        route = server.posts[-1].path
        answer = server.post(route, server.posts[-1].body, 0).json()
        holder = answer if isinstance(answer, list) else next(v for v in answer.values() if isinstance(v, list))
        key = next(name for name in ("score", "relevance_score", "logit") if name in holder[0])
        for spoil in (
            [{**holder[0], key: None}, holder[1]],
            [holder[0], {**holder[1], "index": holder[0]["index"]}],
            [holder[0]],
            [],
        ):
            name = None if holder is answer else next(n for n, v in answer.items() if v is holder)
            server.script = [httpx.Response(200, json=spoil if name is None else {**answer, name: spoil})]
            with pytest.raises(StageInvalidAnswer):
                await contract.score("q", ["a", "aa"])
        assert (await contract.score("q", ["a", "aa"])).scores == whole.scores


@each
async def test_g2_no_error_of_the_server_is_passed_on(row: Row) -> None:
    """A refusal that echoes its input, as several do, reaches nobody."""
    server = row.serve()
    async with released(server, row.settings) as contract:
        for body in ({"error": {"message": "canary"}}, {"detail": "canary"}, {"message": "canary"}, ["canary"]):
            server.script = [httpx.Response(400, json=body)]
            with pytest.raises(StageError) as caught:
                await contract.score("q", ["canary"])
            assert "canary" not in f"{caught.value!r} {caught.value.code}"


@pytest.mark.parametrize(("version", "switch"), [("2024", None), ("2025", "activation"), ("now", "use_activation")])
async def test_each_vllm_finds_the_switch_that_it_knows(version: str, switch: str | None) -> None:
    """Both names are in every request: what a version does not know, it ignores."""
    server = FakeVllm(version=version)
    async with released(server, VLLM) as contract:
        await contract.score("q", ["a"])
    assert switch is None or server.posts[0].body[switch] is False


@pytest.mark.parametrize("version", ["1.7", "1.8", "1.9"])
async def test_7_each_tei_understands_the_direction_of_truncation(version: str) -> None:
    """Lower case is refused before 1.9.0, so it is never sent."""
    server = FakeTei(version=version)
    async with released(server, TEI) as contract:
        assert (await contract.score("q", ["a"])).scores[0] is not None
    assert server.posts[0].body["truncation_direction"] == "Right"
    lower = {**server.posts[0].body, "truncation_direction": "right"}
    assert (server.post("/rerank", lower, 0).status_code == 200) is (version == "1.9")
