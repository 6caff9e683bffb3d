"""The contract of a dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cascade.errors import RequestError
from cascade.server.http import Answer
from cascade.types import Dialect, Ranking, Request

__all__ = ["DialectFormat", "Options", "Parsed"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller asked of the answer's form."""

    echo: bool = False
    raw_scores: bool = False
    model: str | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """A valid request, and the form of its answer."""

    request: Request
    options: Options


class DialectFormat(Protocol):
    """Parse a request, render an answer and report an error as one kind of server does."""

    name: Dialect

    def parse(self, body: Any, headers: Mapping[str, str], most_documents: int) -> Parsed:
        """Return the request in a JSON body. Raises RequestError."""
        ...

    def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
        """Return the answer for a ranking."""
        ...

    def error(self, error: RequestError) -> Answer:
        """Return the answer for an error."""
        ...
