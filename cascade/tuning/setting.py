"""One way to run a stage: what a search changes, one thing at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cascade.policy.release import OnePair, TokenBudget

__all__ = ["Batching", "Setting", "batching_words"]

Batching = OnePair | TokenBudget


@dataclass(frozen=True, slots=True)
class Setting:
    """Threads that share the work, how pairs share a call, weights by name, and requests that score at a time."""

    threads: int
    batching: Batching
    weights: str
    max_in_flight: int

    def with_batching(self, batching: Batching) -> Setting:
        """Return the same with pairs batched otherwise."""
        return replace(self, batching=batching)


def batching_words(batching: Batching) -> str:
    """Return how the value of the variable ``batch`` is written."""
    return "one-pair" if isinstance(batching, OnePair) else f"{batching.max_total_tokens} tokens"
