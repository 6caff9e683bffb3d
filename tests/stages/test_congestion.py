"""Load as servers tell it: read where it is told, asked once where it is not, and stale when it is old."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.policy.release import HttpStage
from cascade.stages.base import Congestion
from cascade.stages.congestion import is_failing, is_pressed, joined, read_load
from cascade.stages.http import HttpReranker
from cascade.stages.upstream import Reply
from cascade.testing.clock import run_virtual
from cascade.testing.rerank_api import FakeHosted, FakeInfinity, FakeLlamaCpp, FakeSglang
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm
from tests.telemetry.captured import captured_log

from .arrange import api_spec, running, score, tei_spec, vllm_spec

VLLM_TEXT = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0
"""
LLAMACPP_TEXT = """# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 5
"""
SGLANG_TEXT = """# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m"} 4.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m"} 6.0
"""
TEI_TEXT = "# TYPE te_queue_size gauge\nte_queue_size 11\n"
LOADED: list[tuple[FakeServer, HttpStage, float | None, float | None]] = [
    (FakeTei(metrics=TEI_TEXT), tei_spec(), 11.0, None),
    (FakeVllm(metrics=VLLM_TEXT), vllm_spec(), 9.0, 4.0),
    (FakeLlamaCpp(metrics=LLAMACPP_TEXT), api_spec("llamacpp"), 5.0, 2.0),
    (FakeSglang(metrics=SGLANG_TEXT), api_spec("sglang"), 6.0, 4.0),
    (FakeInfinity(queued=8), api_spec("infinity"), 8.0, None),
]


def play(server: FakeServer, spec: HttpStage, then: Callable[[HttpReranker], Awaitable[None]]) -> None:
    """Run a started stage on virtual time."""

    async def whole() -> None:
        async with running(server, spec) as stage:
            await then(stage)

    run_virtual(whole())


def looks_at(server: FakeServer, path: str = "/metrics") -> int:
    """Count the looks at a server's load."""
    return sum(seen.path == path for seen in server.seen)


@pytest.mark.parametrize(
    ("server", "spec", "waiting", "busy"), LOADED, ids=["tei", "vllm", "llamacpp", "sglang", "infinity"]
)
def test_each_server_tells_of_its_queue_in_its_own_words(
    server: FakeServer, spec: HttpStage, waiting: float, busy: float | None
) -> None:
    """Gauges are added over engines; what a server does not tell is unknown."""

    async def then(stage: HttpReranker) -> None:
        await asyncio.sleep(1)
        assert stage.congestion is not None
        assert (stage.congestion.waiting, stage.congestion.running) == (waiting, busy)
        assert stage.congestion.queue_ms is None

    play(server, spec, then)


def test_the_queue_of_an_answer_is_told_by_its_header() -> None:
    """TEI says how long the pairs of an answer waited; that stands beside what its metrics say."""

    async def then(stage: HttpReranker) -> None:
        await asyncio.sleep(1)
        await score(stage, "q", ["a"])
        assert stage.congestion == Congestion(at=0.0, queue_ms=3, waiting=11.0)

    play(FakeTei(metrics=TEI_TEXT), tei_spec(), then)


def test_a_header_alone_is_a_signal_too() -> None:
    """A server whose metrics are hidden still tells with each answer."""

    async def then(stage: HttpReranker) -> None:
        assert stage.congestion is None
        await asyncio.sleep(1)
        await score(stage, "q", ["a"])
        assert stage.congestion == Congestion(at=1.0, queue_ms=3)

    play(FakeTei(), tei_spec(), then)


@pytest.mark.parametrize(
    ("server", "spec"),
    [
        (FakeTei(), tei_spec()),
        (FakeVllm(), vllm_spec()),
        (FakeLlamaCpp(), api_spec("llamacpp")),
        (FakeVllm(metrics="# TYPE http_requests_total counter\nhttp_requests_total 5\n"), vllm_spec()),
        (FakeVllm(metrics="<html>metrics</html>"), vllm_spec()),
        (FakeVllm(metrics='{"data": [{"id": "m"}]}'), vllm_spec()),
    ],
    ids=["404", "404 in JSON", "501", "other metrics", "HTML", "JSON"],
)
def test_what_is_not_offered_is_asked_for_once(server: FakeServer, spec: HttpStage) -> None:
    """No access log of a server fills with questions that it cannot answer."""

    async def then(stage: HttpReranker) -> None:
        await asyncio.sleep(120)
        assert stage.congestion is None

    play(server, spec, then)
    assert looks_at(server) == 1


def test_a_hosted_api_is_never_asked() -> None:
    """Where nothing tells of load, nothing is asked."""
    server = FakeHosted(kind="nim")

    async def then(stage: HttpReranker) -> None:
        await asyncio.sleep(60)

    play(server, api_spec("nim"), then)
    assert [seen.path for seen in server.seen] == ["/v1/models"]


class Failing(FakeTei):
    """TEI whose metrics go and come as a test says: a status, an exception, or None for no answer at all."""

    ends: httpx.Response | Exception | str | None = TEI_TEXT

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path != "/metrics":
            return await super().__call__(request)
        await super().__call__(request)
        match self.ends:
            case None:
                await asyncio.Event().wait()
            case Exception() as error:
                raise error
            case str() as text:
                return httpx.Response(200, text=text)
            case response:
                return response
        raise AssertionError


@pytest.mark.parametrize(
    "fault",
    [httpx.Response(503), httpx.Response(404), httpx.Response(429), httpx.ConnectError("m"), None, "nothing of load"],
    ids=["503", "404", "429", "refused", "silent", "odd"],
)
def test_a_route_that_fails_leaves_the_old_value_to_grow_stale(
    fault: httpx.Response | Exception | str | None,
) -> None:
    """The last word stands until it is fifteen seconds old, and is marked then; once told again it is fresh."""
    server = Failing()

    async def then(stage: HttpReranker) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(1)
        server.ends = fault
        await asyncio.sleep(14)
        assert stage.congestion == Congestion(at=0.0, waiting=11.0)
        assert not stage.congestion.is_stale(clock())
        await asyncio.sleep(0.1)
        assert stage.congestion.is_stale(clock())
        server.ends = TEI_TEXT.replace("11", "2")
        await asyncio.sleep(8)
        assert stage.congestion.waiting == 2.0
        assert not stage.congestion.is_stale(clock())

    play(server, tei_spec(), then)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_route_that_fails_at_first_is_asked_again(status: int) -> None:
    """A server that is still starting offers its metrics later."""
    server = Failing()
    server.ends = httpx.Response(status)

    async def then(stage: HttpReranker) -> None:
        await asyncio.sleep(30)
        assert stage.congestion is None
        server.ends = TEI_TEXT
        await asyncio.sleep(6)
        assert stage.congestion is not None
        assert stage.congestion.waiting == 11.0

    play(server, tei_spec(), then)


def test_an_answer_does_not_refresh_what_it_does_not_tell() -> None:
    """Waiting pairs that were told long ago are unknown beside a fresh answer, never idle and never fresh."""
    server = Failing()

    async def then(stage: HttpReranker) -> None:
        await asyncio.sleep(1)
        server.ends = httpx.Response(503)
        await asyncio.sleep(20)
        await score(stage, "q", ["a"])
        assert stage.congestion == Congestion(at=21.0, queue_ms=3)
        server.ends = TEI_TEXT
        await asyncio.sleep(30)
        assert stage.congestion is not None
        assert (stage.congestion.queue_ms, stage.congestion.waiting) == (None, 11.0)

    play(server, tei_spec(), then)


def _signals(log: io.BytesIO) -> list[tuple[str, str]]:
    """Return level and stage of each line about a load signal."""
    lines = [orjson.loads(line) for line in log.getvalue().splitlines()]
    return [(line["level"], line["stage"]) for line in lines if line["event"] == "load signal"]


def _pressed(told: Congestion | None, now: float) -> bool:
    return is_pressed(told, now, call_ms=10, queue_ms=None, most_texts=100)


@pytest.mark.parametrize(
    ("age", "pressed"), [(0, False), (15, False), (15.1, True), (150, True), (150.1, False), (9999, False)]
)
def test_a_signal_that_is_stale_presses_until_it_is_so_old_that_the_server_is_silent(age: float, pressed: bool) -> None:
    """Unknown counts as full for ten times the time after which it is unknown, and not for ever."""
    assert _pressed(Congestion(at=0.0, waiting=0), age) is pressed


def test_what_has_fallen_silent_is_left_out_beside_what_is_stale() -> None:
    """A header that was told 20 s ago still presses where the metrics went long ago, and the other way round."""
    old, new = Congestion(at=0.0, waiting=3), Congestion(at=180.0, queue_ms=2)
    assert joined(old, new, 200.0) == new
    assert joined(new, old, 200.0) == new
    assert _pressed(joined(old, new, 200.0), 200.0)
    silent = joined(old, new, 400.0)
    assert silent is not None
    assert silent.is_silent(400.0)
    assert not _pressed(silent, 400.0)


def test_a_server_that_stops_telling_for_good_is_written_down_once_and_when_it_tells_again() -> None:
    """After 150 s the log says that it counts as one that never told; what it told last is still shown, as silent."""
    server = Failing()

    async def then(stage: HttpReranker) -> None:
        clock = asyncio.get_running_loop().time
        with captured_log() as log:
            await asyncio.sleep(1)
            server.ends = httpx.ConnectError("m")
            await asyncio.sleep(148)
            assert _signals(log) == []
            await asyncio.sleep(60)
            assert _signals(log) == [("warning", "large")]
            assert stage.congestion == Congestion(at=0.0, waiting=11.0)
            assert stage.congestion.is_silent(clock())
            server.ends = TEI_TEXT
            await asyncio.sleep(60)
            assert _signals(log) == [("warning", "large"), ("info", "large")]
            assert not stage.congestion.is_silent(clock())

    play(server, tei_spec(), then)


TOLD = st.none() | st.builds(
    Congestion, st.floats(0, 100), st.none() | st.floats(0, 9), st.none() | st.floats(0, 9), st.none() | st.floats(0, 9)
)


@given(polled=TOLD, answered=TOLD, now=st.floats(100, 200))
def test_what_is_joined_is_fresh_only_where_all_of_it_is(
    polled: Congestion | None, answered: Congestion | None, now: float
) -> None:
    """No join makes a stale number look fresh."""
    whole = joined(polled, answered, now)
    told = [one for one in (polled, answered) if one is not None]
    if whole is None:
        assert not told
        return
    assert whole.is_stale(now) is all(one.is_stale(now) for one in told)
    if not whole.is_stale(now):
        fresh = [one for one in told if not one.is_stale(now)]
        assert whole.waiting in {one.waiting for one in fresh} | {None}


@given(body=st.binary(max_size=200) | st.text(max_size=200).map(str.encode), status=st.integers(100, 599))
def test_whatever_a_load_route_says_is_load_or_nothing(body: bytes, status: int) -> None:
    """No text makes the reading fail."""
    told = read_load(Reply(status, {}, body), 1.0)
    assert told is None or told.at == 1.0


@pytest.mark.parametrize(
    "body",
    [
        b'{"data": null}',
        b'{"data": [1, {"id": "m"}, {"stats": null}]}',
        b'{"data": [{"stats": {"queue_absolute": -1}}]}',
        b'{"data": [{"stats": {"queue_absolute": "7"}}]}',
        b"# TYPE te_queue_size gauge\nte_queue_size NaN\n",
        b"# TYPE te_queue_size gauge\nte_queue_size -3\n",
    ],
)
def test_a_queue_that_is_no_count_is_unknown(body: bytes) -> None:
    """Odd numbers are not taken for none waiting."""
    assert read_load(Reply(200, {}, body), 0.0) is None


@pytest.mark.parametrize(
    ("status", "failing"), [(200, False), (401, False), (404, False), (405, False), (501, False), (429, True), (500, True), (503, True)]
)  # fmt: skip
def test_a_failing_route_is_told_apart_from_an_absent_one(status: int, failing: bool) -> None:
    """Only the first may come back by itself."""
    assert is_failing(Reply(status, {}, b"")) is failing
