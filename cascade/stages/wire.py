"""What an HTTP adapter must know of its server: requests, answers, faults and limits. Pure but for discovery."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import orjson

from cascade.stages.base import Observed
from cascade.stages.chunking import Clip
from cascade.stages.upstream import Reply

__all__ = [
    "ChunkAnswer",
    "Fault",
    "FaultKind",
    "Wire",
    "common_fault",
    "count_of",
    "error_text",
    "model_cards",
    "number_after",
    "object_of",
    "observed_in",
    "text_of",
]


class FaultKind(StrEnum):
    """What a status other than 200 means.

    The first three concern the chunk and can be mended. ``UNUSABLE`` says that nothing can be scored
    until the key or the model is put right, ``REFUSED`` only that this request was refused.
    """

    TOO_LONG = "too_long"
    TOO_MANY_TEXTS = "too_many_texts"
    TOO_MANY_BYTES = "too_many_bytes"
    NO_ROUTE = "no_route"
    OVERLOADED = "overloaded"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    UNUSABLE = "unusable"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and the numbers that the server stated with it.

    ``limit`` is the most that it takes (tokens a pair or texts a call), ``given`` what it counted.
    ``given_at_least`` tells that the server stopped counting.
    """

    kind: FaultKind
    code: str
    limit: int | None = None
    given: int | None = None
    given_at_least: bool = False


@dataclass(frozen=True, slots=True)
class ChunkAnswer:
    """The scores of one call in the order sent, and what the server told of its cost.

    ``repaired`` counts what was mended of an order, ``prefix_tokens`` what came from the server's prefix cache.
    """

    scores: list[float]
    tokens: int | None = None
    tokenize_ms: float | None = None
    queue_ms: float | None = None
    compute_ms: float | None = None
    server_ms: float | None = None
    repaired: int = 0
    prefix_tokens: int | None = None


Getter = Callable[[str], Awaitable[Reply]]


class Wire(Protocol):
    """One server's format. It holds no state: which route to take is the stage's to remember."""

    routes: tuple[str, ...]
    """Where the server may score, best first."""
    texts_by_default: int
    """Most texts a call while the server's own limit is unknown."""
    most_texts: int | None
    """Most texts a call that such a server ever takes, None where that is its operator's to say."""
    most_characters: int | None
    """Most characters of a text that such a server ever takes, None where it does not count them."""
    clips: bool
    """Whether the server clips over-long pairs by itself when asked."""
    load_route: str | None
    """Where the server tells of its load, None where nowhere but in its answers."""
    takes_instruction: bool
    """Whether the server applies a template of its own and takes an instruction for it."""

    def request(
        self,
        route: str,
        query: bytes,
        documents: Sequence[bytes],
        *,
        clip_to: Clip | None = None,
        instruction: str | None = None,
    ) -> bytes:
        """Return the body of a request to one of the routes, for JSON-encoded texts.

        ``clip_to`` asks a server that can to clip query and document to that many tokens; others ignore it.
        ``instruction`` is given to servers that take one only.
        """
        ...

    def answer(self, reply: Reply, count: int) -> ChunkAnswer:
        """Return the scores of a 200 answer. Raises InvalidAnswer."""
        ...

    def fault(self, reply: Reply) -> Fault:
        """Classify any other answer."""
        ...

    async def discover(self, get: Getter) -> Observed | Fault:
        """Ask the server for its limits. Raises Lost."""
        ...


_PLAIN: Final = {
    401: Fault(FaultKind.UNUSABLE, "unauthorized"),
    403: Fault(FaultKind.REFUSED, "forbidden"),
    404: Fault(FaultKind.NO_ROUTE, "no_route"),
    405: Fault(FaultKind.NO_ROUTE, "no_route"),
    429: Fault(FaultKind.OVERLOADED, "status_429"),
    501: Fault(FaultKind.REFUSED, "status_501"),
    502: Fault(FaultKind.UNREACHABLE, "status_502"),
    503: Fault(FaultKind.OVERLOADED, "status_503"),
    504: Fault(FaultKind.TIMEOUT, "status_504"),
}


def common_fault(status: int) -> Fault:
    """Classify a status that means the same for every server."""
    if status in _PLAIN:
        return _PLAIN[status]
    if 200 <= status < 300:
        return Fault(FaultKind.BROKEN, "status_without_scores")
    return Fault(FaultKind.BROKEN if status >= 500 else FaultKind.REFUSED, f"status_{status}")


def object_of(reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a body, empty where it is none."""
    try:
        body = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


def error_text(body: dict[str, Any]) -> str:
    """Return an error's message for matching only: it may echo documents, so it goes no further."""
    error = body.get("error", body)
    if isinstance(error, str):
        return error
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else ""


def number_after(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the number that a pattern's first group finds; a number of more than nine digits is no limit."""
    found = pattern.search(text)
    return int(found[1]) if found and len(found[1]) <= 9 else None


def text_of(value: Any) -> str | None:
    """Return what a server calls something, None where it is no text."""
    return value[:200] if isinstance(value, str) else None


def count_of(value: Any) -> int | None:
    """Return a limit that a server states, None where it is no positive integer."""
    return value if type(value) is int and value > 0 else None


def model_cards(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of an answer to ``/v1/models``, none where it holds no list of them."""
    listed = body.get("data")
    return [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []


def observed_in(card: dict[str, Any], version: str | None = None) -> Observed:
    """Return what such an entry tells of its model."""
    return Observed(
        model=text_of(card.get("root")) or text_of(card.get("id")),
        version=version,
        max_length=count_of(card.get("max_model_len")),
    )
