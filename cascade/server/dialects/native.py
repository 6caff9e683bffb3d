"""The native format: ids, first-stage channels, deadlines and explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, FailFast, Field, FiniteFloat, StrictBool, StrictInt, StrictStr

from cascade.decision import Ranking
from cascade.errors import RequestError, RequestFault
from cascade.server.dialects.base import Options, Parsed
from cascade.server.dialects.first_stage import CandidateScores, present_scores, refuse_many_channels
from cascade.server.http import (
    MOST_DEADLINE_MS,
    Answer,
    answer_headers,
    deadline_from,
    error_headers,
    fail_closed_from,
    plain_name,
    refuse_too_many,
    validate,
)
from cascade.telemetry.logs import decision_record
from cascade.text import Text
from cascade.types import LOWEST_PRIORITY, Candidate, Dialect, Request

__all__ = ["NativeAnswer", "NativeError", "NativeFormat", "NativeRequest"]

_STATUS: Final = {
    RequestFault.NOT_JSON: 400,
    RequestFault.SCHEMA: 422,
    RequestFault.EMPTY: 422,
    RequestFault.TOO_MANY: 413,
    RequestFault.BODY_TOO_LARGE: 413,
    RequestFault.UNSUPPORTED: 415,
    RequestFault.TOO_SLOW: 408,
    RequestFault.TOO_LONG: 413,
    RequestFault.UNAUTHORIZED: 401,
    RequestFault.FORBIDDEN: 403,
    RequestFault.OVER_QUOTA: 429,
    RequestFault.BUSY: 503,
    RequestFault.NOT_READY: 503,
    RequestFault.NOT_ANSWERED: 503,
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class NativeCandidate(_Strict):
    """One candidate, in first-stage order."""

    text: StrictStr = Field(description="Document text; blank documents are not scored and keep first-stage order")
    id: Annotated[StrictStr, Field(min_length=1, max_length=512)] | None = Field(
        default=None, description="The caller's id, unique in the request"
    )
    scores: CandidateScores = None


class NativeRequest(_Strict):
    """What ``POST /v1/cascade/rerank`` takes."""

    query: StrictStr = Field(min_length=1, description="The query")
    candidates: Annotated[list[NativeCandidate], FailFast()] = Field(
        min_length=1, description="Candidates in first-stage order"
    )
    top_n: Annotated[StrictInt, Field(ge=1)] | None = Field(default=None, description="Places answered; unset: all")
    deadline_ms: Annotated[FiniteFloat, Field(strict=True, ge=0, le=MOST_DEADLINE_MS)] | None = Field(
        default=None, description="Time until the answer must leave; unset: a header, else the release"
    )
    tenant: Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = Field(
        default=None, description="Whose request it is; where keys are asked for, no other than the key's"
    )
    priority: Annotated[StrictInt, Field(ge=0, le=LOWEST_PRIORITY)] = Field(
        default=0, description="Class that it waits in under load, 0 the first; a key may allow later ones only"
    )
    instruction: Annotated[StrictStr, Field(min_length=1)] | None = Field(
        default=None, description="What relevance means here; refused where the release's stages take none"
    )
    fail_closed: StrictBool = Field(default=False, description="Answer 503 in place of a degraded order")
    explain: StrictBool = Field(default=False, description="Add the decision to the answer")


class NativeResult(_Strict):
    """One place of the order."""

    index: int = Field(description="Position in the request's candidates")
    id: str | None = Field(description="The caller's id")
    score: float = Field(description="Falls strictly down the order, in (0, 1)")
    stage: Literal["large", "small", "retrieval"] = Field(description="What placed it")


class NativeAnswer(_Strict):
    """What ``POST /v1/cascade/rerank`` answers."""

    results: list[NativeResult]
    decision_id: str
    release: str
    stage: Literal["large", "small", "retrieval"]
    degraded: list[str] = Field(description="Why the answer is not what the release planned; empty when it is")
    explain: dict[str, Any] | None = Field(default=None, description="The decision, when asked for")


class NativeError(_Strict):
    """What an error looks like."""

    code: str
    field: str
    message: str
    error: str
    detail: str


class NativeFormat:
    """Speak the native format. Unknown fields are refused here, since nobody sends them by habit."""

    name = Dialect.NATIVE

    def parse(self, body: Any, headers: Mapping[str, str], most_documents: int) -> Parsed:
        refuse_too_many(body, "candidates", most_documents)
        _refuse_cheaply(body)
        given = validate(NativeRequest, body)
        if Text(given.query).is_blank:
            raise RequestError(RequestFault.SCHEMA, "query", "must not be blank")
        ids = [candidate.id for candidate in given.candidates if candidate.id is not None]
        if len(set(ids)) != len(ids):
            raise RequestError(RequestFault.SCHEMA, "candidates", "ids must be unique")
        candidates = tuple(
            Candidate(Text(candidate.text), candidate.id, present_scores(candidate.scores))
            for candidate in given.candidates
        )
        request = Request(
            query=Text(given.query),
            candidates=candidates,
            top_n=given.top_n,
            deadline_ms=deadline_from(headers) if given.deadline_ms is None else given.deadline_ms,
            tenant=given.tenant,
            priority=given.priority,
            fail_closed=given.fail_closed or fail_closed_from(headers),
            instruction=Text(given.instruction) if given.instruction is not None else None,
        )
        return Parsed((request,), Options(explain=given.explain))

    def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
        decision = ranking.decision
        body: dict[str, Any] = {
            "results": [
                {"index": item.index, "id": item.id, "score": item.score, "stage": item.stage}
                for item in ranking.results
            ],
            "decision_id": decision.id,
            "release": decision.release,
            "stage": decision.stage,
            "degraded": decision.degraded,
        }
        if parsed.options.explain:
            body["explain"] = decision_record(decision)
        return Answer(200, orjson.dumps(body), headers=answer_headers(ranking))

    def error(self, error: RequestError) -> Answer:
        body = {
            "code": error.fault,
            "field": error.field,
            "message": str(error),
            "error": str(error),
            "detail": str(error),
        }
        return Answer(_STATUS[error.fault], orjson.dumps(body), headers=error_headers(error))


def _refuse_cheaply(body: Any) -> None:
    """Refuse what pydantic would make a fault of each: unknown names and score channels, of which there is no end."""
    _refuse_unknown(body, NativeRequest, "")
    listed = body.get("candidates") if isinstance(body, dict) else None
    channels: set[str] = set()
    for index, candidate in enumerate(listed if isinstance(listed, list) else ()):
        _refuse_unknown(candidate, NativeCandidate, f"candidates.{index}.")
        scores = candidate.get("scores") if isinstance(candidate, dict) else None
        if isinstance(scores, dict):
            refuse_many_channels(len(scores), f"candidates.{index}.scores")
            channels.update(scores)
            refuse_many_channels(len(channels), "candidates")


def _refuse_unknown(given: Any, model: type[BaseModel], where: str) -> None:
    if isinstance(given, dict) and not given.keys() <= model.model_fields.keys():
        name = next(name for name in given if name not in model.model_fields)
        raise RequestError(RequestFault.SCHEMA, where + plain_name(name), "Extra inputs are not permitted")
