"""vLLM's ``/rerank`` and ``/score``, which Jina's and most other clients understand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr

from cascade.errors import RequestError, RequestFault
from cascade.policy.merge import logit
from cascade.policy.release import Release
from cascade.server.dialects.base import Options, Parsed
from cascade.server.http import Answer, answer_headers, deadline_from, fail_closed_from, validate
from cascade.text import Text
from cascade.types import Candidate, Dialect, RankedCandidate, Ranking, Request

__all__ = ["VllmFormat", "VllmRequest", "VllmScoreFormat", "VllmScoreRequest", "models"]

_STATUS: Final = {
    RequestFault.NOT_JSON: (400, "Bad Request"),
    RequestFault.SCHEMA: (400, "Bad Request"),
    RequestFault.EMPTY: (400, "BadRequestError"),
    RequestFault.TOO_MANY: (413, "BadRequestError"),
    RequestFault.BODY_TOO_LARGE: (413, "BadRequestError"),
    RequestFault.UNSUPPORTED: (415, "Bad Request"),
    RequestFault.NOT_ANSWERED: (503, "ServiceUnavailableError"),
}
_SPELLINGS: Final = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))


def _flatten(value: object) -> object:
    """Turn ``{"text": …}`` and ``{"content": [{"type": "text", …}]}`` into a string; leave the rest to be refused."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("text"), str):
        return value["text"]
    parts = value.get("content")
    if isinstance(parts, list) and parts and all(_is_text(part) for part in parts):
        return "\n".join(part["text"] for part in parts)
    return None


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _listed(value: object) -> object:
    return [value] if isinstance(value, (str, dict)) else value


_Flat = Annotated[StrictStr, BeforeValidator(_flatten)]


class VllmRequest(BaseModel):
    """What vLLM's ``POST /rerank`` takes. Unknown fields are ignored and numbers and flags read laxly, as vLLM does."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    model: StrictStr | None = Field(default=None, description="Any name is accepted, and repeated in the answer")
    query: _Flat = Field(description="A string, {text} or {content: [{type: text, text}]}")
    documents: Annotated[list[_Flat], BeforeValidator(_listed)] = Field(
        min_length=1, description="Documents in first-stage order, in the same forms as the query"
    )
    top_n: Annotated[int, Field(ge=0)] | None = Field(default=0, description="Places answered; 0 and null: all")
    return_documents: bool | None = Field(default=None, description="Repeat each document")
    use_activation: bool | None = Field(default=None, description="False: answer the logit of the score")


class VllmScoreRequest(BaseModel):
    """What vLLM's ``POST /score`` takes, in its oldest spelling of four; one query, one or more documents."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    model: StrictStr | None = None
    text_1: Annotated[list[_Flat], BeforeValidator(_listed)] = Field(
        min_length=1, max_length=1, description="The query; also queries or data_1"
    )
    text_2: Annotated[list[_Flat], BeforeValidator(_listed)] = Field(
        min_length=1, description="The documents; also documents, items or data_2"
    )
    use_activation: bool | None = None


class _Errors:
    """Report errors in vLLM's nested form; ``message`` and ``detail`` beside it are what other clients read."""

    def error(self, error: RequestError) -> Answer:
        status, kind = _STATUS[error.fault]
        text = str(error)
        nested = {"message": text, "type": kind, "param": error.field, "code": status}
        retry = {"retry-after": str(error.retry_after_s)} if error.retry_after_s is not None else {}
        return Answer(status, orjson.dumps({"error": nested, "message": text, "detail": text}), headers=retry)


class VllmFormat(_Errors):
    """Speak vLLM's rerank format."""

    name = Dialect.VLLM

    def parse(self, body: Any, headers: Mapping[str, str], most_documents: int) -> Parsed:
        _count(body, "documents", most_documents)
        given = validate(VllmRequest, body)
        request = Request(
            query=Text(given.query),
            candidates=tuple(Candidate(Text(text)) for text in given.documents),
            dialect=self.name,
            top_n=given.top_n or None,
            deadline_ms=deadline_from(headers),
            fail_closed=fail_closed_from(headers),
        )
        options = Options(
            echo=bool(given.return_documents), raw_scores=given.use_activation is False, model=given.model
        )
        return Parsed(request, options)

    def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
        candidates, options = parsed.request.candidates, parsed.options
        results: list[dict[str, Any]] = []
        for item in ranking.results:
            results.append({"index": item.index, "relevance_score": _score(item, options)})
            if options.echo:
                results[-1]["document"] = {"text": candidates[item.index].text.reveal(), "multi_modal": None}
        return _answer(ranking, options, {"results": results})


class VllmScoreFormat(_Errors):
    """Speak vLLM's score format: scores in input order."""

    name = Dialect.VLLM_SCORE

    def parse(self, body: Any, headers: Mapping[str, str], most_documents: int) -> Parsed:
        first, second = _spelling(body)
        _count(body, second, most_documents)
        if isinstance(body, dict) and isinstance(body.get(first), list) and len(body[first]) > 1:
            rule = "one query a request; a list of several queries is not supported"
            raise RequestError(RequestFault.SCHEMA, first, rule)
        try:
            given = validate(VllmScoreRequest, _respelled(body, {first: "text_1", second: "text_2"}))
        except RequestError as error:
            name, dot, rest = error.field.partition(".")
            caller_name = {"text_1": first, "text_2": second}.get(name, name)
            raise RequestError(error.fault, caller_name + dot + rest, error.rule) from None
        request = Request(
            query=Text(given.text_1[0]),
            candidates=tuple(Candidate(Text(text)) for text in given.text_2),
            dialect=self.name,
            deadline_ms=deadline_from(headers),
            fail_closed=fail_closed_from(headers),
        )
        return Parsed(request, Options(raw_scores=given.use_activation is False, model=given.model))

    def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
        options = parsed.options
        scored = sorted(ranking.results, key=lambda item: item.index)
        data = [{"index": item.index, "object": "score", "score": _score(item, options)} for item in scored]
        return _answer(ranking, options, {"object": "list", "created": int(time.time()), "data": data})


def _spelling(body: Any) -> tuple[str, str]:
    """Return the names that a body gives query and documents: a pair in full, else one begun, else the oldest."""
    given = body if isinstance(body, dict) else {}
    return max(_SPELLINGS, key=lambda pair: (pair[0] in given) + (pair[1] in given))


def _respelled(body: Any, names: Mapping[str, str]) -> Any:
    """Return a body whose query and documents have the names of the model, and no other spelling beside them."""
    if not isinstance(body, dict):
        return body
    rest = {key: value for key, value in body.items() if key not in ("text_1", "text_2")}
    return rest | {new: body[old] for old, new in names.items() if old in body}


def _count(body: Any, key: str, most: int) -> None:
    listed = body.get(key) if isinstance(body, dict) else None
    if isinstance(listed, list) and len(listed) > most:
        raise RequestError(RequestFault.TOO_MANY, key, f"at most {most} are accepted")


def _score(item: RankedCandidate, options: Options) -> float:
    return logit(item.score) if options.raw_scores else item.score


def _answer(ranking: Ranking, options: Options, body: dict[str, Any]) -> Answer:
    tokens = sum(item.cost.tokens for item in ranking.decision.rounds if item.cost is not None)
    head = {
        "id": f"score-{ranking.decision.id}",
        "model": options.model or ranking.decision.release,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return Answer(200, orjson.dumps(head | body), headers=answer_headers(ranking))


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
