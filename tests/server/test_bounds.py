"""What a client may cost on a real socket: heads, trailers, connections, answers nobody reads, bodies that are bombs."""

from __future__ import annotations

import contextlib
import gzip
import socket
from collections.abc import Iterator

import httpx
import orjson
import pytest

from cascade.server.connections import ConnectionBounds
from tests.server.listeners import Public, ended, public_listener, until

_HEAD = b"POST /v1/rerank HTTP/1.1\r\nhost: h\r\n"
_CHUNKED = _HEAD + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
_BODY = orjson.dumps({"query": "b", "documents": ["a", "b"]})
_LIVE = b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n"


@pytest.fixture(scope="module")
def public() -> Iterator[Public]:
    """Give a listener with the bounds that it has."""
    with public_listener() as listener:
        yield listener


def _poured(public: Public, begun: bytes, more: bytes, most: int) -> tuple[int, bytes]:
    """Send a beginning, and then the same again and again; return how much went out, and what came back."""
    sent = 0
    with public.connect() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(begun)
            while sent < most:
                connection.sendall(more)
                sent += len(more)
        with contextlib.suppress(ConnectionError):
            return sent, ended(connection)
    return sent, b""


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        pytest.param(b"GET /", b"a" * 4096, id="request line"),
        pytest.param(_HEAD + b"x: ", b"a" * 4096, id="header"),
        pytest.param(_HEAD, b"x: 1\r\n" * 512, id="headers"),
        pytest.param(_CHUNKED + b"1;", b"a" * 4096, id="chunk extension"),
        pytest.param(_CHUNKED + b"0\r\nx: ", b"a" * 4096, id="trailer"),
        pytest.param(_CHUNKED + b"0\r\n", b"x: 1\r\n" * 512, id="trailers"),
    ],
)
def test_what_is_no_body_and_does_not_end_is_cut_off(public: Public, begun: bytes, more: bytes) -> None:
    """Nothing of it is kept for longer than the bound: of 100 MB a few are taken off the wire, and the listener lives."""
    sent, _ = _poured(public, begun, more, 100_000_000)
    assert sent < 20_000_000  # what the kernel holds of both ends
    with public.connect() as connection:
        connection.sendall(_LIVE)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("fields", "status"), [(120, b"200"), (140, b"400")], ids=["as many as proxies add", "too many"]
)
def test_header_fields_are_bounded_in_number(public: Public, fields: int, status: bytes) -> None:
    """More than 128 fields are no request of a client."""
    head = b"GET /livez HTTP/1.1\r\nhost: h\r\nconnection: close\r\n" + b"".join(
        b"x-%d: 1\r\n" % n for n in range(fields)
    )
    with public.connect() as connection:
        connection.sendall(head + b"\r\n")
        assert ended(connection).startswith(b"HTTP/1.1 " + status)


def test_a_head_in_one_piece_has_the_same_bound(public: Public) -> None:
    """A header of 100,000 bytes is refused however it arrives, one of 60,000 is read."""
    for size, status in ((60_000, b"200"), (100_000, b"400")):
        with public.connect() as connection:
            connection.sendall(
                b"GET /livez HTTP/1.1\r\nhost: h\r\nconnection: close\r\nx: " + b"a" * size + b"\r\n\r\n"
            )
            assert ended(connection).startswith(b"HTTP/1.1 " + status)


def test_pipelined_requests_are_bounded(public: Public) -> None:
    """Thousands of requests in one piece are not queued one by one."""
    sent, came = _poured(public, b"", _LIVE * 5000, 10 * len(_LIVE) * 5000)
    assert came.count(b'{"live":true}') < 5000
    assert sent > 0


def test_connections_are_bounded_in_all() -> None:
    """One too many gets 503 and is closed; when another ends, the next is served."""
    with public_listener(ConnectionBounds(most=2)) as public, contextlib.ExitStack() as held:
        first, second = (held.enter_context(public.connect()) for _ in range(2))
        until(lambda: len(public.connections) == 2)
        with public.connect() as third:
            assert ended(third).startswith(b"HTTP/1.1 503 ")
        first.close()
        until(lambda: len(public.connections) == 1)
        with public.connect() as fourth:
            fourth.sendall(_LIVE)
            assert fourth.recv(100).startswith(b"HTTP/1.1 200 ")
        second.close()
        until(lambda: len(public.connections) == 0)
        assert public.refused == ["all"]


def test_connections_of_one_client_are_bounded() -> None:
    """Those of another address are not counted with them."""
    with public_listener(ConnectionBounds(most_of_a_client=1)) as public, public.connect():
        until(lambda: len(public.connections) == 1)
        with public.connect() as second:
            assert ended(second).startswith(b"HTTP/1.1 503 ")
        other = socket.create_connection(("127.0.0.1", public.port), 20, source_address=("127.0.0.2", 0))
        with other:
            other.sendall(_LIVE)
            assert other.recv(100).startswith(b"HTTP/1.1 200 ")
        assert public.refused == ["client"]


def test_a_connection_that_says_nothing_is_closed() -> None:
    """A head has its time, whether nothing comes or one byte after another."""
    with public_listener(ConnectionBounds(head_seconds=0.3)) as public:
        with public.connect() as silent, public.connect() as trickling:
            trickling.sendall(b"GET /")
            assert ended(silent) == ended(trickling) == b""
        until(lambda: len(public.connections) == 0)


def test_an_answer_that_nobody_reads_is_let_go_of() -> None:
    """Of a large answer to a client that does not read, nothing stays once it has had its time."""
    documents = ["x" * 100_000 for _ in range(60)]
    body = orjson.dumps({"query": "x", "documents": documents, "return_documents": True})
    with public_listener(ConnectionBounds(unread_seconds=0.3)) as public:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with connection:
            connection.settimeout(20)
            connection.connect(("127.0.0.1", public.port))
            head = _HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            connection.sendall(head + body)
            until(lambda: len(public.connections) == 0)


def test_a_compressed_body_is_refused_before_it_is_decompressed(public: Public) -> None:
    """A bomb is 415 by its head: nothing here decompresses what callers send."""
    bomb = gzip.compress(b"[" * 50_000_000)
    response = httpx.post(
        f"http://127.0.0.1:{public.port}/v1/rerank", content=bomb, headers={"content-encoding": "gzip"}, timeout=20
    )
    assert response.status_code == 415


@pytest.mark.parametrize("opened", [b"[", b'{"a":', b'{"query":"q","documents":[' + b"["])
def test_deep_nesting_is_no_json(public: Public, opened: bytes) -> None:
    """A million brackets are refused by a parser with a bound of its own, not by the end of a stack."""
    response = httpx.post(f"http://127.0.0.1:{public.port}/v1/rerank", content=opened * 1_000_000, timeout=20)
    assert response.status_code in (400, 413)
    with public.connect() as connection:
        connection.sendall(_LIVE)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
