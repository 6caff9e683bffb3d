"""How many calls may be made again: a share of those that were answered."""

from __future__ import annotations

from typing import Final

__all__ = ["RetryBudget"]

_MOST: Final = 10.0
_SLACK: Final = 1e-9
"""What adding a share again and again loses."""


class RetryBudget:
    """A bucket of retries: each answered call puts ``share`` of one in, each retry takes one out.

    It begins empty, so retries never exceed that share of the answered calls, and ten at most come in a row. While
    nothing is answered nothing is put in: a server that is down is not asked twice by everyone. The form is that of
    gRPC's retry throttling (A6), with answered calls as its successes.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._retries = 0.0

    def answered(self) -> None:
        """Put in what an answered call is worth."""
        self._retries = min(_MOST, self._retries + self._share)

    def take(self) -> bool:
        """Take one retry out; tell whether there was one."""
        if self._retries < 1.0 - _SLACK:
            return False
        self._retries = max(0.0, self._retries - 1.0)
        return True
