"""The contract of a dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cascade.decision import Ranking
from cascade.errors import RequestError
from cascade.server.http import Answer
from cascade.types import Dialect, Request

__all__ = ["DialectFormat", "Options", "Parsed"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller asked of the answer's form.

    ``ignored`` names known fields that do nothing here; ``instruction_field`` is how the caller
    spelt the instruction.
    """

    echo: bool = False
    echo_input: bool = False
    raw_scores: bool = False
    model: str | None = None
    explain: bool = False
    ignored: tuple[str, ...] = ()
    instruction_field: str = "instruction"


@dataclass(frozen=True, slots=True)
class Parsed:
    """One valid request for each query of a body, and the form of the answer.

    Where there are several, ``positions`` gives for each the places of its candidates in the body.
    """

    requests: tuple[Request, ...]
    options: Options
    positions: tuple[tuple[int, ...], ...] = ()

    @property
    def request(self) -> Request:
        """Return the first request; nearly every body has one."""
        return self.requests[0]


class DialectFormat(Protocol):
    """Parse a request, render an answer and report an error as one kind of server does."""

    @property
    def name(self) -> Dialect:
        """Return whose format it is."""
        ...

    def parse(self, body: Any, headers: Mapping[str, str], most_documents: int) -> Parsed:
        """Return the request in a JSON body. Raises RequestError."""
        ...

    def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
        """Return the answer for a ranking."""
        ...

    def error(self, error: RequestError) -> Answer:
        """Return the answer for an error."""
        ...
