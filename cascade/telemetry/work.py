"""What stages tell of their work as they do it: what pairs were read as, and each call of a model of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = ["NO_WORK_EVENTS", "Counted", "Ran", "ReadPairs", "WorkEvents"]


class Counted(StrEnum):
    """How tokens of a pair are known. The list is closed."""

    MEASURED = "measured"
    """By the model's own tokenizer."""
    TOLD = "told"
    """Estimates, scaled so that together they are what the server told of the round."""
    ESTIMATED = "estimated"
    """By `cascade.tokens` alone: the server does not tell."""


@dataclass(frozen=True, slots=True)
class ReadPairs:
    """What a round was read as, one entry a document.

    ``pair_tokens`` counts whole pairs, before a stage cuts them, as far as a text is looked at; of a bi-encoder, and of a
    tokenizer that reads pairs in one, what is left of them. ``query_tokens`` is None where nothing tells. ``inputs`` has the inputs that each
    document became, empty where the sidecar does not read it itself.
    """

    counted: Counted
    query_tokens: float | None
    pair_tokens: Sequence[float]
    inputs: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """One call of a model: how many inputs, their tokens, and the tokens that filled them up to one length."""

    inputs: int
    tokens: int
    padding: int


def _nobody(told: Any) -> None:
    """Take notice of nothing."""


@dataclass(frozen=True, slots=True)
class WorkEvents:
    """Callbacks, each cheap and never failing; ``ran`` is called by the threads that run models."""

    read: Callable[[ReadPairs], None] = _nobody
    ran: Callable[[Ran], None] = _nobody


NO_WORK_EVENTS: Final = WorkEvents()
