"""Infinity's ``/rerank``, as of 0.0.77: its own rules for requests, answers and errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, FailFast, Field, StrictStr

from cascade.decision import Ranking
from cascade.errors import RequestError, RequestFault
from cascade.server.dialects.base import Options, Parsed
from cascade.server.dialects.first_stage import FirstStage, candidates_of, refuse_excess
from cascade.server.dialects.nested_errors import ErrorInfo
from cascade.server.dialects.vllm import Usage
from cascade.server.dialects.vllm_fields import outward_score, usage
from cascade.server.fields import HEADER_FIELDS, ignored_fields
from cascade.server.http import (
    Answer,
    answer_headers,
    deadline_from,
    error_headers,
    fail_closed_from,
    refuse_too_many,
    validate,
)
from cascade.text import Text
from cascade.types import Dialect, Request

__all__ = ["InfinityAnswer", "InfinityError", "InfinityFormat", "InfinityRequest", "InfinityRequestFault"]

_VALIDATION: Final = {
    RequestFault.NOT_JSON: "json_invalid",
    RequestFault.SCHEMA: "value_error",
    RequestFault.EMPTY: "too_short",
    RequestFault.TOO_MANY: "too_long",
    RequestFault.TOO_LONG: "too_long",
}
_STATUS: Final = {
    RequestFault.BODY_TOO_LARGE: 413,
    RequestFault.UNSUPPORTED: 415,
    RequestFault.TOO_SLOW: 408,
    RequestFault.FORBIDDEN: 403,
    RequestFault.OVER_QUOTA: 429,
    RequestFault.BUSY: 503,
    RequestFault.NOT_READY: 503,
    RequestFault.NOT_ANSWERED: 503,
}


class InfinityRequest(BaseModel):
    """What Infinity's ``POST /rerank`` takes. Unknown fields are ignored, as Infinity does."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    query: StrictStr
    documents: Annotated[list[StrictStr], FailFast()] = Field(
        min_length=1, description="Documents in first-stage order"
    )
    return_documents: bool = Field(default=False, description="Repeat each document")
    raw_scores: bool = Field(default=False, description="Answer the logit of the score")
    model: StrictStr = Field(default="", description="Any name is accepted, and repeated in the answer")
    top_n: Annotated[int, Field(gt=0)] | None = Field(default=None, description="Places answered; null: all")
    first_stage: FirstStage = None


class InfinityResult(BaseModel):
    """One place of the order."""

    relevance_score: float
    index: int
    document: str = Field(default="", description="Only with return_documents")


class InfinityAnswer(BaseModel):
    """What ``POST /rerank`` answers, best first."""

    object: Literal["rerank"]
    results: list[InfinityResult]
    model: str
    usage: Usage
    id: str
    created: int


class _Detail(BaseModel):
    loc: list[str | int]
    msg: str
    type: str


class InfinityRequestFault(BaseModel):
    """What 422 looks like."""

    detail: list[_Detail]
    message: str


class InfinityError(BaseModel):
    """What any other error looks like."""

    error: ErrorInfo
    message: str
    detail: str


class InfinityFormat:
    """Speak Infinity's rerank format; ``document`` is left out, not null, where it was not asked for."""

    name = Dialect.INFINITY

    def parse(self, body: Any, headers: Mapping[str, str], most_documents: int) -> Parsed:
        refuse_too_many(body, "documents", most_documents)
        refuse_excess(body, most_documents)
        given = validate(InfinityRequest, body)
        request = Request(
            query=Text(given.query),
            candidates=candidates_of(given.documents, given.first_stage),
            dialect=self.name,
            top_n=given.top_n,
            deadline_ms=deadline_from(headers),
            fail_closed=fail_closed_from(headers),
        )
        ignored = ignored_fields(body, InfinityRequest.model_fields)
        options = Options(echo=given.return_documents, raw_scores=given.raw_scores, model=given.model, ignored=ignored)
        return Parsed((request,), options)

    def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
        candidates, options = parsed.request.candidates, parsed.options
        results: list[dict[str, Any]] = []
        for item in ranking.results:
            results.append({"relevance_score": outward_score(item, options), "index": item.index})
            if options.echo:
                results[-1]["document"] = candidates[item.index].text.reveal()
        body = {
            "object": "rerank",
            "results": results,
            "model": options.model or ranking.decision.release,
            "usage": usage(ranking.decision),
            "id": f"infinity-{ranking.decision.id}",
            "created": int(time.time()),
        }
        return Answer(200, orjson.dumps(body), headers=answer_headers(ranking, options.ignored))

    def error(self, error: RequestError) -> Answer:
        text, headers = str(error), error_headers(error)
        if error.fault is RequestFault.UNAUTHORIZED:
            return Answer(401, orjson.dumps({"detail": "Unauthorized", "message": text}), headers=headers)
        if error.fault in _VALIDATION:
            fault = {"loc": _place(error.field), "msg": error.rule, "type": _VALIDATION[error.fault]}
            return Answer(422, orjson.dumps({"detail": [fault], "message": text}), headers=headers)
        status = _STATUS[error.fault]
        nested = {"message": text, "type": None, "param": None, "code": status}
        return Answer(status, orjson.dumps({"error": nested, "message": text, "detail": text}), headers=headers)


def _place(field: str) -> list[str | int]:
    """Return where a field stands, as FastAPI tells it."""
    if field in HEADER_FIELDS:
        return ["header", field]
    parts = [int(part) if part.isdecimal() else part for part in field.split(".")]
    return parts if field == "body" else ["body", *parts]
