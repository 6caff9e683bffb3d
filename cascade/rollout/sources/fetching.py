"""Get a bundle's tar from a server that may do anything, within bounds of size and time."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from cascade import __version__
from cascade.errors import ConfigError
from cascade.rollout.tar import LARGEST_TAR

__all__ = ["FETCH_S", "Fetched", "bundle_transport", "fetch"]

FETCH_S: Final = 60.0
"""The longest that one download may take, from connecting to its last byte."""
_CONNECT_S: Final = 10.0
_TYPES: Final = frozenset({"application/x-tar", "application/tar", "application/octet-stream", "binary/octet-stream"})
_LOST: Final = (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A complete answer: its body, None where the server says that what has the tag asked about is still current."""

    body: bytes | None
    etag: str | None


async def fetch(
    transport: httpx.AsyncBaseTransport, url: str, *, etag: str | None, token: str | None, seconds: float = FETCH_S
) -> Fetched:
    """Ask for a tar, and with ``etag`` only for another than that one. Redirects are not followed.

    Raises ConfigError with the reason, never with anything that the server wrote beside numbers.
    """
    headers = {"accept": "application/x-tar, application/octet-stream", "accept-encoding": "identity"}
    headers["user-agent"] = f"cascade/{__version__}"
    if etag is not None:
        headers["if-none-match"] = etag
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    timeout = httpx.Timeout(None, connect=_CONNECT_S).as_dict()
    request = httpx.Request("GET", url, headers=headers, extensions={"timeout": timeout})
    try:
        async with asyncio.timeout(seconds) as bound:
            response = await transport.handle_async_request(request)
            try:
                return await _read(response, etag)
            finally:
                await response.aclose()
    except _LOST as error:
        late = isinstance(error, TimeoutError) and bound.expired()
        told = (
            f"the answer was not whole after {seconds:g} seconds"
            if late
            else f"no answer: {type(error.__cause__ or error).__name__}"
        )
    raise ConfigError(told)  # outside, since the transport's own error may quote what the server wrote


async def _read(response: httpx.Response, etag: str | None) -> Fetched:
    if response.status_code == 304:
        if etag is None:
            raise ConfigError("the answer is 304, and nothing was asked of an ETag")
        return Fetched(None, etag)
    _check_head(response)
    length = _length(response)
    if length is not None and length > LARGEST_TAR:
        raise ConfigError(f"the answer says that it has {length} bytes, more than {LARGEST_TAR}")
    parts: list[bytes] = []
    size = 0
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101  # nosec B101 # of an asynchronous transport
    try:
        async for part in stream:
            size += len(part)
            if size > LARGEST_TAR:
                raise ConfigError(f"the answer has more than {LARGEST_TAR} bytes")
            parts.append(part)
    except _LOST as error:
        lost = f"the answer was cut off after {size} bytes{_of(length)}: {type(error.__cause__ or error).__name__}"
    else:
        if length is None or size == length:
            return Fetched(b"".join(parts), _tag(response))
        lost = f"the answer ended after {size} bytes{_of(length)}"
    raise ConfigError(lost)


def _check_head(response: httpx.Response) -> None:
    """Raise ConfigError for an answer that is no tar by what is said before it."""
    status = response.status_code
    if 300 <= status < 400:
        raise ConfigError(f"the answer is {status}, and redirects are not followed: name the address that it leads to")
    if status in {401, 403}:
        raise ConfigError(f"the answer is {status}: release_auth_file names the file of a token that opens it")
    if status != 200:
        raise ConfigError(f"the answer is {status}, and 200 is wanted")
    kind = response.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
    if kind not in _TYPES:
        raise ConfigError("the answer's content type is no tar's; application/x-tar is wanted")
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ConfigError("the answer is compressed, and that was not asked for")


def _length(response: httpx.Response) -> int | None:
    told = response.headers.get("content-length")
    return int(told) if told is not None and told.isascii() and told.isdigit() else None


def _of(length: int | None) -> str:
    return "" if length is None else f" of {length}"


def _tag(response: httpx.Response) -> str | None:
    """Return the ETag of an answer, as far as it can be sent back."""
    tag = response.headers.get("etag")
    return tag if tag is not None and tag.isascii() and tag.isprintable() and 0 < len(tag) <= 1000 else None


def bundle_transport() -> httpx.AsyncBaseTransport:
    """Return what asks for bundles: no proxy of the environment, no cookies, one connection."""
    context = ssl.create_default_context()

    def session() -> aiohttp.ClientSession:  # made at the first request, since it belongs to a running loop
        connector = aiohttp.TCPConnector(limit=1, force_close=True, ssl=context)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    return AiohttpTransport(verify=context, trust_env=False, client=session)
