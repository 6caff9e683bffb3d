"""The score cache of a process: from settings to what every arm's requests are answered from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from cascade.cache.key import KeyMaker
from cascade.cache.memory import MemoryStore
from cascade.cache.score_cache import ScoreCache
from cascade.cache.stage import CachedStage
from cascade.errors import StageBreakerOpen
from cascade.policy.release import EmbeddingStage
from cascade.rollout.shadow import AsideStages
from cascade.server.active import ActiveRelease
from cascade.server.caching import cache_state, cached_stages, open_cache
from cascade.server.settings import Settings
from cascade.stages.base import Observed
from cascade.stages.build import specs_of
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from cascade.telemetry.metrics import Metrics
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from cascade.text import Text
from cascade.types import Arm, StageName
from tests.server.releases import TEXTS, Closable, Models, another, served, stage_of
from tests.server.sidecar import LEVELS, Sidecar, release_of, sidecar

_BODY = {"query": "the kingfisher dives", "candidates": [{"text": text} for text in TEXTS], "explain": True}

_EMBEDDING = EmbeddingStage.model_validate(
    {"adapter": "onnx-embedding", "model": "m", "engine": "onnxruntime", "weights": {"folder": "/nowhere"}}
)


def _cache(**settings: Any) -> ScoreCache:
    """Return the cache of some settings, on the clock of the running loop."""
    loop = asyncio.get_running_loop()
    made = open_cache(Settings(**settings), {}, Metrics().cache, loop.time)
    assert made is not None
    return made


async def _ask(served: Sidecar, **fields: Any) -> dict[str, Any]:
    answer = await served.post("/v1/cascade/rerank", _BODY | fields)
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


def _cached(told: Mapping[str, Any]) -> dict[str, int]:
    return {item["stage"]: item["cached"] for item in told["explain"]["rounds"]}


class _Named(Models):
    """Models whose stages have the fingerprint that their release declares."""

    def build(self, name: StageName, spec: Any) -> Closable:
        made = super().build(name, spec)
        made.fingerprint = fingerprint_of(spec, serializer(spec.serializer))
        return made


def test_the_same_request_is_answered_from_what_is_kept() -> None:
    """The answer is the same, the servers are not asked, and explain, status and metrics say so."""

    async def run() -> None:
        metrics = Metrics()
        cache = open_cache(Settings(), {}, metrics.cache, asyncio.get_running_loop().time)
        kept = sidecar(cache=cache, metrics=metrics)
        first, second = await _ask(kept), await _ask(kept)
        assert first["results"] == second["results"]
        assert (_cached(first), _cached(second)) == ({"small": 0, "large": 0}, {"small": 4, "large": 4})
        assert first["explain"]["cached_pairs"] == 0
        assert second["explain"]["cached_pairs"] == 8
        assert second["explain"]["effective_pairs"] == 0
        assert (len(kept.small.calls), len(kept.large.calls)) == (1, 1)
        kept.small.fails = kept.large.fails = StageBreakerOpen
        third = await _ask(kept)
        assert (third["results"], third["degraded"]) == (first["results"], [])
        told = (await kept.admin.get("/status")).json()
        assert told["cache"] == {
            "kind": "memory",
            "scores": 8,
            "bytes": 8 * 336,
            "stages": ["large", "small"],
            "rounds_under_way_for": 0,
        }
        assert {stage["cache"] for stage in told["stages"].values()} == {"used"}
        shown = await kept.metrics()
        assert shown['cascade_cache_lookups_total{arm="stable",outcome="miss",stage="large"}'] == 4
        assert shown['cascade_cache_lookups_total{arm="stable",outcome="hit",stage="large"}'] == 8
        assert shown['cascade_pairs_total{stage="large"}'] == 4
        assert shown['cascade_stage_seconds_count{stage="large"}'] == 1
        assert shown["cascade_cache_scores"] == 8
        assert shown["cascade_cache_bytes"] == 8 * 336

    run_virtual(run())


def test_documents_that_are_refused_and_stand_twice_are_answered_as_without_a_cache() -> None:
    """What counts them does not fail on them, and with it the request."""

    async def run() -> None:
        candidates = [{"text": text} for text in ("bad", "bad", "bad", "the kingfisher dives")]
        told = []
        for cache in (None, _cache()):
            stages = (ScriptedStage(overlap, refuses=lambda text: text == "bad") for _ in range(2))
            kept = sidecar(*stages, cache=cache)
            told.append(await _ask(kept, candidates=candidates))
            shown = await kept.metrics()
            assert shown['cascade_pairs_total{stage="large"}'] == 1
        assert told[0]["results"] == told[1]["results"]

    run_virtual(run())


def test_a_tenant_is_not_answered_from_what_was_scored_for_another() -> None:
    """Whoever can ask must not learn what others have asked."""

    async def run() -> None:
        kept = sidecar(cache=_cache())
        await _ask(kept, tenant="acme")
        await _ask(kept, tenant="other")
        await _ask(kept)
        assert len(kept.large.calls) == 3
        assert _cached(await _ask(kept, tenant="acme")) == {"small": 4, "large": 4}

    run_virtual(run())


def test_a_callers_own_limit_makes_another_text() -> None:
    """What is cut off for one caller is not kept as the score of the whole."""

    async def run() -> None:
        kept = sidecar(cache=_cache())
        body = {"query": "the kingfisher dives", "documents": ["a kingfisher " * 20, "bread"]}
        for limit in ({}, {"max_tokens_per_doc": 8}, {"max_tokens_per_doc": 8}):
            answer = await kept.post("/v2/rerank", body | limit)
            assert answer.status_code == 200
        assert [len(call) for call in kept.large.calls] == [2, 1]
        whole, cut = (call[0] for call in kept.large.calls)
        assert whole.startswith(cut)
        assert len(cut) < len(whole)

    run_virtual(run())


def test_the_arms_of_a_rollout_share_what_they_score_alike() -> None:
    """A candidate with the same large stage begins with what is kept of it; each arm is counted apart."""

    async def run() -> None:
        metrics = Metrics()
        cache = open_cache(Settings(), {}, metrics.cache, asyncio.get_running_loop().time)
        models = _Named()
        kept = served(models, cache=cache, metrics=metrics)
        await _ask(kept)
        candidate = await another(kept, stages={"small": stage_of("other"), "large": stage_of("large")})
        kept.service.traffic.split(candidate, 1.0)
        assert _cached(await _ask(kept)) == {"small": 0, "large": 4}
        assert models.of("other").calls == [TEXTS]
        shown = await kept.metrics()
        assert shown['cascade_cache_lookups_total{arm="canary",outcome="hit",stage="large"}'] == 4
        assert shown['cascade_cache_lookups_total{arm="canary",outcome="miss",stage="small"}'] == 4

    run_virtual(run())


def test_what_is_scored_aside_reads_what_is_kept_and_one_way_leads_to_each_stage() -> None:
    """Of a stage that two releases share, cached or not, there is one that is asked aside."""

    async def run() -> None:
        kept = served(_Named(), cache=_cache())
        await _ask(kept)
        stable = kept.service.traffic.stable
        aside = AsideStages(kept.service.clock)
        first, again = aside.of(stable.ladder[0].every_stage), aside.of(stable.ladder[0].every_stage)
        bare = aside.of(stable.stages)
        for name in stable.stages:
            one, other = first[name], again[name]
            assert isinstance(one, CachedStage)
            assert isinstance(other, CachedStage)
            assert one.inner is other.inner is bare[name]
            assert one.inner is not stable.stages[name]

    run_virtual(run())


def test_what_decides_for_nobody_never_sees_the_cache() -> None:
    """A release that is being activated is tried at its servers, not at what is kept of others."""

    async def run() -> None:
        kept = served(_Named(), cache=_cache())
        candidate: ActiveRelease = await another(kept)
        assert candidate.arm is None
        assert not any(isinstance(stage, CachedStage) for stage in candidate.deciding().every_stage.values())
        kept.service.traffic.split(candidate, 0.5)
        assert all(isinstance(stage, CachedStage) for stage in candidate.deciding().every_stage.values())
        assert not any(isinstance(stage, CachedStage) for stage in candidate.stages.values())

    run_virtual(run())


def test_what_is_kept_hides_no_queue_from_the_load_levels() -> None:
    """A round that nothing left for met no queue: it says nothing of the wait there, nor of what the stage can do."""

    async def run() -> None:
        kept = sidecar(cache=_cache(), release=release_of(levels=LEVELS))
        for _ in range(9):
            await _ask(kept)
        told = kept.service.traffic.stable.pressure.look()
        assert (told.small.scored, told.large.scored) == (4, 4)
        assert sum(work.large_pairs for work in told.work.values()) == 4
        for _ in range(9):
            await _ask(kept)
        assert kept.service.traffic.stable.pressure.look().large.min_wait_ms is None

    run_virtual(run())


def test_settings_say_which_stages_are_cached() -> None:
    """One, both, or none; a bi-encoder never: it keeps the vectors of documents."""

    async def run() -> None:
        release = release_of(stages={"small": _EMBEDDING.model_dump(mode="json"), "large": stage_of("large")})
        stages = {name: ScriptedStage(overlap) for name in (StageName.SMALL, StageName.LARGE)}
        plain = release_of()
        for said, among, cached in (
            ("all", plain, {StageName.SMALL, StageName.LARGE}),
            ("small", plain, {StageName.SMALL}),
            ("large", plain, {StageName.LARGE}),
            ("all", release, {StageName.LARGE}),
        ):
            made = cached_stages(_cache(cache_stages=said), among, stages, Arm.STABLE)
            assert {name for name, stage in made.items() if isinstance(stage, CachedStage)} == cached
        assert open_cache(Settings(cache="off"), {}, Metrics().cache, time.monotonic) is None
        assert cached_stages(None, plain, stages, Arm.STABLE) is stages

    run_virtual(run())


def test_status_says_why_a_stage_is_not_cached() -> None:
    """It is not what is declared, was lost and not looked at since, nobody wants it, or it keeps vectors of its own."""

    async def run() -> None:
        cache = _cache(cache_stages="small")
        specs = specs_of(release_of())
        stages = {name: ScriptedStage(overlap) for name in (StageName.SMALL, StageName.LARGE)}
        made = cached_stages(cache, release_of(), stages, Arm.STABLE)
        small = stages[StageName.SMALL]
        states = {name: cache_state(stage, specs[name]) for name, stage in made.items()}
        assert states == {StageName.SMALL: "used", StageName.LARGE: "off"}
        small.is_identified = False
        assert cache_state(made[StageName.SMALL], specs[StageName.SMALL]) == "not_identified"
        small.observed = Observed(model="another")
        assert cache_state(made[StageName.SMALL], specs[StageName.SMALL]) == "not_as_declared"
        assert cache_state(small, _EMBEDDING) == "never"

    run_virtual(run())


def test_the_secret_of_a_process_of_its_own_is_random() -> None:
    """What is kept in memory ends with it."""

    async def run() -> None:
        one, other = _cache(), _cache()
        assert isinstance(one.store, MemoryStore)
        assert isinstance(one.keys, KeyMaker)
        asked: dict[str, Any] = {"tenant": None, "instruction": None, "max_length": 512}
        made = (
            cache.keys.of_query(b"", serializer("passthrough@1"), Text("q"), **asked).of_pairs([Text("d")])
            for cache in (one, other)
        )
        assert len({tuple(keys) for keys in made}) == 2

    run_virtual(run())
