"""A cached stage over a scripted one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import TypeAdapter

from cascade.cache.key import KeyMaker
from cascade.cache.memory import MemoryStore
from cascade.cache.score_cache import CacheEvents, Looked, ScoreCache
from cascade.cache.stage import CachedStage
from cascade.cache.store import Store
from cascade.errors import StageRefused
from cascade.guard.deadline import Deadline
from cascade.guard.tenant import asking_for
from cascade.policy.release import StageSpec
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from cascade.stages.verdicts import EVERY_REFUSED
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Arm, Exclusion, StageName, StageScores

__all__ = ["SECRET", "Cached", "RefusesAlone", "arranged", "by_length", "cache_of", "keys_of", "spec_of", "texts"]

SECRET: Final = b"a secret of no one"
_SPECS: Final[TypeAdapter[StageSpec]] = TypeAdapter(StageSpec)
_DECLARED: Final = {"adapter": "tei", "url": "http://stage.example", "model": "m", "engine": "tei/1.9"}


def spec_of(**changes: Any) -> StageSpec:
    """Return what a release says of a stage, with fields changed."""
    return _SPECS.validate_python(_DECLARED | changes)


def by_length(query: str, text: str) -> float:
    """Score by lengths, so that each pair of this test suite has a score of its own."""
    return len(text) + len(query) / 100


def texts(*written: str) -> list[Text]:
    """Return documents."""
    return [Text(text) for text in written]


def _now() -> float:
    return asyncio.get_running_loop().time()


def cache_of(store: Store | None = None, secret: bytes = SECRET, **fields: Any) -> ScoreCache:
    """Return a cache, on the clock of the loop that runs when it is asked."""
    store = MemoryStore(1_000_000, 60.0, _now) if store is None else store
    return ScoreCache(store, KeyMaker(secret), _now, **fields)


@dataclass(slots=True)
class Cached:
    """A cached stage, the one inside, and what was told of lookups."""

    inner: ScriptedStage
    cache: ScoreCache
    stage: CachedStage
    looked: list[Looked] = field(default_factory=list)
    followed_s: list[float] = field(default_factory=list)

    async def score(
        self,
        *documents: str,
        query: str = "q",
        tenant: str | None = None,
        instruction: str | None = None,
        within_ms: float = 1000.0,
        call_id: str = "call",
    ) -> StageScores:
        """Score documents for a query, on behalf of a tenant."""
        with asking_for(tenant):
            return await self.stage.score(
                Text(query),
                texts(*documents),
                deadline=Deadline.after_ms(within_ms, _now),
                call_id=call_id,
                instruction=None if instruction is None else Text(instruction),
            )

    @property
    def sent(self) -> list[list[str]]:
        """Return the documents of each round that was sent."""
        return self.inner.calls

    def beside(self, inner: ScriptedStage | None = None, *, arm: Arm = Arm.STABLE, **spec: Any) -> Cached:
        """Return another stage over the same cache, declared with other fields."""
        return arranged(inner, cache=self.cache, arm=arm, **spec)


class RefusesAlone(ScriptedStage):
    """A stage that says of a round of refused documents alone that all were refused, as the one behind HTTP does."""

    async def score(self, *args: Any, **fields: Any) -> Any:
        scored = await ScriptedStage.score(self, *args, **fields)
        refused = Exclusion.REFUSED in scored.excluded.values()
        if refused and all(score is None for score in scored.scores):
            raise StageRefused("small", EVERY_REFUSED, elapsed_ms=0.0, budget_ms=1.0, sent=len(scored.scores))
        return scored


def arranged(
    inner: ScriptedStage | None = None,
    *,
    score_of: Callable[[str, str], float] = by_length,
    cache: ScoreCache | None = None,
    arm: Arm = Arm.STABLE,
    **spec: Any,
) -> Cached:
    """Return a cached stage over a scripted one, which has the fingerprint that its release declares."""
    declared = spec_of(**spec)
    inner = inner or ScriptedStage(score_of)
    inner.fingerprint = fingerprint_of(declared, serializer(declared.serializer))
    looked: list[Looked] = []
    followed: list[float] = []
    events = CacheEvents(looked=lambda name, of, found: looked.append(found), followed=followed.append)
    cache = replace(cache or cache_of(), events=events)
    stage = CachedStage(inner, declared, cache, StageName.SMALL, arm)
    return Cached(inner, cache, stage, looked, followed)


def keys_of(count: int) -> Sequence[bytes]:
    """Return distinct keys."""
    return [number.to_bytes(16, "little") for number in range(count)]
