"""From a body to its requests and to the release that decides them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cascade.errors import RequestError
from cascade.server.active import ActiveRelease
from cascade.server.dialects.base import DialectFormat, Parsed
from cascade.server.traffic import Traffic
from cascade.telemetry.records import Assignment

__all__ = ["UNIT_HEADER", "Chosen", "parse_and_choose"]

UNIT_HEADER: Final = "x-cascade-unit"
"""A caller's stable id, of a user or a session: all its requests are decided by one arm."""
_TO_THE_ONE: Final = Assignment()


@dataclass(frozen=True, slots=True)
class Chosen:
    """The requests of a body, the release that decides all of them, and how they came to it."""

    parsed: Parsed
    release: ActiveRelease
    assigned: Assignment = _TO_THE_ONE


def parse_and_choose(traffic: Traffic, dialect: DialectFormat, body: Any, headers: Mapping[str, str]) -> Chosen:
    """Parse a body within the limits of the release that decides it. Raises RequestError.

    Where traffic is split that is told by the caller's unit, else by the first query: a body is parsed first within
    the wider limits, and once more where those of its release are narrower.
    """
    if not traffic.is_split:
        stable = traffic.stable
        return Chosen(dialect.parse(body, headers, _most_documents(stable)), stable)
    most = traffic.max_documents
    parsed = dialect.parse(body, headers, most)
    release, arm = traffic.choose(headers.get(UNIT_HEADER) or parsed.request.query.reveal())
    if _most_documents(release) < most:
        try:
            parsed = dialect.parse(body, headers, _most_documents(release))
        except RequestError:
            traffic.refused(arm)
            raise
    return Chosen(parsed, release, traffic.assigned(arm))


def _most_documents(release: ActiveRelease) -> int:
    return release.pipeline.release.limits.max_documents
