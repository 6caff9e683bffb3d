"""What becomes of a request that is to be scored beside its answer."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ShadowOutcome"]


class ShadowOutcome(StrEnum):
    """What became of a request in the sample: exactly one of these. The list is closed.

    Only ``COMPARED`` gives a ranking loss. The first group never began, the second had the candidate decide.
    """

    COMPARED = "compared"

    PAUSED = "paused"
    """There was load: a level above normal, or what is scored beside answers was paused."""
    QUEUE_FULL = "queue_full"
    BYTES_FULL = "bytes_full"
    CLOSED = "closed"
    STABLE_DEGRADED = "stable_degraded"
    """The stable release's answer was not what it planned."""

    CANDIDATE_DEGRADED = "candidate_degraded"
    """A stage of the candidate failed, was late, or had no room left for what nobody waits for."""
    NO_LARGE_STAGE = "no_large_stage"
    """The stable release has no large stage that could judge: none, or one that orders lists.

    Of the whole depth that would write another list than answers have, and what it omits would have the order that was sent.
    """
    SILVER_FAILED = "silver_failed"
    """The stable large stage failed, was late, or had no room left."""
    SILVER_EXCLUDED = "silver_excluded"
    """The stable large stage left out a document: what that is worth is not known."""
    SILVER_TIED = "silver_tied"
    """The stable large stage scored documents alike at its head: which is worth more is not known."""
    TIMED_OUT = "timed_out"
    FAULT = "fault"
