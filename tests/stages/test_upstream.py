"""Clients and tokens: what is read before the first call."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cascade import __version__
from cascade.errors import ConfigError
from cascade.policy.release import Auth
from cascade.stages.upstream import Lost, Upstream, build_transport, read_token

from .arrange import URL, tei_spec


def test_no_auth_means_no_token() -> None:
    """A stage without auth sends no credentials."""
    assert read_token(None, {}) is None


def test_a_token_is_read_from_the_environment_without_white_space() -> None:
    """Secrets often end in a line break."""
    assert read_token(Auth(env="KEY"), {"KEY": " sekret\n"}) == "sekret"


def test_a_token_is_read_from_a_file(tmp_path: Path) -> None:
    """A mounted secret is a file."""
    (tmp_path / "key").write_text("sekret\n", encoding="utf-8")
    assert read_token(Auth(file=str(tmp_path / "key")), {}) == "sekret"


@pytest.mark.parametrize("value", ["", "  \n", "se\nkret", "schl\u00fcssel", "a\x00b"])
def test_a_token_that_no_header_can_hold_is_refused_without_showing_it(value: str) -> None:
    """Empty, broken over lines, or not ASCII: said at start, by the variable's name alone."""
    with pytest.raises(ConfigError, match=r"^auth: the environment variable KEY holds no usable token$"):
        read_token(Auth(env="KEY"), {"KEY": value})


def test_a_missing_variable_is_a_configuration_error() -> None:
    """A stage that needs a token does not start without it."""
    with pytest.raises(ConfigError, match="the environment variable KEY holds no usable token"):
        read_token(Auth(env="KEY"), {})


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_token_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path, content: bytes | None) -> None:
    """Missing or not text: the file is named and its content is not."""
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"auth: the file .*key cannot be read: (FileNotFound|UnicodeDecode)Error"):
        read_token(Auth(file=str(path)), {})


@pytest.mark.parametrize("content", [None, b"", b"not a certificate"])
def test_a_ca_bundle_that_cannot_be_used_is_a_configuration_error(tmp_path: Path, content: bytes | None) -> None:
    """A wrong path or a file without certificates is said at start, not at the first call."""
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"ca_bundle .*ca.pem: cannot be used: "):
        build_transport(tei_spec(url="https://reranker.test", ca_bundle=str(path)))


async def test_b14_a_request_bounds_connecting_and_leaves_the_rest_to_the_deadline() -> None:
    """Waits for connections end by configuration; no other timer competes with the request's deadline."""
    seen: list[object] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.extensions["timeout"])
        return httpx.Response(200)

    upstream = Upstream(URL, httpx.MockTransport(answer), connect_ms=250)
    await upstream.get("/info", request_id="r")
    assert seen == [{"connect": 0.25, "read": None, "write": None, "pool": None}]
    await upstream.aclose()


async def test_a_request_says_what_it_is_and_what_it_takes() -> None:
    """Headers are the sidecar's own, whatever the transport would add: no library and no version of Python is told."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    upstream = Upstream(URL, httpx.MockTransport(answer), "sekret", connect_ms=1000)
    await upstream.post("/rerank", b"{}", request_id="r-1", texts=1)
    assert seen[0].content == b"{}"
    assert dict(seen[0].headers) == {
        "accept": "application/json",
        "accept-encoding": "gzip, deflate",
        "content-type": "application/json",
        "user-agent": f"cascade/{__version__}",
        "x-request-id": "r-1",
        "authorization": "Bearer sekret",
    }
    await upstream.aclose()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx.ConnectTimeout("m"), "connect_timeout"),
        (httpx.PoolTimeout("m"), "connect_timeout"),
        (httpx.ConnectError("m"), "refused"),
        (httpx.ReadError("m"), "cut"),
        (httpx.RemoteProtocolError("m"), "not_http"),
        (httpx.DecodingError("m"), "bad_encoding"),
        (httpx.UnsupportedProtocol("m"), "lost"),
        (httpx.InvalidURL("m"), "lost"),
        (ConnectionResetError("m"), "reset"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "m"), "not_http"),
        (ValueError("m"), "not_http"),
    ],
)
async def test_a10_errors_of_other_transports_are_named_by_their_class(error: Exception, code: str) -> None:
    """A transport that chains no cause, as a test's own does, still gives each loss its name."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise error

    upstream = Upstream(URL, httpx.MockTransport(fail), connect_ms=1000)
    with pytest.raises(Lost) as caught:
        await upstream.get("/info", request_id="r")
    assert caught.value.code == str(caught.value) == code
    assert caught.value.__context__ is None
    await upstream.aclose()


async def test_an_answer_may_be_as_large_as_scores_and_an_echo_need_and_no_larger() -> None:
    """A reply is read up to a bound that grows with what was sent, since some servers echo documents."""
    sizes = iter([65_536 + 2 * 4096 + 3 * 1000, 65_536 + 2 * 4096 + 3 * 1000 + 1])

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b"x" * next(sizes))

    upstream = Upstream(URL, httpx.MockTransport(answer), connect_ms=1000)
    reply = await upstream.post("/rerank", b"b" * 1000, request_id="r", texts=2)
    assert len(reply.body) == 65_536 + 2 * 4096 + 3 * 1000
    with pytest.raises(Lost, match="answer_too_large"):
        await upstream.post("/rerank", b"b" * 1000, request_id="r", texts=2)
    await upstream.aclose()


async def test_a_redirect_is_not_followed() -> None:
    """A server cannot send texts or credentials elsewhere."""
    seen: list[str] = []

    def redirect(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(307, headers={"location": "http://elsewhere.test/rerank"})

    upstream = Upstream(URL, httpx.MockTransport(redirect), "sekret", connect_ms=1000)
    reply = await upstream.post("/rerank", b"{}", request_id="r", texts=1)
    assert reply.status == 307
    assert seen == [f"{URL}/rerank"]
    await upstream.aclose()
