"""The score cache, from settings to the stages of a release."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from cascade.cache.key import KeyMaker
from cascade.cache.memory import MemoryStore
from cascade.cache.redis import RedisEvents, RedisStore, connect
from cascade.cache.score_cache import CacheEvents, Looked, ScoreCache
from cascade.cache.stage import CachedStage
from cascade.cache.store import Store
from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.policy.release import EmbeddingStage, Release
from cascade.policy.stage_specs import StageBase
from cascade.rollout.identity import not_as_declared
from cascade.server.redis_address import redis_address
from cascade.server.secret_file import secret_of
from cascade.server.settings import Settings
from cascade.stages.base import Observed, Stage
from cascade.stages.build import specs_of
from cascade.telemetry.cache_metrics import CacheMetrics
from cascade.telemetry.logs import note
from cascade.types import SCORING, Arm, BreakerState, StageName

__all__ = ["CacheState", "cache_state", "cached_stages", "check_cache", "examine_cache", "open_cache", "redis_events"]


class CacheState(StrEnum):
    """Whether scores of a stage are kept, and why not. The list is closed."""

    USED = "used"
    OFF = "off"
    NOT_AS_DECLARED = "not_as_declared"
    NOT_IDENTIFIED = "not_identified"
    NEVER = "never"


def open_cache(
    settings: Settings, environment: Mapping[str, str], metrics: CacheMetrics, clock: Clock
) -> ScoreCache | None:
    """Return the cache of a process, not yet started; None where settings want none. Raises ConfigError."""
    if settings.cache == "off":
        return None
    secret = secret_of(settings.cache_key_file, "cache_key_file")

    def looked(stage: StageName, arm: Arm, found: Looked) -> None:
        metrics.looked(stage, arm, hits=found.hits, shared=found.shared, misses=found.misses, faults=found.faults)

    return ScoreCache(
        _store(settings, environment, secret, metrics, clock),
        KeyMaker(secret),
        clock,
        stages=frozenset(SCORING) if settings.cache_stages == "all" else frozenset((StageName(settings.cache_stages),)),
        is_as_declared=_is_as_declared,
        events=CacheEvents(looked=looked, followed=metrics.followed.observe),
    )


def check_cache(settings: Settings, environment: Mapping[str, str]) -> None:
    """Read what the cache needs, without connecting. Raises ConfigError."""
    if settings.cache == "off":
        return
    secret_of(settings.cache_key_file, "cache_key_file")
    if settings.cache == "redis":
        connect(redis_address(str(settings.cache_redis_url), environment))


async def examine_cache(settings: Settings, environment: Mapping[str, str], clock: Clock) -> tuple[str, str | None]:
    """Return the kind of cache that settings ask for, and why it cannot be used, None where it can. A Redis is asked once."""
    try:
        check_cache(settings, environment)
        if settings.cache != "redis":
            return settings.cache, None
        secret = secret_of(settings.cache_key_file, "cache_key_file")
        store = _redis(settings, environment, secret, clock, RedisEvents())
    except ConfigError as error:
        return settings.cache, str(error)
    try:
        why = await store.why_not()
    finally:
        await store.aclose()
    return settings.cache, None if why is None else f"the Redis does not answer ({why}): every lookup is a miss"


def _store(
    settings: Settings, environment: Mapping[str, str], secret: bytes, metrics: CacheMetrics, clock: Clock
) -> Store:
    if settings.cache == "memory":
        return MemoryStore(settings.cache_bytes, settings.cache_ttl_seconds, clock, metrics.lost)

    return _redis(settings, environment, secret, clock, redis_events(metrics))


def redis_events(metrics: CacheMetrics) -> RedisEvents:
    """Return what counts and logs how a Redis stands: a line after the start, then one an outage and one at its end."""
    is_out = False

    def changed(state: BreakerState, why: str | None) -> None:
        nonlocal is_out
        metrics.breaker_open.set(state is not BreakerState.CLOSED)
        if state is BreakerState.HALF_OPEN or is_out is (state is BreakerState.OPEN):
            return  # opened again after a try, it is in the same outage
        is_out = state is BreakerState.OPEN
        note("warning" if is_out else "info", "score cache", state=state, why=why if is_out else None)

    def reached(why: str | None) -> None:
        state = "answers" if why is None else "no_answer"
        note("info" if why is None else "warning", "score cache", state=state, why=why)

    return RedisEvents(dropped=metrics.dropped, breaker=changed, reached=reached)


def _redis(
    settings: Settings, environment: Mapping[str, str], secret: bytes, clock: Clock, events: RedisEvents
) -> RedisStore:
    return RedisStore(
        connect(redis_address(str(settings.cache_redis_url), environment)),
        secret,
        ttl_s=settings.cache_ttl_seconds,
        most_ms=settings.cache_redis_ms,
        most_waiting=settings.cache_redis_queue,
        clock=clock,
        events=events,
    )


def _is_as_declared(spec: StageBase, observed: Observed) -> bool:
    return not not_as_declared(spec, observed, observed)


def cache_state(stage: Stage, spec: StageBase) -> CacheState:
    """Return whether scores are kept of a stage as a pipeline asks it."""
    if isinstance(spec, EmbeddingStage):
        return CacheState.NEVER
    if not isinstance(stage, CachedStage):
        return CacheState.OFF
    if stage.identity() is None:
        return CacheState.NOT_AS_DECLARED
    return CacheState.USED if stage.is_identified else CacheState.NOT_IDENTIFIED


def cached_stages(
    cache: ScoreCache | None, release: Release, stages: Mapping[StageName, Stage], arm: Arm | None
) -> Mapping[StageName, Stage]:
    """Return the stages as the pipelines of an arm ask them. What is of no arm never sees the cache.

    A bi-encoder stays as it is: it keeps the vectors of documents, which serve every query.
    """
    if cache is None or arm is None:
        return stages
    specs = specs_of(release)
    return {
        name: stage
        if name not in cache.stages or isinstance(specs[name], EmbeddingStage)
        else CachedStage(stage, specs[name], cache, name, arm)
        for name, stage in stages.items()
    }
