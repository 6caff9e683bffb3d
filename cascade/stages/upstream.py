"""One upstream server over HTTP: bytes out, bytes in, and every failure by its cause."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import httpx
from aiohttp.connector import Connection
from httpx_aiohttp import AiohttpTransport

from cascade import __version__
from cascade.errors import ConfigError
from cascade.policy.release import Auth, HttpStage
from cascade.stages.decoding import BadEncoding, decoded
from cascade.stages.stage_tls import stage_context
from cascade.telemetry.spans import outgoing

__all__ = ["Lost", "Reply", "Upstream", "build_transport", "read_token"]

_PORTS: Final = {"http": 80, "https": 443}
_BASE_BYTES: Final = 65_536
_BYTES_PER_TEXT: Final = 4_096
_ECHO: Final = 3
"""How many times longer an echoed document may be: a server may escape what is not ASCII."""
_KEEPALIVE_SECONDS: Final = 4
"""Below the five seconds after which vLLM and llama.cpp close an idle connection: a POST must not meet that."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer of an upstream. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Lost(Exception):
    """No complete answer came. ``code`` names the cause; nothing says whether the request was processed."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Upstream:
    """Send requests to one base address. ``host`` and ``port`` are where that is, as far as it can be read.

    They go straight to a transport: what a client of httpx adds to each (cookies, redirects, credentials and
    proxies of the environment) is not wanted here, and costs more than the rest. The caller bounds each call in
    time (``asyncio.timeout``): nothing here waits by itself but for a connection, ``connect_ms`` at most.
    ``prose_bytes`` is what an answer may have beside scores and an echo, of a server that writes.
    """

    def __init__(
        self,
        url: str,
        transport: httpx.AsyncBaseTransport,
        token: str | None = None,
        *,
        connect_ms: float,
        prose_bytes: int = 0,
    ) -> None:
        self._url = url
        self._base_bytes = _BASE_BYTES + prose_bytes
        self.host, self.port = _place_of(url)
        self._transport = transport
        self._addresses: dict[str, httpx.URL] = {}
        self._extensions = {"timeout": httpx.Timeout(None, connect=connect_ms / 1000).as_dict()}
        self._headers = httpx.Headers(
            {
                "accept": "application/json",
                "accept-encoding": "gzip, deflate",
                "content-type": "application/json",
                "user-agent": f"cascade/{__version__}",
            }
        )
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    async def post(self, path: str, body: bytes, *, request_id: str, texts: int) -> Reply:
        """Post JSON and read the answer, of at most a size that fits ``texts`` scores and an echo. Raises Lost."""
        request = self._request("POST", path, request_id, body)
        for name, value in outgoing():
            request.headers[name] = value
        return await self._send(request, self._base_bytes + _BYTES_PER_TEXT * texts + _ECHO * len(body))

    async def get(self, path: str, *, request_id: str) -> Reply:
        """Get a document of at most 1 MiB. Raises Lost."""
        return await self._send(self._request("GET", path, request_id), 2**20)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    def _request(self, method: str, path: str, request_id: str, body: bytes = b"") -> httpx.Request:
        """Make a request from what is prepared. Host and length are the transport's to add."""
        address = self._addresses.get(path)
        if address is None:  # a wire has a few paths, and parsing one costs as much as the rest of this
            address = self._addresses[path] = httpx.URL(self._url + path)
        stream = httpx.ByteStream(body)
        request = httpx.Request(method, address, headers=self._headers, stream=stream, extensions=self._extensions)
        request.headers["x-request-id"] = request_id
        request.read()  # so that the transport sends it whole
        return request

    async def _send(self, request: httpx.Request, most_bytes: int) -> Reply:
        try:
            response = await self._transport.handle_async_request(request)
            try:
                body = await _read(response, most_bytes)
            finally:
                await response.aclose()
            return Reply(response.status_code, response.headers, body)
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, ValueError) as error:
            lost = Lost(_cause(error))
        raise lost  # outside, since the transport's own error may quote what the server wrote


def _place_of(url: str) -> tuple[str | None, int | None]:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:  # each call will tell
        return None, None
    return address.host, address.port or _PORTS.get(address.scheme)


async def _read(response: httpx.Response, most_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async for part in _parts(response):
            size += len(part)
            if size > most_bytes:
                raise Lost("answer_too_large")
            parts.append(part)
    except BadEncoding:
        raise Lost("bad_encoding") from None
    return b"".join(parts)


def _parts(response: httpx.Response) -> AsyncIterator[bytes]:
    """Return a body as it comes, decoded. Where there is nothing to decode, the layers of httpx only cost time."""
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101  # nosec B101 # of an asynchronous transport
    encoding = response.headers.get("content-encoding")
    return aiter(stream) if encoding is None else decoded(stream, encoding)


def _cause(error: BaseException) -> str:  # noqa: C901, PLR0911 - a table
    """Name what happened by the transport's own exception: its httpx class does not tell."""
    own = isinstance(error, httpx.DecodingError | aiohttp.ClientResponseError)
    match error if own else error.__cause__ or error:
        case httpx.DecodingError():
            return "bad_encoding"
        case aiohttp.ClientConnectorDNSError():
            return "dns"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return "tls"
        case aiohttp.ClientConnectorError():
            return "refused"
        case aiohttp.ConnectionTimeoutError() | httpx.ConnectTimeout() | httpx.PoolTimeout():
            return "connect_timeout"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | OSError():
            return "reset"
        case aiohttp.ClientPayloadError() | httpx.ReadError():
            return "cut"
        case aiohttp.ClientResponseError() | httpx.RemoteProtocolError():
            return "not_http"
        case httpx.ConnectError():
            return "refused"
        case ValueError():  # the transport choked on what it was to decode
            return "not_http"
        case _:
            return "lost"


class _Response(aiohttp.ClientResponse):
    """Refuse a reason phrase that is no text before the transport fails on it and forgets the connection."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        await super().start(connection)
        try:
            (self.reason or "").encode()
        except UnicodeEncodeError:
            broken = aiohttp.ClientResponseError(self.request_info, (), status=self.status)
        else:
            return self
        raise broken  # the session closes the connection then


def build_transport(spec: HttpStage) -> httpx.AsyncBaseTransport:
    """Return what sends a stage's requests. Raises ConfigError for a CA bundle or a client certificate that cannot be used."""
    context = stage_context(spec)

    def session() -> aiohttp.ClientSession:  # made at the first request, since it belongs to a running loop
        connector = aiohttp.TCPConnector(
            limit=spec.max_in_flight_texts, keepalive_timeout=_KEEPALIVE_SECONDS, ssl=context
        )
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), response_class=_Response)

    return AiohttpTransport(verify=context, trust_env=False, client=session)


def read_token(auth: Auth | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the bearer token that ``auth`` refers to. Raises ConfigError where it is missing or empty."""
    if auth is None:
        return None
    if auth.env is not None:
        token, place = environment.get(auth.env, ""), f"the environment variable {auth.env}"
    else:
        place = f"the file {auth.file}"
        try:
            token = Path(str(auth.file)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"auth: {place} cannot be read: {type(error).__name__}") from None
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"auth: {place} holds no usable token")
    return token
