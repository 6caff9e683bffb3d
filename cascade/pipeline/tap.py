"""Where answered requests can be had, to be scored once more beside the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cascade.decision import Ranking
from cascade.telemetry.records import Assignment
from cascade.types import Request

__all__ = ["Offered", "Tap"]


class Offered(Protocol):
    """Who is offered each answered request."""

    def __call__(self, request: Request, ranking: Ranking, assigned: Assignment) -> None:
        """Take it or leave it, at once: the answer leaves after."""
        ...


@dataclass(slots=True)
class Tap:
    """What the pipelines of one release offer what they answered to: nobody, until ``offer`` is set."""

    offer: Offered | None = None
