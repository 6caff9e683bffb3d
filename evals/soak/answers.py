"""Answers of servers, and how faults spoil them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import orjson

from cascade.testing.upstream import FakeServer
from evals.soak.faults import Fault, FaultKind

__all__ = ["Answer", "Server", "answer_of", "spoiled"]

_HTML: Final = b"<html><head><title>Bad Gateway</title></head><body>%s</body></html>"
_STATUSES: Final = (400, 401, 402, 403, 404, 408, 413, 422, 424, 429, 500, 501, 502, 503, 504, 529)
_MAY_ASK_FOR_TIME: Final = (429, 503, 502, 500, 529)
_RETRY_AFTER: Final = ("0", "1", "30", "Wed, 21 Oct 2026 07:28:00 GMT", "soon", "-1", "")
_NO_INDEX: Final = (b"-1", b"9999", b"1.5", b'"0"', b"null", b"true", b"1e400")
_NO_NUMBER: Final = (b"NaN", b"null", b"Infinity", b"-Infinity", b"1e999", b'"0.5"', b"[]", b"true")
_JUNK: Final = (
    b"",
    b"\x00\xff\xfe",
    b"[[[[[[",
    b"null",
    b"[]",
    b"{}",
    b"0",
    b'"%s"',
    b'{"results": null}',
    b'{"data": {}}',
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer of a server."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Server = Callable[[str, str, Mapping[str, str], bytes], Any]
"""Answer method, path, headers and body with an awaitable `Answer`."""


async def answer_of(server: FakeServer, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """Ask a fake, which forgets what it saw."""
    response = await server(httpx.Request(method, f"http://fake{path}", headers=dict(headers), content=body))
    server.seen.clear()
    told = {name: value for name, value in response.headers.items() if name != "content-length"}
    return Answer(response.status_code, response.content, told)


def spoiled(fault: Fault, answer: Answer, echo: bytes) -> Answer:  # noqa: PLR0911 - a table
    """Return what is answered in place of ``answer``; ``echo`` is text of the request, which servers like to repeat."""
    variant = fault.variant
    match fault.kind:
        case FaultKind.NOT_JSON:
            junk = _JUNK[variant % len(_JUNK)]
            return Answer(200, junk.replace(b"%s", echo), answer.headers)
        case FaultKind.TRUNCATED_JSON:
            return Answer(200, answer.body[: int(len(answer.body) * fault.part)], answer.headers)
        case FaultKind.BAD_ENCODING:
            return Answer(200, answer.body, {**answer.headers, "content-encoding": ("gzip", "deflate")[variant % 2]})
        case FaultKind.TOO_LARGE:
            return Answer(200, b"[" + (echo + b" ") * (3_000_000 // (len(echo) + 1)), answer.headers)
        case FaultKind.TOO_FEW | FaultKind.TOO_MANY | FaultKind.TWICE | FaultKind.BAD_INDEX | FaultKind.NOT_A_NUMBER:
            return Answer(answer.status, _miscounted(fault, answer.body), answer.headers)
        case FaultKind.ERROR_BODY:
            return Answer(200, _errors(echo)[variant % 5], answer.headers)
        case FaultKind.STATUS:
            return _refused(_STATUSES[variant % len(_STATUSES)], variant // len(_STATUSES), echo)
        case FaultKind.STATUS_RETRY_AFTER:
            status = _MAY_ASK_FOR_TIME[variant % len(_MAY_ASK_FOR_TIME)]
            refused = _refused(status, variant // len(_MAY_ASK_FOR_TIME), echo)
            return Answer(status, refused.body, {**refused.headers, "retry-after": _RETRY_AFTER[variant % 7]})
        case _:  # done to the connection
            return answer


def _refused(status: int, form: int, echo: bytes) -> Answer:
    bodies = [*_errors(echo), _HTML % echo, b""]
    kind = "text/html" if form % len(bodies) == len(bodies) - 2 else "application/json"
    return Answer(status, bodies[form % len(bodies)], {"content-type": kind, "location": "http://elsewhere.test/"})


def _errors(echo: bytes) -> list[bytes]:
    """Return the error bodies of TEI, vLLM now and then, Infinity, and llama.cpp, each with the request's text."""
    text = echo.decode()
    return [
        orjson.dumps(
            {"error": f"`inputs` must have less than 512 tokens. Given: 600 {text}", "error_type": "Validation"}
        ),
        orjson.dumps({"error": {"message": f"Out of range {text}", "type": "BadRequestError", "code": 400}}),
        orjson.dumps({"object": "error", "message": f"maximum context length is 512 tokens {text}", "code": 400}),
        orjson.dumps({"detail": [{"type": "too_long", "loc": ["body"], "msg": "too long", "input": text}]}),
        orjson.dumps({"error": {"code": 500, "message": f"input (600 tokens) {text}", "type": "server_error"}}),
    ]


def _miscounted(fault: Fault, body: bytes) -> bytes:
    """Spoil one item of an answer that is a list, and give scores to other items: none of them may count, nor be kept."""
    try:
        whole = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    items = whole if isinstance(whole, list) else whole.get("results") or whole.get("data")
    if not items or not isinstance(items[0], dict):
        return body
    place, name = int(fault.part * len(items)), "relevance_score" if "relevance_score" in items[0] else "score"
    if name in items[0]:
        for item, score in zip(items, [item[name] for item in reversed(items)], strict=True):
            item[name] = score
    match fault.kind:
        case FaultKind.TOO_FEW:
            del items[place : None if fault.variant % 2 else place + 1]
        case FaultKind.TOO_MANY:
            items += [{**items[place], "index": len(items) + extra} for extra in range(1 + fault.variant % 3)]
        case FaultKind.TWICE:
            items.append(items[place])
        case FaultKind.BAD_INDEX:
            items[place]["index"] = "spoiled"
            return orjson.dumps(whole).replace(b'"spoiled"', _NO_INDEX[fault.variant % len(_NO_INDEX)])
        case _:
            items[place][name] = "spoiled"
            return orjson.dumps(whole).replace(b'"spoiled"', _NO_NUMBER[fault.variant % len(_NO_NUMBER)])
    return orjson.dumps(whole)
