"""The body of a native request, and the order in its answer. No I/O."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, SupportsFloat

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from cascade.clients.options import Options
from cascade.errors import CascadeError
from cascade.text import Text

__all__ = ["Candidate", "Order", "Place", "SidecarError", "kept_order", "read_order", "request_body"]

_LONGEST_ID: Final = 512
_NO_ANSWER: Final = "no_answer"


class SidecarError(CascadeError):
    """Say why there is no order of the sidecar's, without a word of the query, the documents or the answer.

    ``status`` is that of the answer, None where there was none; ``code`` is the sidecar's own where it told one.
    """

    def __init__(self, why: str, *, status: int | None = None, code: str | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Candidate:
    """One document in first-stage order. ``scores`` holds what the framework has, by channel: a number or None."""

    text: Text
    id: str | None = None
    scores: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """One place of an order: the position among the candidates, its score in (0, 1), and what placed it."""

    index: int
    score: float | None
    stage: str


@dataclass(frozen=True, slots=True)
class Order:
    """Places, best first, and what the sidecar told of them. ``error`` says why it told nothing."""

    places: tuple[Place, ...] = ()
    decision_id: str | None = None
    release: str | None = None
    degraded: tuple[str, ...] = ()
    error: str | None = None

    def told(self, place: Place) -> dict[str, Any]:
        """Return what goes into the metadata of a place's document; ``error`` only where there is one."""
        told: dict[str, Any] = {
            "stage": place.stage,
            "score": place.score,
            "decision_id": self.decision_id,
            "release": self.release,
            "degraded": list(self.degraded),
        }
        return told if self.error is None else told | {"error": self.error}


def request_body(options: Options, query: Text, candidates: Sequence[Candidate]) -> bytes:
    """Return the body for ``POST /v1/cascade/rerank``.

    An id that the sidecar would not take (seen before, empty, too long) is left out, as is a score that is None or not
    finite: neither is a reason to lose an order. Halves of surrogate pairs become question marks. Raises SidecarError for
    a score that is no number at all.
    """
    unique = _unique_ids(candidate.id for candidate in candidates)
    body: dict[str, Any] = {
        "query": query.reveal(),
        "candidates": [
            {"text": candidate.text.reveal(), "id": name, "scores": _present(index, candidate.scores)}
            for index, (candidate, name) in enumerate(zip(candidates, unique, strict=True))
        ],
        "priority": options.priority,
    }
    optional = {"top_n": options.top_n, "deadline_ms": options.deadline_ms, "tenant": options.tenant}
    body |= {name: value for name, value in optional.items() if value is not None}
    return json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def _unique_ids(ids: Iterable[str | None]) -> Iterable[str | None]:
    seen: set[str] = set()
    for name in ids:
        usable = name is not None and 0 < len(name) <= _LONGEST_ID and name not in seen
        if usable and name is not None:
            seen.add(name)
        yield name if usable else None


def _present(index: int, scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores that are there and finite."""
    numbers: dict[str, float] = {}
    for channel, given in scores.items():
        if given is None:
            continue
        number = _number(given)
        if number is None:
            raise SidecarError(f"candidates.{index}.scores.{channel}: is not a number")
        if math.isfinite(number):
            numbers[channel] = number
    return numbers


def _number(given: Any) -> float | None:
    if isinstance(given, bool) or not isinstance(given, SupportsFloat):
        return None
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        return None


class _Place(BaseModel):
    index: int
    score: FiniteFloat
    stage: Literal["large", "small", "retrieval"]


class _Answer(BaseModel):
    results: list[_Place]
    decision_id: str
    release: str
    degraded: list[Annotated[str, Field(pattern=r"^[a-z_]{1,64}$")]]


def read_order(answer: bytes, count: int, top_n: int | None) -> Order:
    """Return the order in an answer about ``count`` candidates.

    Raises SidecarError unless it places ``top_n`` of them (all where None), each once.
    """
    try:
        read = _Answer.model_validate_json(answer, strict=True)
    except ValidationError:
        read = None
    if read is None:
        raise SidecarError("the answer is not a sidecar's", status=200)
    places = tuple(Place(item.index, item.score, item.stage) for item in read.results)
    wanted = count if top_n is None else min(top_n, count)
    indices = {place.index for place in places}
    if len(places) != wanted or len(indices) != wanted or not all(0 <= index < count for index in indices):
        raise SidecarError(f"the answer does not place {wanted} of {count} candidates, each once", status=200)
    return Order(places, read.decision_id, read.release, tuple(read.degraded))


def kept_order(count: int, top_n: int | None, error: SidecarError) -> Order:
    """Return the order given, without scores, and why it was kept."""
    places = tuple(Place(index, None, "retrieval") for index in range(count)[:top_n])
    return Order(places, degraded=(_NO_ANSWER,), error=str(error))
