"""First-stage scores in a request: what a channel may be called, how many there may be, and arrays beside documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import Field, FiniteFloat, StrictStr

from cascade.errors import RequestError, RequestFault
from cascade.server.http import plain_name
from cascade.text import Text
from cascade.types import Candidate

__all__ = [
    "CandidateScores",
    "FirstStage",
    "candidates_of",
    "present_scores",
    "refuse_excess",
    "refuse_many_channels",
]

_FIELD: Final = "first_stage"
_MOST_CHANNELS: Final = 16

_Name = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_Score = Annotated[FiniteFloat, Field(strict=True)] | None
_Column = Annotated[list[_Score], Field(fail_fast=True)]
_BY_CHANNEL: Final = Field(max_length=_MOST_CHANNELS, json_schema_extra={"additionalProperties": False})

CandidateScores = Annotated[
    Annotated[dict[_Name, _Score], _BY_CHANNEL] | None,
    Field(description="First-stage scores by channel; one that is null or left out is missing"),
]
FirstStage = Annotated[
    Annotated[dict[_Name, _Column], _BY_CHANNEL] | None,
    Field(description="First-stage scores by channel, each with a number or null (missing) for every document"),
]


def refuse_many_channels(count: int, field: str) -> None:
    """Refuse more channels than there may be, before anything looks at them."""
    if count > _MOST_CHANNELS:
        raise RequestError(RequestFault.SCHEMA, field, f"at most {_MOST_CHANNELS} channels are accepted")


def refuse_excess(body: Any, most_documents: int) -> None:
    """Refuse too many channels, and one longer than documents can be, before anything looks at the scores."""
    channels = body.get(_FIELD) if isinstance(body, dict) else None
    if isinstance(channels, dict):
        refuse_many_channels(len(channels), _FIELD)
        for name, scores in channels.items():
            if isinstance(scores, list) and len(scores) > most_documents:
                raise _unlike_documents(name)


def candidates_of(texts: Sequence[str], channels: Mapping[str, Sequence[float | None]] | None) -> tuple[Candidate, ...]:
    """Return documents with their scores by index. Raises RequestError for a channel of another length."""
    if not channels:
        return tuple(Candidate(Text(text)) for text in texts)
    for name, scores in channels.items():
        if len(scores) != len(texts):
            raise _unlike_documents(name)
    rows = zip(*channels.values(), strict=True)
    return tuple(
        Candidate(Text(text), scores=present_scores(dict(zip(channels, row, strict=True))))
        for text, row in zip(texts, rows, strict=True)
    )


def present_scores(scores: Mapping[str, float | None] | None) -> dict[str, float]:
    """Return the scores that are there: null is as no score, and null for all as no channel."""
    return {name: score for name, score in (scores or {}).items() if score is not None}


def _unlike_documents(name: str) -> RequestError:
    rule = "must have one number or null for every document"
    return RequestError(RequestFault.SCHEMA, f"{_FIELD}.{plain_name(name)}", rule)
