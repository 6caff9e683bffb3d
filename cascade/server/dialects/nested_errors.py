"""Errors in the nested form of vLLM and OpenAI, with the keys beside it that other clients read."""

from __future__ import annotations

from typing import Final

import orjson
from pydantic import BaseModel

from cascade.errors import RequestError, RequestFault
from cascade.server.http import Answer, error_headers

__all__ = ["ErrorInfo", "NestedError", "nested_error"]

_STATUS: Final = {
    RequestFault.NOT_JSON: (400, "Bad Request"),
    RequestFault.SCHEMA: (400, "Bad Request"),
    RequestFault.EMPTY: (400, "BadRequestError"),
    RequestFault.TOO_MANY: (413, "BadRequestError"),
    RequestFault.BODY_TOO_LARGE: (413, "BadRequestError"),
    RequestFault.UNSUPPORTED: (415, "Bad Request"),
    RequestFault.TOO_SLOW: (408, "Bad Request"),
    RequestFault.TOO_LONG: (413, "BadRequestError"),
    RequestFault.FORBIDDEN: (403, "PermissionDeniedError"),
    RequestFault.OVER_QUOTA: (429, "RateLimitError"),
    RequestFault.BUSY: (503, "ServiceUnavailableError"),
    RequestFault.NOT_READY: (503, "ServiceUnavailableError"),
    RequestFault.NOT_ANSWERED: (503, "ServiceUnavailableError"),
}


class ErrorInfo(BaseModel):
    """What is wrong."""

    message: str
    type: str | None
    param: str | None
    code: int


class NestedError(BaseModel):
    """What an error looks like."""

    error: ErrorInfo
    message: str
    detail: str


def nested_error(error: RequestError) -> Answer:
    """Return an error as vLLM has it; of a missing or wrong key its ``error`` is a string."""
    if error.fault is RequestFault.UNAUTHORIZED:
        body = orjson.dumps({"error": "Unauthorized", "message": str(error), "detail": str(error)})
        return Answer(401, body, headers=error_headers(error))
    status, kind = _STATUS[error.fault]
    text = str(error)
    nested = {"message": text, "type": kind, "param": error.field, "code": status}
    body = orjson.dumps({"error": nested, "message": text, "detail": text})
    return Answer(status, body, headers=error_headers(error))
