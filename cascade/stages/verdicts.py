"""What each way of failing means: is the call made again, does the breaker count it, was it the request's own fault."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cascade.errors import NO_TIME
from cascade.guard.breaker import Outcome

__all__ = ["EVERY_REFUSED", "TURNED_AWAY", "VERDICTS", "Retry", "Verdict", "verdict_of"]


class Retry(StrEnum):
    """When a call is made again. The list is closed.

    ``IN_TIME``: where the time that is left carries the pause and what such a call is expected to take, if that is
    known. ``IF_KNOWN``: the same, and only where it is known, since a server in need is not asked twice on a guess.
    """

    NEVER = "never"
    IN_TIME = "in_time"
    IF_KNOWN = "if_known"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure means. Whatever it is, the next stage is asked and the answer stays whole."""

    retry: Retry
    breaker: Outcome
    callers_fault: bool = False


_AGAIN: Final = Verdict(Retry.IN_TIME, Outcome.FAILURE)
_NO_ROOM: Final = Verdict(Retry.IF_KNOWN, Outcome.FAILURE)
_DOWN: Final = Verdict(Retry.NEVER, Outcome.FAILURE)
_THE_REQUEST: Final = Verdict(Retry.NEVER, Outcome.IGNORE, callers_fault=True)
_NOT_REACHED: Final = Verdict(Retry.NEVER, Outcome.IGNORE)

EVERY_REFUSED: Final = "every_document_refused"
"""The code of a round all of whose documents were refused, each by itself."""

VERDICTS: Final = {
    # no connection, or no complete answer
    "refused": _AGAIN,
    "reset": _AGAIN,
    "cut": _AGAIN,
    "lost": _AGAIN,
    "dns": _DOWN,
    "tls": _DOWN,
    "connect_timeout": _DOWN,
    # an answer that is none
    "not_http": _DOWN,
    "bad_encoding": _DOWN,
    "answer_too_large": _DOWN,
    "not_json": _DOWN,
    "wrong_shape": _DOWN,
    "error_body": _DOWN,
    "wrong_count": _DOWN,
    "bad_index": _DOWN,
    "duplicate_index": _DOWN,
    "not_a_number": _DOWN,
    "not_finite": _DOWN,
    "no_order": _DOWN,
    "cut_order": _DOWN,
    "not_bare": _DOWN,
    "refusal": _THE_REQUEST,  # of these passages: the model answers others
    "status_without_scores": _DOWN,
    # refusals that hold for every request
    "unauthorized": _DOWN,
    "forbidden": _DOWN,
    "payment_required": _DOWN,
    "no_route": _DOWN,
    "unknown_model": _DOWN,
    "not_a_reranker": _DOWN,
    "no_chat": _DOWN,
    # refusals of this request
    EVERY_REFUSED: _THE_REQUEST,
    "payload_limit": _THE_REQUEST,
    "too_long": _THE_REQUEST,
    "batch_too_large": _THE_REQUEST,
    # statuses
    "backend": _DOWN,  # 424: the same documents fail the same way
    "status_402": _DOWN,
    "status_408": _DOWN,
    "status_429": _NO_ROOM,
    "status_500": _AGAIN,
    "status_501": _DOWN,
    "status_502": _AGAIN,
    "status_503": _NO_ROOM,
    "status_504": _DOWN,
    "status_529": _NO_ROOM,
    # our own
    "breaker_open": _NOT_REACHED,
    NO_TIME: _NOT_REACHED,
    "waiting_for_room": _NOT_REACHED,
}
"""By the code of a StageError. A deadline that passes is judged by how long the server had (`HttpReranker`)."""


TURNED_AWAY: Final = frozenset({"refused", "status_429", "status_503", "status_529"})
"""What a server says, or does, before it begins: where a call costs much, only such a one is made again."""


def verdict_of(code: str) -> Verdict:
    """Return what a code means; a status that is not listed is the request's fault from 400 to 499, else the server's."""
    known = VERDICTS.get(code)
    if known is not None:
        return known
    if code.startswith("status_4"):
        return _THE_REQUEST
    return _AGAIN if code.startswith("status_5") else _DOWN
