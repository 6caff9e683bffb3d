"""Kinds of faults, and which call of a server meets which, by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["ON_THE_WIRE", "Deck", "Fault", "FaultKind"]


class FaultKind(StrEnum):
    """What goes wrong with a call. The last two are done by clients, not by servers."""

    REFUSE = "refuse"
    RESET_BEFORE = "reset_before"
    RESET_WITHIN = "reset_within"
    CLOSED_WITHIN = "closed_within"
    STALL = "stall"
    STALL_WITHIN = "stall_within"
    DRIP = "drip"
    SLOW = "slow"
    NOT_HTTP = "not_http"
    NOT_JSON = "not_json"
    TRUNCATED_JSON = "truncated_json"
    BAD_ENCODING = "bad_encoding"
    TOO_LARGE = "too_large"
    TOO_FEW = "too_few"
    TOO_MANY = "too_many"
    TWICE = "twice"
    BAD_INDEX = "bad_index"
    NOT_A_NUMBER = "not_a_number"
    ERROR_BODY = "error_body"
    STATUS = "status"
    STATUS_RETRY_AFTER = "status_retry_after"
    LEAVE = "leave"
    LEAVE_IN_BODY = "leave_in_body"


ON_THE_WIRE: Final = frozenset(
    {
        FaultKind.REFUSE,
        FaultKind.RESET_BEFORE,
        FaultKind.RESET_WITHIN,
        FaultKind.CLOSED_WITHIN,
        FaultKind.STALL,
        FaultKind.STALL_WITHIN,
        FaultKind.DRIP,
        FaultKind.SLOW,
        FaultKind.NOT_HTTP,
    }
)
"""Kinds that are done to the connection; the others of servers are done to the answer."""
_OF_SERVERS: Final = tuple(kind for kind in FaultKind if not kind.startswith("leave"))
_EPISODES: Final = (
    FaultKind.REFUSE,
    FaultKind.STALL,
    FaultKind.RESET_BEFORE,
    FaultKind.SLOW,
    FaultKind.STATUS,
    FaultKind.STATUS_RETRY_AFTER,
    FaultKind.NOT_JSON,
)
"""What happens to many calls in a row, so that breakers open."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``variant`` picks among the forms of its kind, ``part`` in [0, 1) is where or how long."""

    kind: FaultKind
    variant: int
    part: float


class Deck:
    """Deal faults to the calls of one server, every kind equally often: the same seed deals the same.

    ``share`` of the calls meet one. Of every ``episode_every`` calls ``episode_calls`` in a row meet one kind.
    """

    def __init__(self, seed: str, *, share: float, episode_every: int = 400, episode_calls: int = 16) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._share = share
        self._every = episode_every
        self._calls = episode_calls
        self._dealt = 0
        self._kinds: list[FaultKind] = []
        self._variants: dict[FaultKind, int] = {}
        self._episode = FaultKind.REFUSE
        self._begins = self._ahead()

    def deal(self) -> Fault | None:
        """Return what happens to the next call, None where nothing does."""
        number = self._dealt
        self._dealt += 1
        if number >= self._begins + self._calls:
            self._begins += self._every
            self._episode = self._random.choice(_EPISODES)
        if self._begins <= number < self._begins + self._calls:
            return self._fault(self._episode, keep=True)
        if self._random.random() >= self._share:
            return None
        if not self._kinds:
            self._kinds = list(_OF_SERVERS)
            self._random.shuffle(self._kinds)
        return self._fault(self._kinds.pop())

    def _ahead(self) -> int:
        return self._random.randrange(self._every // 2, self._every) if self._calls else 2**62

    def _fault(self, kind: FaultKind, *, keep: bool = False) -> Fault:
        """Return a fault in the next form of its kind; within an episode it stays the same form."""
        variant = self._variants.setdefault(kind, self._random.randrange(1000))
        if not keep:
            self._variants[kind] += 1
        return Fault(kind, variant, self._random.random())
