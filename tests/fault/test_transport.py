"""Faults of the wire, over real sockets and the real transport: each has one reason, and the next call works."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from cascade.errors import StageError, StageInvalidAnswer, StageTimeout, StageUnreachable
from cascade.guard.deadline import Deadline
from cascade.stages.http import HttpReranker
from cascade.stages.tei import TeiWire
from cascade.stages.upstream import Upstream, build_transport
from cascade.text import Text
from tests.stages.arrange import tei_spec

from .chains import shown_by
from .conftest import Run
from .servers import Behaviour, RawServer, answering, cutting, raw_server, resetting, saying, silent

CANARY = "canary-7f3a"
QUERY, DOCUMENTS = f"{CANARY} query", [f"{CANARY} one", "two"]
SCORES = (float(len(DOCUMENTS[0])), 3.0)
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
PATIENT_MS, SHORT_MS = 20_000.0, 150.0


@asynccontextmanager
async def stage_at(url: str, **fields: Any) -> AsyncIterator[HttpReranker]:
    """Give a stage with the transport that serves, not started: discovery has tests of its own.

    A machine that stands still for a second is no fault of its server: connections have as long as rounds.
    """
    spec = tei_spec(url=url, **{"connect_ms": int(PATIENT_MS), **fields})
    upstream = Upstream(spec.url, build_transport(spec), connect_ms=spec.connect_ms)
    stage = HttpReranker("large", spec, TeiWire(raw_scores=True), upstream, asyncio.get_running_loop().time)
    try:
        yield stage
    finally:
        await stage.aclose()


async def score(stage: HttpReranker, within_ms: float = PATIENT_MS) -> tuple[float | None, ...]:
    """Score the canaries."""
    deadline = Deadline.after_ms(within_ms, asyncio.get_running_loop().time)
    scored = await stage.score(Text(QUERY), [Text(text) for text in DOCUMENTS], deadline=deadline, call_id="call")
    return scored.scores


async def failure_of(stage: HttpReranker, within_ms: float = PATIENT_MS) -> StageError:
    """Return the error that a round ends with, after making sure that it says something and shows no text."""
    with pytest.raises(StageError) as caught:
        await score(stage, within_ms)
    assert str(caught.value).startswith(f"large: {caught.value.code} after ")
    assert CANARY not in shown_by(caught.value)
    return caught.value


def free_port() -> int:
    """Return a port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


FAULTS: list[tuple[str, Behaviour, type[StageError], str]] = [
    ("reset before the reply", resetting, StageUnreachable, "reset"),
    ("closed before the reply", saying(b""), StageUnreachable, "reset"),
    ("closed in the status line", saying(b"HTTP/1.1 2"), StageUnreachable, "reset"),
    ("closed in the headers", saying(OK + b"content-le"), StageUnreachable, "reset"),
    ("body shorter than announced", saying(OK + b"content-length: 900\r\n\r\n[{"), StageUnreachable, "cut"),
    ("chunks without an end", saying(OK + b"transfer-encoding: chunked\r\n\r\n2\r\n[{\r\n"), StageUnreachable, "cut"),
    ("reset in the body", cutting(OK + b"content-length: 900\r\n\r\n[{"), StageUnreachable, "cut"),
    ("not HTTP", saying(b"* OK IMAP4rev1 ready\r\n\r\n", echo=True), StageInvalidAnswer, "not_http"),
    ("binary", saying(b"\x00\x01\x16\x03\x01" * 40, echo=True), StageInvalidAnswer, "not_http"),
    ("the request, echoed", saying(b"", echo=True), StageInvalidAnswer, "not_http"),
    ("status without a number", saying(b"HTTP/1.1 OK\r\n\r\n", echo=True), StageInvalidAnswer, "not_http"),
    ("header without a colon", saying(b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n[]", echo=True), StageInvalidAnswer, "not_http"),
    ("header with a zero byte", saying(OK + b"x: a\x00b\r\n\r\n[]", echo=True), StageInvalidAnswer, "not_http"),
    ("header without end", saying(OK + b"x: " + b"a" * 100_000, echo=True), StageInvalidAnswer, "not_http"),
    ("reason that is no text", saying(b"HTTP/1.1 200 \xff\xfe\r\ncontent-length: 2\r\n\r\n[]", echo=True, keep=True),
     StageInvalidAnswer, "not_http"),
    ("two lengths", saying(OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n[]"), StageInvalidAnswer, "not_http"),
    ("length that is no number", saying(OK + b"content-length: x\r\n\r\n[]"), StageInvalidAnswer, "not_http"),
    ("no gzip", saying(OK + b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope", keep=True), StageInvalidAnswer, "bad_encoding"),
    ("plain text", saying(OK + b"content-length: 4\r\n\r\nnope", keep=True), StageInvalidAnswer, "not_json"),
    ("nothing", saying(OK + b"content-length: 0\r\n\r\n", keep=True), StageInvalidAnswer, "not_json"),
    ("the request as the body", saying(OK + b"connection: close\r\n\r\n", echo=True), StageInvalidAnswer, "wrong_shape"),
    ("too large", saying(OK + b"content-length: 300000\r\n\r\n" + b"[" * 300_000), StageInvalidAnswer, "answer_too_large"),
    ("endless", saying(OK + b"connection: close\r\n\r\n" + b" " * 10**6), StageInvalidAnswer, "answer_too_large"),
    ("bomb", saying(OK + b"content-encoding: gzip\r\nconnection: close\r\n\r\n" + gzip.compress(b" " * 10**7)),
     StageInvalidAnswer, "answer_too_large"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "kind", "code"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a10_a_broken_answer_has_one_reason_and_the_next_call_works(
    run: Run, fault: Behaviour, kind: type[StageError], code: str
) -> None:
    """Whatever bytes come or do not come, the round ends at once by its cause, and the stage is usable afterwards."""

    async def play() -> None:
        async with raw_server(fault) as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            error = await failure_of(stage)
            assert (type(error), error.code) == (kind, code)
            assert await score(stage) == SCORES

    run(play())


@pytest.mark.parametrize("size", [b"zz", b"-1", b"\xff"])
def test_a10_a_bad_size_of_a_chunk_is_no_answer(run: Run, size: bytes) -> None:
    """Chunked encoding that cannot be read ends the round, and the next call works."""

    async def play() -> None:
        fault = saying(OK + b"transfer-encoding: chunked\r\n\r\n" + size + b"\r\n[{\r\n", echo=True)
        async with raw_server(fault) as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            error = await failure_of(stage)
            assert (type(error), error.code) == (StageInvalidAnswer, "not_http")
            assert await score(stage) == SCORES

    run(play())


def test_a10_a_refused_connection_is_unreachable_and_a_server_that_starts_is_reached(run: Run) -> None:
    """Nobody listens, then somebody does: the stage needs no restart."""

    async def play() -> None:
        port = free_port()
        async with stage_at(f"http://127.0.0.1:{port}") as stage:
            error = await failure_of(stage)
            assert (type(error), error.code) == (StageUnreachable, "refused")
            async with raw_server(port=port):
                assert await score(stage) == SCORES

    run(play())


def test_a10_a_name_that_does_not_exist_is_unreachable(run: Run) -> None:
    """DNS failure is told apart from a server that is down."""

    async def play() -> None:
        async with stage_at("http://reranker.invalid") as stage:
            error = await failure_of(stage)
            assert (type(error), error.code) == (StageUnreachable, "dns")

    run(play())


def test_a_connection_that_is_not_accepted_ends_at_its_own_limit(run: Run) -> None:
    """A host that drops packets costs ``connect_ms``, not the whole budget."""

    async def play() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            waiting = [socket.socket() for _ in range(3)]
            try:
                for one in waiting:
                    one.setblocking(False)
                    one.connect_ex(full.getsockname())
                async with stage_at(f"http://127.0.0.1:{full.getsockname()[1]}", connect_ms=100) as stage:
                    error = await failure_of(stage)
                    assert (type(error), error.code) == (StageUnreachable, "connect_timeout")
            finally:
                for one in waiting:
                    one.close()

    run(play())


def certificate(authority: trustme.CA, name: str = "127.0.0.1") -> ssl.SSLContext:
    """Return a server's TLS context with a certificate of an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.mark.parametrize("bundle", ["none", "another"])
def test_a10_a_certificate_that_is_not_trusted_is_a_tls_failure(run: Run, tmp_path: Path, bundle: str) -> None:
    """A server signed by an authority that the stage does not name is never sent text."""
    fields: dict[str, Any] = {}
    if bundle == "another":
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        fields["ca_bundle"] = str(tmp_path / "ca.pem")

    async def play() -> None:
        async with (
            raw_server(tls=certificate(trustme.CA())) as server,
            stage_at(f"https://127.0.0.1:{server.port}", **fields) as stage,
        ):
            error = await failure_of(stage)
            assert (type(error), error.code) == (StageUnreachable, "tls")
            assert server.requests == []

    run(play())


def test_a_certificate_for_another_name_is_a_tls_failure(run: Run, tmp_path: Path) -> None:
    """The authority alone is not enough: the name must be the server's."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    async def play() -> None:
        async with (
            raw_server(tls=certificate(authority, "elsewhere.test")) as server,
            stage_at(f"https://127.0.0.1:{server.port}", ca_bundle=str(tmp_path / "ca.pem")) as stage,
        ):
            error = await failure_of(stage)
            assert (type(error), error.code) == (StageUnreachable, "tls")
            assert server.requests == []

    run(play())


def test_a_certificate_of_the_authority_in_the_bundle_is_trusted(run: Run, tmp_path: Path) -> None:
    """A private authority needs its file in ``ca_bundle`` and nothing else."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    async def play() -> None:
        async with (
            raw_server(tls=certificate(authority)) as server,
            stage_at(f"https://127.0.0.1:{server.port}", ca_bundle=str(tmp_path / "ca.pem")) as stage,
        ):
            assert await score(stage) == SCORES

    run(play())


def test_a10_plain_http_where_tls_is_expected_is_a_tls_failure(run: Run) -> None:
    """A wrong scheme in the release is told as what it is."""

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def play() -> None:
        server = await asyncio.start_server(hello, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with stage_at(f"https://127.0.0.1:{port}") as stage:
            error = await failure_of(stage)
            assert (type(error), error.code) == (StageUnreachable, "tls")
        server.close()
        await server.wait_closed()

    run(play())


def test_22_a_server_that_accepts_and_never_answers_ends_at_the_deadline(run: Run) -> None:
    """The deadline holds, the server sees the connection close, and the next call goes through."""

    async def play() -> None:
        async with raw_server(silent) as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            began = asyncio.get_running_loop().time()
            error = await failure_of(stage, SHORT_MS)
            assert (type(error), error.code) == (StageTimeout, "deadline")
            assert asyncio.get_running_loop().time() - began < 5
            async with asyncio.timeout(5):
                await server.closed.wait()
            assert await score(stage) == SCORES

    run(play())


def test_22_a_server_that_trickles_ends_at_the_deadline(run: Run) -> None:
    """Bytes that keep coming do not keep a round alive."""

    async def trickle(server: RawServer, connection: Any) -> None:
        connection.writer.write(OK + b"content-length: 90000\r\n\r\n")
        for _ in range(3_000):
            connection.writer.write(b" ")
            await connection.writer.drain()
            await asyncio.sleep(0.01)

    async def play() -> None:
        async with raw_server(trickle) as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            error = await failure_of(stage, SHORT_MS)
            assert (type(error), error.code) == (StageTimeout, "deadline")
            assert await score(stage) == SCORES

    run(play())


def test_c1_cancelling_a_round_closes_its_connection_at_the_server(run: Run) -> None:
    """The server learns that nobody waits any more; the one connection allowed is free again."""

    async def play() -> None:
        async with (
            raw_server(silent) as server,
            stage_at(f"http://127.0.0.1:{server.port}", max_in_flight_texts=2) as stage,
        ):
            round_ = asyncio.create_task(score(stage))
            async with asyncio.timeout(5):
                await server.seen(1)
            round_.cancel()
            with pytest.raises(asyncio.CancelledError):
                await round_
            async with asyncio.timeout(5):
                await server.closed.wait()
            assert await score(stage) == SCORES

    run(play())


def test_c1_many_cancelled_rounds_leak_no_connection(run: Run) -> None:
    """After as many cancellations as there are connections, and more, a round still gets one."""

    async def play() -> None:
        async with (
            raw_server(*[silent] * 6) as server,
            stage_at(f"http://127.0.0.1:{server.port}", max_in_flight_texts=4) as stage,
        ):
            for _ in range(3):
                rounds = [asyncio.create_task(score(stage)) for _ in range(2)]
                seen = len(server.requests)
                async with asyncio.timeout(5):
                    await server.seen(seen + 2)
                for round_ in rounds:
                    round_.cancel()
                await asyncio.gather(*rounds, return_exceptions=True)
            assert await score(stage) == SCORES

    run(play())


def test_a_connection_that_the_server_closed_while_idle_is_replaced(run: Run) -> None:
    """A kept connection that went away between rounds costs no round."""

    async def answer_and_close(server: RawServer, connection: Any) -> None:
        await answering(server, connection)
        await connection.writer.drain()
        connection.writer.close()
        server.closed.set()

    async def play() -> None:
        async with raw_server(answer_and_close) as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            assert await score(stage) == SCORES
            await server.closed.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            assert await score(stage) == SCORES
            assert server.connections == 2

    run(play())


def test_a_connection_is_kept_between_rounds(run: Run) -> None:
    """Rounds one after the other share a connection."""

    async def play() -> None:
        async with raw_server() as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            for _ in range(5):
                assert await score(stage) == SCORES
            assert server.connections == 1

    run(play())


def test_an_answer_that_was_compressed_on_the_way_is_read(run: Run) -> None:
    """A proxy before the server may compress, as it is told it may: the scores are the same."""

    async def play() -> None:
        body = gzip.compress(b'[{"index":0,"score":1},{"index":1,"score":2}]')
        packed = saying(OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body), keep=True)
        async with raw_server(packed) as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            assert await score(stage) == (1.0, 2.0)
            assert b"accept-encoding: gzip, deflate\r\n" in server.heads[0].lower()
            assert await score(stage) == SCORES
            assert server.connections == 1

    run(play())


def test_cookies_of_a_server_are_not_sent_back(run: Run) -> None:
    """No state of a load balancer or gateway sticks to the sidecar."""

    async def play() -> None:
        body = b'[{"index":0,"score":1},{"index":1,"score":2}]'
        cookie = saying(
            OK + b"set-cookie: route=a; path=/\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body), keep=True
        )
        async with (
            raw_server(cookie, family="localhost") as server,
            stage_at(f"http://localhost:{server.port}") as stage,
        ):
            await score(stage)
            await score(stage)
            assert b"cookie" not in server.heads[1].lower()

    run(play())


def test_proxies_and_netrc_of_the_environment_are_not_used(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where text goes, and with which credentials, only the release decides."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password sekret\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def play() -> None:
        async with raw_server() as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            assert await score(stage) == SCORES
            assert b"authorization" not in server.heads[0].lower()

    run(play())


@pytest.mark.parametrize("fault", [fault[1] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_g1_no_library_logs_text_at_any_level(run: Run, caplog: pytest.LogCaptureFixture, fault: Behaviour) -> None:
    """With every logger at DEBUG, no line of any library holds query or document, nor what a server echoed."""
    caplog.set_level(logging.DEBUG)

    async def play() -> None:
        async with raw_server(fault) as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            await failure_of(stage)

    run(play())
    assert CANARY not in caplog.text
    assert not any(CANARY in repr(record.args) for record in caplog.records)


def test_a9_every_fault_says_how_long_it_took_and_what_it_had(run: Run) -> None:
    """Stage, code, time spent and budget are in the message and in fields."""

    async def play() -> None:
        async with raw_server(resetting) as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            error = await failure_of(stage, 5_000)
            assert (error.stage, error.code) == ("large", "reset")
            assert 0 <= error.elapsed_ms <= error.budget_ms
            assert error.budget_ms == pytest.approx(5_000, rel=0.01)

    run(play())


def test_1_bodies_of_nearly_a_megabyte_are_sent_whole(run: Run) -> None:
    """The largest calls that are planned go through the transport that serves."""
    documents = [f"{number} " + "w" * (199_000 + number) for number in range(20)]

    async def play() -> None:
        async with (
            raw_server() as server,
            stage_at(f"http://127.0.0.1:{server.port}", max_length=16_384, chunk_tokens=10**7) as stage,
        ):
            deadline = Deadline.after_ms(PATIENT_MS, asyncio.get_running_loop().time)
            texts = [Text(text) for text in documents]
            scored = await stage.score(Text("q"), texts, deadline=deadline, call_id="call")
            assert all(score is not None for score in scored.scores)
            assert 700_000 < max(map(len, server.requests)) <= 1_000_000

    run(play())


def test_a3_a_reason_that_is_no_text_leaks_no_connection(run: Run) -> None:
    """The response is closed, not left to the collector, and so is its connection: after them all one is free."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        left: list[str] = []
        loop.set_debug(True)  # then aiohttp tells of a response that nobody closed
        loop.set_exception_handler(lambda _, context: left.append(str(context["message"])))
        odd = saying(b"HTTP/1.1 200 \xff\xfe\r\ncontent-length: 900\r\n\r\n[", keep=True)
        async with (
            raw_server(*[odd] * 3) as server,
            stage_at(f"http://127.0.0.1:{server.port}", max_in_flight_texts=2) as stage,
        ):
            for _ in range(3):
                assert (await failure_of(stage)).code == "not_http"
            assert await score(stage) == SCORES
            assert server.connections == 4
        assert left == []

    run(play())


def test_a3_discovery_goes_on_after_a_reason_that_is_no_text(run: Run) -> None:
    """The limits of a server are learned once it speaks HTTP, however odd its first answer was."""

    async def play() -> None:
        odd = saying(b"HTTP/1.1 200 \xff\xfe\r\ncontent-length: 2\r\n\r\n{}", keep=True)
        info = saying(OK + b'content-length: 23\r\n\r\n{"max_input_length":64}', keep=True)
        gone = saying(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", keep=True)
        async with raw_server(odd, info, gone) as server, stage_at(f"http://127.0.0.1:{server.port}") as stage:
            await stage.start()
            async with asyncio.timeout(10):
                await server.seen(3)
            assert stage.observed is not None
            assert stage.observed.max_length == 64

    run(play())
