"""The file of judged queries that both releases are asked: what it holds, checked whole before anything uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from cascade.calibration.broken_rules import broken_rule
from cascade.errors import ConfigError
from cascade.policy.frozen import Frozen
from cascade.text import Text
from cascade.types import Candidate, Request

__all__ = ["GoldQueries", "GoldQuery", "parse_gold"]

_MOST_QUERIES: Final = 10_000
_MOST_DOCUMENTS: Final = 1_000
_MOST_BYTES: Final = 32 * 2**20
_Written = Annotated[str, Field(min_length=1, max_length=200_000, repr=False)]
_Channel = Annotated[str, Field(min_length=1, max_length=64)]


class _Document(Frozen):
    text: _Written
    gain: float = Field(ge=0, le=1000)
    scores: Mapping[_Channel, float] = Field(default={}, max_length=16, repr=False)


class _Query(Frozen):
    text: _Written
    documents: Annotated[tuple[_Document, ...], Field(strict=False)] = Field(
        min_length=2, max_length=_MOST_DOCUMENTS, repr=False
    )

    @model_validator(mode="after")
    def _one_gains(self) -> Self:
        if not any(document.gain > 0 for document in self.documents):
            raise ValueError("documents: none has a gain above 0, so no order of them is better than another")
        return self


class _File(Frozen):
    format: Literal["cascade-gold/1"]
    k: int = Field(default=10, ge=1, le=100)
    queries: Annotated[tuple[_Query, ...], Field(strict=False)] = Field(
        min_length=1, max_length=_MOST_QUERIES, repr=False
    )


@dataclass(frozen=True, slots=True)
class GoldQuery:
    """One judged query as a request, its documents in first-stage order, and the gain of each (n,)."""

    request: Request
    gains: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GoldQueries:
    """Judged queries, and the length of the head that counts."""

    queries: tuple[GoldQuery, ...]
    k: int


def parse_gold(data: bytes) -> GoldQueries:
    """Check the bytes of a gold file. Raises ConfigError naming place and rule, and never what stands there."""
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"gold: larger than {_MOST_BYTES} bytes")
    try:
        told: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"gold: no JSON, at line {error.lineno}, column {error.colno}") from None
    try:
        file = _File.model_validate(told)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None
    return GoldQueries(tuple(_query(each) for each in file.queries), file.k)


def _query(query: _Query) -> GoldQuery:
    candidates = tuple(Candidate(Text(each.text), scores=each.scores) for each in query.documents)
    return GoldQuery(Request(Text(query.text), candidates), np.array([each.gain for each in query.documents]))


def _explain(error: ValidationError) -> str:
    """Tell the first fault. A key that is not known may be text, and so may a channel's name: they are not repeated."""
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = [str(part) if isinstance(part, int) or part in _KEYS else "?" for part in fault["loc"]]
    return f"gold: {'.'.join(path) or 'file'}: {broken_rule(fault)}"


_KEYS: Final = frozenset({*_File.model_fields, *_Query.model_fields, *_Document.model_fields})
