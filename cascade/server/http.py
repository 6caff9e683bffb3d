"""What dialects share: reading a body and headers, validating, and answers as bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from cascade.decision import Decision, Ranking
from cascade.errors import NotAnswered, RequestError, RequestFault
from cascade.types import Arm

__all__ = [
    "JSON",
    "MOST_DEADLINE_MS",
    "TEXT",
    "Answer",
    "answer_headers",
    "as_json",
    "client_request_id",
    "deadline_from",
    "error_headers",
    "fail_closed_from",
    "plain_name",
    "refuse_too_many",
    "validate",
]

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_DEADLINE_HEADER: Final = "x-request-timeout-ms"
_ENVOY_HEADER: Final = "x-envoy-expected-rq-timeout-ms"
_FAIL_CLOSED_HEADER: Final = "x-cascade-fail-closed"
_SWITCH: Final = {"1": True, "true": True, "0": False, "false": False}
_RULES: Final = {"model_type": "Input should be an object"}
"""Rules that pydantic words with the name of a class."""
_KEY: Final = "[key]"
"""What pydantic puts behind the name of a key that breaks a rule itself."""
MOST_DEADLINE_MS: Final = 600_000

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back over HTTP."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(body: bytes) -> Any:
    """Parse a request body. NaN, lone surrogates and invalid UTF-8 are not JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:  # it holds the body, so nothing is raised while it is the context
        pass
    raise RequestError(RequestFault.NOT_JSON, "body", "not valid JSON in UTF-8")


def validate(model: type[Model], body: Any) -> Model:
    """Validate parsed JSON. Raises RequestError naming the first field and its rule, never its value."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name = ".".join(plain_name(part) for part in first["loc"] if part != _KEY) or "body"
    fault = RequestFault.EMPTY if first["type"] == "too_short" else RequestFault.SCHEMA
    raise RequestError(fault, name, _RULES.get(first["type"], first["msg"]))


def plain_name(part: int | str) -> str:
    """Name a field; what is not a plain name may be content, so it is not repeated."""
    text = str(part)
    return text if _PLAIN_NAME.fullmatch(text) else "(unnamed)"


def refuse_too_many(body: Any, key: str, most: int, rule: str = "at most {most} are accepted") -> None:
    """Refuse a list of more than ``most`` documents before anything looks at its entries."""
    listed = body.get(key) if isinstance(body, dict) else None
    if isinstance(listed, list) and len(listed) > most:
        raise RequestError(RequestFault.TOO_MANY, key, rule.format(given=len(listed), most=most))


def deadline_from(headers: Mapping[str, str]) -> float | None:
    """Return the deadline that a header gives, in milliseconds, None where there is none.

    A time from Envoy that is beyond the most counts as the most: it is a route's, and its client cannot change it.
    """
    for name in (_DEADLINE_HEADER, _ENVOY_HEADER):
        value = headers.get(name)
        if value is None:
            continue
        milliseconds = int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
        if milliseconds is None or (name == _DEADLINE_HEADER and milliseconds > MOST_DEADLINE_MS):
            raise RequestError(RequestFault.SCHEMA, name, f"must be whole milliseconds from 0 to {MOST_DEADLINE_MS}")
        return float(min(milliseconds, MOST_DEADLINE_MS))
    return None


def fail_closed_from(headers: Mapping[str, str]) -> bool:
    """Tell whether the caller wants an error in place of a degraded answer."""
    value = headers.get(_FAIL_CLOSED_HEADER, "0").lower()
    if value not in _SWITCH:
        raise RequestError(RequestFault.SCHEMA, _FAIL_CLOSED_HEADER, "must be 1, true, 0 or false")
    return _SWITCH[value]


def client_request_id(headers: Mapping[str, str]) -> str | None:
    """Return the caller's own id for the log, None where it may be anything but an id."""
    value = headers.get("x-request-id", "")
    return value if _REQUEST_ID.fullmatch(value) else None


def error_headers(error: RequestError) -> dict[str, str]:
    """Return the headers that every dialect's error carries."""
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    if error.fault is RequestFault.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if error.fault is RequestFault.TOO_SLOW:
        headers["connection"] = "close"  # the rest of the body is not waited for
    if isinstance(error, NotAnswered):
        headers["x-cascade-decision-id"] = error.decision.id
        headers["x-cascade-release"] = error.decision.release
        headers["x-cascade-degraded"] = ",".join(error.decision.degraded)
        headers |= _level_header(error.decision) | _arm_header(error.decision)
    return headers


def answer_headers(ranking: Ranking, ignored: Sequence[str] = ()) -> dict[str, str]:
    """Return the headers that every dialect's answer carries."""
    decision = ranking.decision
    headers = {
        "x-cascade-decision-id": decision.id,
        "x-cascade-release": decision.release,
        "x-cascade-stage": decision.stage,
    }
    headers |= _level_header(decision) | _arm_header(decision)
    if decision.degraded:
        headers["x-cascade-degraded"] = ",".join(decision.degraded)
    if decision.excluded:
        headers["x-cascade-excluded"] = str(decision.excluded)
    if decision.ranks_only:
        headers["x-cascade-score"] = "rank"
    if repaired := sum(item.cost.repaired for item in decision.rounds if item.cost):
        headers["x-cascade-repaired"] = str(repaired)
    if ignored:
        headers["x-cascade-ignored"] = ", ".join(ignored)
    return headers


def _level_header(decision: Decision) -> dict[str, str]:
    """Name the level where it is above normal."""
    return {"x-cascade-level": decision.level.name} if decision.level.is_above_normal else {}


def _arm_header(decision: Decision) -> dict[str, str]:
    """Name the arm where it is not the stable release."""
    return {} if decision.arm is Arm.STABLE else {"x-cascade-arm": decision.arm}
