"""vLLM's ``/rerank``, and in one answer what clients of Jina, Cohere, Voyage and Mixedbread read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import AliasChoices, BaseModel, Field

from cascade.decision import Ranking
from cascade.errors import RequestError, RequestFault
from cascade.policy.release import Release
from cascade.server.dialects.base import Options, Parsed
from cascade.server.dialects.first_stage import candidates_of, refuse_excess
from cascade.server.dialects.nested_errors import nested_error
from cascade.server.dialects.vllm_fields import (
    Flat,
    FlatList,
    VllmOptions,
    clips,
    instruction,
    outward_score,
    priority,
    refuse_unmet,
    untaken,
    usage,
    wants_logits,
)
from cascade.server.http import Answer, answer_headers, deadline_from, fail_closed_from, refuse_too_many, validate
from cascade.text import Text
from cascade.types import Dialect, Request

__all__ = ["VllmAnswer", "VllmFormat", "VllmRequest", "models"]

_Places = Annotated[int, Field(ge=0)] | None


class VllmRequest(VllmOptions):
    """What vLLM's ``POST /rerank`` takes, and the spellings of Jina, Cohere, Voyage and Mixedbread."""

    query: Flat = Field(description="A string, {text} or {content: [{type: text, text}]}")
    documents: FlatList = Field(
        min_length=1,
        validation_alias=AliasChoices("documents", "input"),
        description="Documents in first-stage order, in the same forms as the query; also input",
    )
    top_n: _Places = Field(default=0, description="Places answered; 0 and null: all")
    top_k: _Places = Field(default=0, description="The same, as Voyage's and Mixedbread's clients spell it")
    return_documents: bool | None = Field(default=None, description="Repeat each document")
    return_input: bool | None = Field(default=None, description="Repeat each document as input")
    raw_scores: bool | None = Field(default=None, description="True: answer the logit of the score")


class EchoedDocument(BaseModel):
    """A document as it was sent."""

    text: str
    multi_modal: None


class VllmResult(BaseModel):
    """One place of the order; both scores are the same."""

    index: int
    relevance_score: float
    score: float
    document: EchoedDocument | None = Field(default=None, description="Only with return_documents, and never null")
    input: str = Field(default="", description="Only with return_input")


class Usage(BaseModel):
    """Tokens that the stages read."""

    prompt_tokens: int
    total_tokens: int


class _ApiVersion(BaseModel):
    version: Literal["1", "2"]


class _BilledUnits(BaseModel):
    search_units: int


class _Meta(BaseModel):
    api_version: _ApiVersion
    billed_units: _BilledUnits


class VllmAnswer(BaseModel):
    """What the rerank routes answer, best first; ``results`` and ``data`` are the same list."""

    id: str
    model: str
    usage: Usage
    results: list[VllmResult]
    data: list[VllmResult]
    meta: _Meta


class VllmFormat:
    """Speak vLLM's rerank format. ``api_version`` is Cohere's of the route."""

    name = Dialect.VLLM

    def __init__(self, api_version: Literal["1", "2"]) -> None:
        self._meta = {"api_version": {"version": api_version}, "billed_units": {"search_units": 1}}

    def parse(self, body: Any, headers: Mapping[str, str], most_documents: int) -> Parsed:
        spelling = "input" if isinstance(body, dict) and "input" in body and "documents" not in body else "documents"
        refuse_too_many(body, spelling, most_documents)
        refuse_excess(body, most_documents)
        refuse_unmet(body)
        given = validate(VllmRequest, body)
        if given.top_n and given.top_k and given.top_n != given.top_k:
            raise RequestError(RequestFault.SCHEMA, "top_k", "differs from top_n")
        told, told_as = instruction(given)
        request = Request(
            query=Text(given.query),
            candidates=candidates_of(given.documents, given.first_stage),
            dialect=self.name,
            top_n=given.top_n or given.top_k or None,
            deadline_ms=deadline_from(headers),
            fail_closed=fail_closed_from(headers),
            instruction=told,
            priority=priority(given),
            **clips(given),
        )
        options = Options(
            echo=bool(given.return_documents),
            echo_input=bool(given.return_input),
            raw_scores=wants_logits(given) or bool(given.raw_scores),
            model=given.model,
            ignored=untaken(body, VllmRequest, spelling),
            instruction_field=told_as,
        )
        return Parsed((request,), options)

    def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
        candidates, options = parsed.request.candidates, parsed.options
        results: list[dict[str, Any]] = []
        for item in ranking.results:
            score = outward_score(item, options)
            results.append({"index": item.index, "relevance_score": score, "score": score})
            if options.echo:
                results[-1]["document"] = {"text": candidates[item.index].text.reveal(), "multi_modal": None}
            if options.echo_input:
                results[-1]["input"] = candidates[item.index].text.reveal()
        body = {
            "id": f"score-{ranking.decision.id}",
            "model": options.model or ranking.decision.release,
            "usage": usage(ranking.decision),
            "results": results,
            "data": results,
            "meta": self._meta,
        }
        return Answer(200, orjson.dumps(body), headers=answer_headers(ranking, options.ignored))

    def error(self, error: RequestError) -> Answer:
        return nested_error(error)


def models(release: Release, started: int) -> dict[str, Any]:
    """Return what ``GET /v1/models`` answers: one model, named for the release."""
    specs = [spec for spec in (release.stages.large, release.stages.small) if spec is not None]
    card = {
        "id": release.release,
        "object": "model",
        "created": started,
        "owned_by": "cascade",
        "root": specs[0].model if specs else release.release,
        "parent": None,
        "max_model_len": min((spec.max_length for spec in specs), default=512),
        "permission": [],
    }
    return {"object": "list", "data": [card]}
