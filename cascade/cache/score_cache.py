"""What all cached stages of a process share: where scores are kept, under which keys, and what is being scored now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cascade.cache.flights import Flights
from cascade.cache.key import KeyMaker
from cascade.cache.store import Store
from cascade.guard.deadline import Clock
from cascade.policy.stage_specs import StageBase
from cascade.stages.base import Observed
from cascade.types import SCORING, Arm, StageName

__all__ = ["CacheEvents", "Looked", "ScoreCache"]


@dataclass(frozen=True, slots=True)
class Looked:
    """What became of the documents of one round, each counted once.

    ``hits`` were kept, ``shared`` are scored by a round that is under way already (or stand twice in this one),
    ``misses`` were not kept, and of ``faults`` the store could not tell.
    """

    hits: int
    shared: int
    misses: int
    faults: int


@dataclass(frozen=True, slots=True)
class CacheEvents:
    """Callbacks, each cheap and never failing: what a round found, and the seconds it waited for another's."""

    looked: Callable[[StageName, Arm, Looked], None] = lambda stage, arm, looked: None
    followed: Callable[[float], None] = lambda seconds: None


@dataclass(frozen=True, slots=True)
class ScoreCache:
    """Keep scores in ``store`` under the keys of ``keys``.

    ``stages`` are those whose scores are kept. ``is_as_declared`` tells whether a server is what the release says: the
    scores of one that is not are neither kept nor answered.
    """

    store: Store
    keys: KeyMaker
    clock: Clock
    stages: frozenset[StageName] = frozenset(SCORING)
    is_as_declared: Callable[[StageBase, Observed], bool] = lambda spec, observed: True
    events: CacheEvents = CacheEvents()
    flights: Flights = field(default_factory=Flights)

    def told(self) -> Mapping[str, Any]:
        """Return how it stands, as plain data."""
        return {**self.store.told(), "stages": sorted(self.stages), "rounds_under_way_for": len(self.flights)}
