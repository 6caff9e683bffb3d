"""Asking the sidecar for an order, from threads and from event loops.

Every request opens a connection of its own, so that an object may be shared between threads, event loops and forked
processes, copied and pickled. Proxies of the environment are not used, and redirects are not followed.
"""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Sequence
from typing import Any, Final

import httpx

from cascade.clients.options import Options
from cascade.clients.ordering import Candidate, Order, SidecarError, kept_order, read_order, request_body
from cascade.errors import RequestFault
from cascade.text import Text

__all__ = ["rerank", "rerank_async"]

_ROUTE: Final = "/v1/cascade/rerank"
_CODES: Final = frozenset(fault.value for fault in RequestFault)
_FIELDS: Final = frozenset(
    {"body", "query", "candidates", "top_n", "deadline_ms", "tenant", "priority", "authorization", "answer"}
)


def rerank(options: Options, query: Text, candidates: Sequence[Candidate]) -> Order:
    """Return the sidecar's order of the candidates, or as ``options.on_error`` says where there is none.

    Raises SidecarError. Without candidates nothing is asked.
    """
    if not candidates:
        return Order()
    try:
        request = _request(options, query, candidates)
        return _order(_sent(options, request), len(candidates), options.top_n)
    except SidecarError as error:
        if options.on_error == "raise":
            raise
        return kept_order(len(candidates), options.top_n, error)


async def rerank_async(options: Options, query: Text, candidates: Sequence[Candidate]) -> Order:
    """Do as ``rerank`` does, without holding up the event loop; cancelled, it leaves nothing open."""
    if not candidates:
        return Order()
    try:
        request = _request(options, query, candidates)
        return _order(await _sent_async(options, request), len(candidates), options.top_n)
    except SidecarError as error:
        if options.on_error == "raise":
            raise
        return kept_order(len(candidates), options.top_n, error)


def _request(options: Options, query: Text, candidates: Sequence[Candidate]) -> httpx.Request:
    content = request_body(options, query, candidates)
    return httpx.Request("POST", options.url + _ROUTE, headers=_headers(options), content=content)


def _headers(options: Options) -> dict[str, str]:
    key = options.api_key
    authorization = {} if key is None else {"authorization": f"Bearer {key.get_secret_value()}"}
    return {"content-type": "application/json"} | authorization


@functools.cache
def _authorities() -> ssl.SSLContext:
    """Return the TLS context of all clients: reading certificates takes longer than a request."""
    return httpx.create_ssl_context()


def _settings(options: Options) -> dict[str, Any]:
    return {"timeout": options.timeout_s, "trust_env": False, "verify": _authorities()}


# An exception of httpx carries the request, and so the documents: ours is raised outside its handler, to be free of it.


def _sent(options: Options, request: httpx.Request) -> httpx.Response:
    with httpx.Client(**_settings(options)) as client:
        try:
            return client.send(request)
        except httpx.HTTPError as error:
            fault = type(error).__name__
    raise SidecarError(f"no answer: {fault}")


async def _sent_async(options: Options, request: httpx.Request) -> httpx.Response:
    async with httpx.AsyncClient(**_settings(options)) as client:
        try:
            return await client.send(request)
        except httpx.HTTPError as error:
            fault = type(error).__name__
    raise SidecarError(f"no answer: {fault}")


def _order(response: httpx.Response, count: int, top_n: int | None) -> Order:
    if response.status_code == 200:
        return read_order(response.content, count, top_n)
    code, field = _refusal(response.content)
    why = ", ".join(part for part in (code, field) if part is not None)
    told = f"status {response.status_code}" + (f": {why}" if why else "")
    raise SidecarError(told, status=response.status_code, code=code)


def _refusal(answer: bytes) -> tuple[str | None, str | None]:
    """Return code and field of a refusal, as far as they are words that the sidecar has: what lies between may echo."""
    try:
        told = json.loads(answer)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(told, dict):
        return None, None
    code, field = told.get("code"), told.get("field")
    known = field.partition(".")[0] if isinstance(field, str) else None
    return (
        code if isinstance(code, str) and code in _CODES else None,
        known if known in _FIELDS else None,
    )
