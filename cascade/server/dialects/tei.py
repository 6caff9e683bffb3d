"""Text Embeddings Inference's ``/rerank``, ``/info`` and ``/health``, as of 1.9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, FailFast, Field, RootModel, StrictBool, StrictStr

from cascade import __version__
from cascade.decision import Ranking
from cascade.errors import RequestError, RequestFault
from cascade.policy.merge import logit
from cascade.policy.release import Release
from cascade.server.dialects.base import Options, Parsed
from cascade.server.dialects.first_stage import FirstStage, candidates_of, refuse_excess
from cascade.server.fields import ignored_fields
from cascade.server.http import (
    TEXT,
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

__all__ = ["TeiAnswer", "TeiError", "TeiFormat", "TeiRequest", "info"]

_IMITATED_VERSION: Final = "1.9.3"
_PLAIN: Final = {
    RequestFault.NOT_JSON: (400, "Failed to parse the request body as JSON: "),
    RequestFault.SCHEMA: (422, "Failed to deserialize the JSON body into the target type: "),
    RequestFault.BODY_TOO_LARGE: (413, "Failed to buffer the request body: length limit exceeded: "),
    RequestFault.UNSUPPORTED: (415, ""),
    RequestFault.TOO_SLOW: (408, ""),
}
_JSON: Final = {
    RequestFault.EMPTY: (400, "Empty"),
    RequestFault.TOO_MANY: (422, "Validation"),
    RequestFault.TOO_LONG: (422, "Validation"),
    RequestFault.FORBIDDEN: (403, "Forbidden"),
    RequestFault.OVER_QUOTA: (429, "Overloaded"),
    RequestFault.BUSY: (503, "Overloaded"),
    RequestFault.NOT_READY: (503, "Unhealthy"),
    RequestFault.NOT_ANSWERED: (503, "Unhealthy"),
}


class TeiRequest(BaseModel):
    """What TEI's ``POST /rerank`` takes. Unknown fields are ignored, as TEI does."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    query: StrictStr
    texts: Annotated[list[StrictStr], FailFast()] = Field(min_length=1, description="Documents in first-stage order")
    truncate: StrictBool | None = Field(default=None, description="Over-long texts are clipped whatever is said here")
    truncation_direction: Literal["Right", "right"] = Field(
        default="Right", description="Texts are clipped at their end; Left is refused"
    )
    raw_scores: StrictBool = Field(default=False, description="Answer the logit of the score")
    return_text: StrictBool = Field(default=False, description="Repeat each text")
    first_stage: FirstStage = None


class TeiResult(BaseModel):
    """One place of TEI's answer."""

    index: int
    score: float
    text: str = Field(default="", description="Only with return_text")


class TeiAnswer(RootModel[list[TeiResult]]):
    """What TEI's ``POST /rerank`` answers, best first."""


class TeiError(BaseModel):
    """What an error looks like where the request could be read; else it is plain text."""

    error: str
    error_type: str
    message: str
    detail: str


class TeiFormat:
    """Speak TEI's rerank format."""

    name = Dialect.TEI

    def parse(self, body: Any, headers: Mapping[str, str], most_documents: int) -> Parsed:
        refuse_too_many(body, "texts", most_documents, "batch size {given} > maximum allowed batch size {most}")
        refuse_excess(body, most_documents)
        given = validate(TeiRequest, body)
        if not given.query and "" in given.texts:
            raise RequestError(RequestFault.EMPTY, "texts", "query and text cannot both be empty")
        request = Request(
            query=Text(given.query),
            candidates=candidates_of(given.texts, given.first_stage),
            dialect=self.name,
            deadline_ms=deadline_from(headers),
            fail_closed=fail_closed_from(headers),
        )
        ignored = ignored_fields(body, TeiRequest.model_fields)
        if given.truncate is False:
            ignored = ("truncate", *ignored)
        return Parsed((request,), Options(echo=given.return_text, raw_scores=given.raw_scores, ignored=ignored))

    def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
        candidates, options = parsed.request.candidates, parsed.options
        results: list[dict[str, Any]] = []
        for item in ranking.results:
            score = logit(item.score) if options.raw_scores else item.score
            results.append({"index": item.index, "score": score})
            if options.echo:
                results[-1]["text"] = candidates[item.index].text.reveal()
        headers = answer_headers(ranking, options.ignored) | _times(ranking, parsed.request)
        return Answer(200, orjson.dumps(results), headers=headers)

    def error(self, error: RequestError) -> Answer:
        headers = error_headers(error)
        if error.fault is RequestFault.UNAUTHORIZED:  # TEI says nothing more
            return Answer(401, b"", TEXT, headers)
        if error.fault in _PLAIN:
            status, lead = _PLAIN[error.fault]
            return Answer(status, f"{lead}{error}".encode(), TEXT, headers)
        status, kind = _JSON[error.fault]
        body = {"error": str(error), "error_type": kind, "message": str(error), "detail": str(error)}
        return Answer(status, orjson.dumps(body), headers=headers)


def _times(ranking: Ranking, request: Request) -> dict[str, str]:
    """Return TEI's own headers with the sidecar's totals, in whole milliseconds."""
    costs = [item.cost for item in ranking.decision.rounds if item.cost is not None]
    characters = len(request.query) * len(request.candidates) + sum(len(c.text) for c in request.candidates)
    total = str(round(ranking.decision.total_ms))
    return {
        "x-compute-type": "cascade",
        "x-compute-time": total,
        "x-total-time": total,
        "x-compute-characters": str(characters),
        "x-compute-tokens": str(sum(cost.tokens for cost in costs)),
        "x-tokenization-time": str(round(sum(cost.tokenize_ms or 0 for cost in costs))),
        "x-queue-time": str(round(sum(cost.queue_ms or 0 for cost in costs))),
        "x-inference-time": str(round(sum(cost.compute_ms or 0 for cost in costs))),
    }


def info(release: Release) -> dict[str, Any]:
    """Return what ``GET /info`` answers: a reranker with this release's limits."""
    specs = [spec for spec in (release.stages.large, release.stages.small) if spec is not None]
    most = release.limits.max_documents
    return {
        "model_id": specs[0].model if specs else "none",
        "model_sha": specs[0].revision if specs else None,
        "model_dtype": specs[0].dtype if specs else "none",
        "served_model_name": release.release,
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_concurrent_requests": most,
        "max_input_length": min((spec.max_length for spec in specs), default=512),
        "max_batch_tokens": 16384,
        "max_batch_requests": None,
        "max_client_batch_size": most,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": _IMITATED_VERSION,
        "sha": None,
        "docker_label": f"cascade-{__version__}",
    }
