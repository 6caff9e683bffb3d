"""vLLM's ``/score``: one query for all documents, or a query for each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, Field

from cascade.decision import Ranking
from cascade.errors import RequestError, RequestFault
from cascade.server.dialects.base import Options, Parsed
from cascade.server.dialects.first_stage import candidates_of, refuse_excess
from cascade.server.dialects.nested_errors import nested_error
from cascade.server.dialects.vllm import Usage
from cascade.server.dialects.vllm_fields import (
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

__all__ = ["SPELLINGS", "VllmScoreAnswer", "VllmScoreFormat", "VllmScoreRequest"]

SPELLINGS: Final = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))
"""What clients call queries and documents, oldest first."""


class VllmScoreRequest(VllmOptions):
    """What vLLM's ``POST /score`` takes, in its oldest spelling of four."""

    text_1: FlatList = Field(min_length=1, description="The query, or one for each document; also queries or data_1")
    text_2: FlatList = Field(min_length=1, description="The documents; also documents, items or data_2")


class VllmScore(BaseModel):
    """The score of one pair."""

    index: int
    object: Literal["score"]
    score: float


class VllmScoreAnswer(BaseModel):
    """What the score routes answer, in input order."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[VllmScore]
    usage: Usage


class VllmScoreFormat:
    """Speak vLLM's score format: scores in input order."""

    name = Dialect.VLLM_SCORE

    def parse(self, body: Any, headers: Mapping[str, str], most_documents: int) -> Parsed:
        first, second = _spelling(body)
        refuse_too_many(body, first, most_documents)
        refuse_too_many(body, second, most_documents)
        refuse_excess(body, most_documents)
        refuse_unmet(body)
        given = _validated(body, first, second)
        told, told_as = instruction(given)
        groups = _groups(given, first)
        candidates = candidates_of(given.text_2, given.first_stage)
        requests = tuple(
            Request(
                query=Text(query),
                candidates=tuple(candidates[index] for index in positions),
                dialect=self.name,
                deadline_ms=deadline_from(headers),
                fail_closed=fail_closed_from(headers),
                instruction=told,
                priority=priority(given),
                small_only=len(groups) > 1 and len(positions) == 1,
                **clips(given),
            )
            for query, positions in groups.items()
        )
        options = Options(
            raw_scores=wants_logits(given),
            model=given.model,
            ignored=untaken(body, VllmScoreRequest, first, second),
            instruction_field=told_as,
        )
        return Parsed(requests, options, tuple(map(tuple, groups.values())))

    def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
        options = parsed.options
        scored = sorted(ranking.results, key=lambda item: item.index)
        body = {
            "id": f"score-{ranking.decision.id}",
            "object": "list",
            "created": int(time.time()),
            "model": options.model or ranking.decision.release,
            "data": [
                {"index": item.index, "object": "score", "score": outward_score(item, options)} for item in scored
            ],
            "usage": usage(ranking.decision),
        }
        return Answer(200, orjson.dumps(body), headers=answer_headers(ranking, options.ignored))

    def error(self, error: RequestError) -> Answer:
        return nested_error(error)


def _groups(given: VllmScoreRequest, first: str) -> dict[str, list[int]]:
    """Return the positions of each query's documents, in the order that queries come.

    The documents of equal queries are candidates of one another, so that a stage reads them in one round.
    """
    queries, count = given.text_1, len(given.text_2)
    if len(queries) == 1:
        return {queries[0]: list(range(count))}
    if len(queries) != count:
        rule = f"one query, or one for each document: {len(queries)} for {count} are neither"
        raise RequestError(RequestFault.SCHEMA, first, rule)
    groups: dict[str, list[int]] = {}
    for position, query in enumerate(queries):
        groups.setdefault(query, []).append(position)
    return groups


def _validated(body: Any, first: str, second: str) -> VllmScoreRequest:
    """Validate a body in any spelling. Errors name fields as the caller spells them."""
    try:
        return validate(VllmScoreRequest, _respelled(body, {first: "text_1", second: "text_2"}))
    except RequestError as error:
        name, dot, rest = error.field.partition(".")
        caller_name = {"text_1": first, "text_2": second}.get(name, name)
        raise RequestError(error.fault, caller_name + dot + rest, error.rule) from None


def _spelling(body: Any) -> tuple[str, str]:
    """Return the names that a body gives query and documents: a pair in full, else one begun, else the oldest."""
    given = body if isinstance(body, dict) else {}
    return max(SPELLINGS, key=lambda pair: (pair[0] in given) + (pair[1] in given))


def _respelled(body: Any, names: Mapping[str, str]) -> Any:
    """Return what the model reads of a body, its query and documents under the model's names."""
    if not isinstance(body, dict):
        return body
    options = {name: body[name] for name in VllmOptions.model_fields if name in body}
    return options | {new: body[old] for old, new in names.items() if old in body}
