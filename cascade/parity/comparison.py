"""A whole comparison, as checks and the report read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cascade.parity.batches import Jitter
from cascade.parity.compare import Compared
from cascade.parity.contrast import Contrast
from cascade.parity.pairs import OneSided
from cascade.parity.score_space import SpaceCheck
from cascade.parity.spaces import Spaces
from cascade.parity.token_ids import Tokens

__all__ = ["Comparison", "Coverage", "SideFacts"]


@dataclass(frozen=True, slots=True)
class SideFacts:
    """What is known of one side beside its scores. ``kind`` is table, stage or endpoint.

    ``ms_per_pair`` goes by list. What was not measured is None or empty, and ``reasons`` says why by name.
    ``failed`` maps a list to the reason.
    """

    kind: str
    described: Mapping[str, Any]
    runs: int = 1
    jitter: Jitter | None = None
    ms_per_pair: Mapping[str, float] = field(default_factory=dict)
    bytes: int | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was compared and what only one side has."""

    pairs: int
    queries: int
    only_ref: OneSided
    only_cand: OneSided
    neither: int
    of_queries: int
    queries_only_ref: int
    queries_only_cand: int
    without_candidates: int

    @property
    def missing_at_cand(self) -> float:
        """Return the share of REF's pairs, or of its queries where that is more, that CAND has not."""
        return max(_share(self.only_ref.pairs, self.pairs), _share(self.queries_only_ref, self.of_queries))

    @property
    def missing_at_ref(self) -> float:
        """Return the share of CAND's pairs, or of its queries where that is more, that REF has not."""
        return max(_share(self.only_cand.pairs, self.pairs), _share(self.queries_only_cand, self.of_queries))


def _share(absent: int, common: int) -> float:
    return absent / (absent + common) if absent else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides held against each other.

    ``built_in`` is the same of the built-in lists where ``compared`` is of others. ``contrasts`` is None where
    neither side was scored anew. ``tokens`` None has its ``tokens_reason``. Arrays are not shown: the event loop
    asks for the representation of what a task returns.
    """

    ref: SideFacts
    cand: SideFacts
    spaces: Spaces
    coverage: Coverage
    compared: Compared = field(repr=False)
    space: SpaceCheck
    built_in: Compared | None = field(default=None, repr=False)
    contrasts: tuple[Contrast, ...] | None = None
    tokens: Tokens | None = None
    tokens_reason: str = ""

    @property
    def contrast_lost(self) -> int | None:
        """Return how many contrasts REF has right and CAND has not, None where they were not scored by both."""
        if not self.contrasts or not any(
            item.ref_margin is not None and item.cand_margin is not None for item in self.contrasts
        ):
            return None
        return sum(item.lost for item in self.contrasts)

    @property
    def token_mismatch(self) -> float | None:
        """Return the share of pairs, or of calls, that the sides read differently."""
        return self.tokens.differing / self.tokens.compared if self.tokens and self.tokens.compared else None
