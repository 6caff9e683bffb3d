"""The desired release at an address, whose server may do anything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cascade.rollout.signing import keys_in
from cascade.rollout.sources.desired import Desired
from cascade.rollout.sources.fetching import bundle_transport
from cascade.rollout.sources.folder import FolderSource
from cascade.rollout.sources.http import HttpSource
from cascade.rollout.sources.looking import Looking
from cascade.rollout.sources.opening import release_source
from cascade.rollout.store import ReleaseStore
from cascade.rollout.tar import LARGEST_TAR
from cascade.testing.clock import run_virtual

from .bundles import KEY, OTHER_KEY, key_file, looking, packed

_URL: Final = "http://bundles.test/release.tar?sig=kingfisher"
_SHOWN: Final = "release http://bundles.test/release.tar?…: "
_TAR: Final = {"content-type": "application/x-tar"}

Answer = Callable[[httpx.Request], httpx.Response]


class _Body(httpx.AsyncByteStream):
    """A body in parts, a while apart, that may fail at its end; without parts it never ends."""

    def __init__(
        self, *parts: bytes, pause_s: float = 0.0, error: Exception | None = None, endless: bytes = b""
    ) -> None:
        self._parts, self._pause_s, self._error, self._endless = parts, pause_s, error, endless
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            await asyncio.sleep(self._pause_s)
            self.sent += len(part)
            yield part
        while self._endless:
            await asyncio.sleep(self._pause_s)
            self.sent += len(self._endless)
            yield self._endless
        if self._error is not None:
            raise self._error


class _Server(httpx.AsyncBaseTransport):
    """Answer each request with the next answer, the last one again and again; count what is not closed."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = [*answers]
        self.seen: list[httpx.Request] = []
        self.open = 0

    def __call__(self) -> httpx.AsyncBaseTransport:
        self.open += 1
        return self

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(request)

    async def aclose(self) -> None:
        self.open -= 1


def _says(body: bytes | httpx.AsyncByteStream = b"", status: int = 200, **headers: str) -> Answer:
    """Return an answer; header names are written with underscores."""
    named = _TAR | {name.replace("_", "-"): value for name, value in headers.items()}
    stream = httpx.ByteStream(body) if isinstance(body, bytes) else body
    return lambda request: httpx.Response(status, headers=named, stream=stream)


def _tagged(body: bytes, etag: str) -> Answer:
    """Return what a right server says: 304 to who has this tag."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers.get("if-none-match") == etag:
            return httpx.Response(304, stream=httpx.ByteStream(b""))
        return _says(body, etag=etag)(request)

    return answer


def _source(folder: Path, server: _Server, *, keys: Path | None = None, **settings: Any) -> HttpSource:
    store = ReleaseStore(folder / "store", keys_in(keys))
    return HttpSource(_URL, store, looking(), transport=server, **settings)


def _looks(source: HttpSource, many: int) -> list[Desired]:
    async def run() -> list[Desired]:
        return [await source.now() for _ in range(many)]

    return run_virtual(run())


def test_a_bundle_is_fetched_once_and_asked_for_by_its_etag(tmp_path: Path) -> None:
    """The second look has 304; another release under another tag is the next desired one."""
    (one, first), (other, second) = packed(tmp_path), packed(tmp_path, release="r2", depth=20)
    server = _Server(_tagged(one, '"1"'), _tagged(one, '"1"'), _tagged(other, '"2"'))
    found = _looks(_source(tmp_path, server), 3)
    assert [(each.digest, each.fault) for each in found] == [(first, None), (first, None), (second, None)]
    assert found[0] == found[1]
    assert (found[2].name, found[2].asked_at, found[2].downloaded_at) == ("r2", "4", "5")
    assert [request.headers.get("if-none-match") for request in server.seen] == [None, '"1"', '"1"']
    assert {request.headers["accept-encoding"] for request in server.seen} == {"identity"}
    assert server.open == 0


def test_the_etag_is_kept_over_restarts(tmp_path: Path) -> None:
    """A start asks nothing again that it has, and asks whole where its bundle was lost or damaged."""
    data, digest = packed(tmp_path)
    server = _Server(_tagged(data, '"1"'))
    for asked in (None, '"1"', '"1"'):
        (found,) = _looks(_source(tmp_path, server), 1)
        assert (found.digest, found.fault) == (digest, None)
        assert server.seen[-1].headers.get("if-none-match") == asked
    assert found.path_in_store is not None
    found.path_in_store.write_bytes(data[:100])
    (found,) = _looks(_source(tmp_path, server), 1)
    assert (found.digest, found.fault) == (digest, None)
    assert server.seen[-1].headers.get("if-none-match") is None


def test_what_is_kept_of_an_address_does_not_hold_it(tmp_path: Path) -> None:
    """An address may be signed; and what is known of one is not known of another."""
    data, _ = packed(tmp_path)
    server = _Server(_tagged(data, '"1"'))
    _looks(_source(tmp_path, server), 1)
    assert not any(b"kingfisher" in path.read_bytes() for path in (tmp_path / "store").iterdir())
    other = HttpSource(_URL + "2", ReleaseStore(tmp_path / "store"), looking(), transport=server)
    _looks(other, 1)
    assert server.seen[-1].headers.get("if-none-match") is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"x": 1}', b"\xff" * 100_000, None])
def test_damaged_notes_of_tags_are_none(tmp_path: Path, content: bytes | None) -> None:
    """It is asked whole again; also where what stands for the address (None) is no digest."""
    data, digest = packed(tmp_path)
    server = _Server(_tagged(data, '"1"'))
    _looks(_source(tmp_path, server), 1)
    tags = tmp_path / "store" / "tags.json"
    tags.write_bytes(tags.read_bytes().replace(b"sha256:", b"../") if content is None else content)
    (found,) = _looks(_source(tmp_path, server), 1)
    assert (found.digest, server.seen[-1].headers.get("if-none-match")) == (digest, None)


def test_an_etag_that_changes_with_equal_content_changes_nothing(tmp_path: Path) -> None:
    """The release is what it is by its digest; nobody is told."""
    data, digest = packed(tmp_path)
    server = _Server(*(_tagged(data, f'"{number}"') for number in range(3)))
    found = _looks(_source(tmp_path, server), 3)
    assert {each.digest for each in found} == {digest}
    assert found[0] == found[1] == found[2]


def test_a_server_without_etags_is_asked_whole_each_time(tmp_path: Path) -> None:
    """A change is found all the same."""
    (one, first), (other, second) = packed(tmp_path), packed(tmp_path, depth=20)
    server = _Server(_says(one), _says(one), _says(other))
    assert [each.digest for each in _looks(_source(tmp_path, server), 3)] == [first, first, second]


def test_content_that_changes_under_one_etag_is_refused(tmp_path: Path) -> None:
    """The last good stands until the tag is another; also after a restart."""
    (one, first), (other, second) = packed(tmp_path), packed(tmp_path, depth=20)
    server = _Server(_says(one, etag='"1"'), _says(other, etag='"1"'))
    told = f"{_SHOWN}the release is another under the same ETag; give what changes another ETag"
    before, after = _looks(_source(tmp_path, server), 2)
    assert (before.digest, before.fault) == (first, None)
    assert (after.digest, after.fault) == (first, told)
    (restarted,) = _looks(_source(tmp_path, server), 1)
    assert (restarted.digest, restarted.fault) == (None, told)
    server.answers = [_says(other, etag='"2"')]
    (mended,) = _looks(_source(tmp_path, server), 1)
    assert (mended.digest, mended.fault) == (second, None)


def _reset(*_: object) -> httpx.ReadError:
    error = httpx.ReadError("kingfisher")
    error.__cause__ = ConnectionResetError("kingfisher")
    return error


_HALF: Final = 5000
_IN_THE_FIRST: Final = 600
"""A cut within the first file of a tar, behind its head: further on it may fall between two, which is told otherwise."""
_REFUSED: Final[dict[str, tuple[Callable[[bytes], Answer | Exception], str]]] = {
    "cut off": (
        lambda data: _says(_Body(data[:_HALF], error=_reset()), content_length=str(len(data))),
        f"the answer was cut off after {_HALF} bytes of ",
    ),
    "too short": (lambda data: _says(_Body(data[:_HALF]), content_length=str(len(data))), "the answer ended after 5000 bytes of"),
    "too short, untold": (lambda data: _says(_Body(data[:_IN_THE_FIRST])), "not a tar, or damaged"),
    "too long": (lambda data: _says(_Body(data + b"x"), content_length=str(len(data))), "the answer ended after"),
    "404": (lambda data: _says(b"kingfisher", 404), "the answer is 404, and 200 is wanted"),
    "500": (lambda data: _says(b"kingfisher", 500), "the answer is 500, and 200 is wanted"),
    "206": (lambda data: _says(data, 206), "the answer is 206, and 200 is wanted"),
    "401": (lambda data: _says(b"", 401), "the answer is 401: release_auth_file names the file of a token"),
    "403": (lambda data: _says(b"", 403), "the answer is 403: release_auth_file"),
    "301": (lambda data: _says(b"", 301, location="http://kingfisher.test/"), "the answer is 301, and redirects are not followed"),
    "307": (lambda data: _says(b"", 307, location="/kingfisher"), "the answer is 307, and redirects are not followed"),
    "304 of nothing": (lambda data: _says(b"", 304), "the answer is 304, and nothing was asked of an ETag"),
    "says it is huge": (
        lambda data: _says(_Body(endless=b"x"), content_length=str(10**12)),
        "the answer says that it has 1000000000000 bytes, more than",
    ),
    "is huge": (lambda data: _says(_Body(endless=b"x" * 2**22)), f"the answer has more than {LARGEST_TAR} bytes"),
    "drips": (lambda data: _says(_Body(endless=b"x", pause_s=1.0)), "the answer was not whole after 60 seconds"),
    "a page": (lambda data: _says(b"<html>", content_type="text/html"), "the answer's content type is no tar's"),
    "a release in YAML": (lambda data: _says(b"release: r1", content_type="application/yaml"), "the answer's content type is no tar's"),
    "compressed": (lambda data: _says(data, content_encoding="gzip"), "the answer is compressed"),
    "a compressed file": (lambda data: _says(b"\x1f\x8b" + data), "not a tar, or damaged; it must not be compressed"),
    "empty": (lambda data: _says(b""), "not a tar, or damaged"),
    "no connection": (lambda data: httpx.ConnectError("kingfisher"), "no answer: ConnectError"),
    "lost": (lambda data: _reset(), "no answer: ConnectionResetError"),
    "no http": (lambda data: ValueError("kingfisher"), "no answer: ValueError"),
    "too late at once": (lambda data: TimeoutError("kingfisher"), "no answer: TimeoutError"),
}  # fmt: skip


@pytest.mark.parametrize("name", _REFUSED)
def test_what_a_server_must_not_do_is_refused_and_the_last_good_stands(tmp_path: Path, name: str) -> None:
    """The reason is told, and nothing that the server wrote; the next poll is the retry."""
    make, told = _REFUSED[name]
    (one, first), (other, second) = packed(tmp_path), packed(tmp_path, depth=20)
    server = _Server(_says(one), make(other), _says(other, etag='"2"'))
    source = _source(tmp_path, server)
    before, refused, after = _looks(source, 3)
    assert (before.digest, before.fault) == (first, None)
    assert refused.digest == first
    assert refused.path_in_store == before.path_in_store
    assert str(refused.fault).startswith(f"{_SHOWN}{told}")
    assert "kingfisher" not in str(refused.fault)
    assert (after.digest, after.fault) == (second, None)
    assert server.open == 0


def test_a_body_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    """Reading ends at the bound, and a size that is told beforehand is enough."""
    told, untold = _Body(endless=b"x" * 2**22), _Body(endless=b"x" * 2**22)
    server = _Server(_says(told, content_length=str(LARGEST_TAR + 1)), _says(untold))
    _looks(_source(tmp_path, server), 2)
    assert told.sent == 0
    assert untold.sent <= LARGEST_TAR + 2**22


@pytest.mark.parametrize(
    "kind", ["application/octet-stream", "application/x-tar; charset=binary", "Binary/Octet-Stream", None]
)
def test_usual_content_types_are_taken(tmp_path: Path, kind: str | None) -> None:
    """Object stores say so; one that says nothing is looked into."""
    data, digest = packed(tmp_path)
    headers = {} if kind is None else {"content-type": kind}
    server = _Server(lambda request: httpx.Response(200, headers=headers, stream=httpx.ByteStream(data)))
    assert _looks(_source(tmp_path, server), 1)[0].digest == digest


def test_unsigned_bundles_are_refused_with_their_reason(tmp_path: Path) -> None:
    """With keys: unsigned, signed with another key, and with another release's signature."""
    signed, digest = packed(tmp_path, KEY)
    bad = [packed(tmp_path)[0], packed(tmp_path, OTHER_KEY, depth=20)[0]]
    server = _Server(*map(_says, (signed, *bad)))
    found = _looks(_source(tmp_path, server, keys=key_file(tmp_path, KEY)), 3)
    assert [each.digest for each in found] == [digest] * 3
    assert str(found[1].fault).startswith(f"{_SHOWN}it is not signed")
    assert "which is none of the release keys" in str(found[2].fault)


def test_the_token_is_read_at_each_look_and_sent_to_the_address_alone(tmp_path: Path) -> None:
    """One that changes needs no restart; one that is missing is a fault that names the file."""
    data, digest = packed(tmp_path)
    server = _Server(_says(data))
    token = tmp_path / "token"
    source = _source(tmp_path, server, token_file=token)
    token.write_text("one\n")
    _looks(source, 1)
    token.write_text("two")
    _looks(source, 1)
    assert [request.headers["authorization"] for request in server.seen] == ["Bearer one", "Bearer two"]
    token.unlink()
    (found,) = _looks(source, 1)
    assert (found.digest, found.fault) == (digest, f"{_SHOWN}auth: the file {token} cannot be read: FileNotFoundError")
    assert len(server.seen) == 2


async def _answering(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: list[tuple[bytes, bool]]
) -> None:
    """Answer one request as told: the bytes, and whether the connection is then left open."""
    await reader.readuntil(b"\r\n\r\n")
    answer, hold = answers.pop(0)
    writer.write(answer)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
        if hold:
            await reader.read()
    writer.close()


async def test_a_real_server_that_cuts_drips_or_breaks_off(tmp_path: Path) -> None:
    """Over real sockets: whole, cut short, no HTTP, a header that is too large, chunks that end, held open, gone."""
    data, digest = packed(tmp_path)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-tar\r\ncontent-length: %d\r\n\r\n" % len(data)
    answers = [
        (head + data, False),
        (head + data[:1000], False),
        (b"kingfisher\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", False),
        (head.replace(b"content-length", b"transfer-encoding: chunked\r\nx") + b"5\r\nkingf", False),
        (head + data[:1000], True),
    ]
    store = ReleaseStore(tmp_path / "store")
    server = await asyncio.start_server(lambda reader, writer: _answering(reader, writer, answers), "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/release.tar"
        source = HttpSource(url, store, Looking(), transport=bundle_transport)
        found = [await source.now() for _ in range(5)]
        held = await HttpSource(url, store, Looking(), transport=bundle_transport, seconds=0.2).now()
    gone = await source.now()
    assert {each.digest for each in (*found, gone)} == {digest}
    assert [str(each.fault).removeprefix(f"release {url}: ").split(": ")[0] for each in (*found, held, gone)] == [
        "None",
        f"the answer was cut off after 1000 bytes of {len(data)}",
        "no answer",
        "no answer",
        "the answer was cut off after 5 bytes",
        "the answer was not whole after 0.2 seconds",
        "no answer",
    ]


def test_a_place_has_its_source(tmp_path: Path) -> None:
    """A path is looked at, an address asked."""
    store = ReleaseStore(tmp_path / "store")
    assert type(release_source(tmp_path, store, Looking())) is FolderSource
    assert type(release_source(_URL, store, Looking())) is HttpSource
