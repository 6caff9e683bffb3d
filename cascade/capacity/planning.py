"""Plan a release's levels: demand to work, work to load, load to replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cascade.capacity.demand import Demand, Evidence, Unit, demands, safe_mode_demands
from cascade.capacity.headroom import Headroom
from cascade.capacity.notes import notes, safe_mode_note
from cascade.capacity.pair_work import PairWork, Reading, pair_work
from cascade.capacity.plan import SAFE_MODE, LevelPlan, Plan, Pool, StageLoad
from cascade.capacity.throughput import Throughput, Throughputs
from cascade.capacity.traffic import OverLength, Traffic
from cascade.errors import ConfigError
from cascade.policy.release import EmbeddingStage, HostedStage, OnnxStage, Release, StageSpec
from cascade.types import StageName

__all__ = ["PlannedLevel", "make_plan"]

_A_LIST: Final = PairWork(sequences=1.0, tokens=0.0, computed=0.0, over_share=0.0)
"""What a list takes is measured whole: no token of it is reckoned."""


@dataclass(frozen=True, slots=True)
class PlannedLevel:
    """A load level: its name, the whole release that it is, and what was measured of it, surest first."""

    name: str
    release: Release
    evidence: Sequence[Evidence] = ()


@dataclass(frozen=True, slots=True)
class _Planning:
    """What every level is planned with."""

    traffic: Traffic
    throughputs: Throughputs
    headroom: Headroom

    def level(self, name: str, release: Release, found: Mapping[StageName, Demand]) -> LevelPlan:
        stages = tuple(self._stage(stage, _spec(release, stage), demand) for stage, demand in found.items())
        seconds: dict[Pool, float] = {}
        for each in stages:
            if each.pool is not None and each.seconds is not None:
                seconds[each.pool] = seconds.get(each.pool, 0.0) + each.seconds
        if self.throughputs.sidecar_requests_per_s is not None:
            seconds[Pool.SIDECAR] = seconds.get(Pool.SIDECAR, 0.0) + 1.0 / self.throughputs.sidecar_requests_per_s
        planned = self.traffic.arrivals.planned_qps
        replicas = {pool: self.headroom.needed(planned * each) for pool, each in seconds.items()}
        return LevelPlan(name, stages, seconds, replicas)

    def _stage(self, stage: StageName, spec: StageSpec, demand: Demand) -> StageLoad:
        traffic, throughput = self.traffic, self.throughputs.stages.get(stage)
        if demand.unit is Unit.LISTS:
            return _of_lists(stage, demand, throughput)
        over_length = traffic.over_length.get(stage, OverLength.TRUNCATE)
        padding, buckets = (1.0, ()) if throughput is None else (throughput.padding, throughput.buckets)
        tokens = demand.tokens or traffic.pair_tokens_of.get(stage, traffic.pair_tokens)
        reading = Reading(spec.max_length, over_length, padding, buckets)
        work = pair_work(tokens, traffic.query_tokens, reading, stage)
        if isinstance(spec, HostedStage):
            return StageLoad(stage, None, demand, work, None)
        if throughput is None and demand.pairs:
            raise ConfigError(f"no throughput of the stage {stage}; give --throughput {stage}=pairs_per_s:NUMBER")
        inside = isinstance(spec, OnnxStage | EmbeddingStage)
        pool = Pool.SIDECAR if inside else Pool(stage)
        seconds = 0.0 if throughput is None else demand.pairs * throughput.seconds(work)
        return StageLoad(stage, pool, demand, work, seconds)


def make_plan(
    levels: Sequence[PlannedLevel],
    traffic: Traffic,
    throughputs: Throughputs,
    headroom: Headroom,
    have: Mapping[str, int] | None = None,
) -> Plan:
    """Return the plan of a release's levels, and of its safe mode where it reads a calibration.

    The first level is the release as it stands. Raises ConfigError where a stage has no throughput, where one is given
    for a stage that is not there or not ours, and where ``have`` does not name just the pools that there are.
    """
    first = levels[0].release
    _check_stages(first, throughputs)
    planning = _Planning(traffic, throughputs, headroom)
    plans = [planning.level(each.name, each.release, demands(each.release, traffic, each.evidence)) for each in levels]
    told = notes(first, traffic, throughputs, plans)
    safe = safe_mode_demands(first, traffic)
    plans += [] if safe is None else [planning.level(SAFE_MODE, first, safe)]
    pools = tuple(dict.fromkeys(pool for each in plans for pool in each.seconds))
    needed = {pool: plans[0].replicas[pool] for pool in pools}
    at_hand = _have(have, needed)
    told += safe_mode_note(plans, at_hand, headroom, traffic.arrivals.planned_qps)
    return Plan(traffic.arrivals, headroom, tuple(plans), at_hand, have is not None, tuple(told))


def _spec(release: Release, stage: StageName) -> StageSpec:
    spec = release.stages.small if stage is StageName.SMALL else release.stages.large
    if spec is None:
        raise ValueError(f"the release has no stage {stage}")
    return spec


def _of_lists(stage: StageName, demand: Demand, throughput: Throughput | None) -> StageLoad:
    """Return the load of a stage that orders lists: no replicas of it are planned where nothing tells what one does."""
    if throughput is None:
        return StageLoad(stage, None, demand, _A_LIST, None)
    return StageLoad(stage, Pool(stage), demand, _A_LIST, demand.pairs * throughput.seconds(_A_LIST))


def _check_stages(release: Release, throughputs: Throughputs) -> None:
    stages = {StageName.SMALL: release.stages.small, StageName.LARGE: release.stages.large}
    for stage, throughput in throughputs.stages.items():
        spec = stages[stage]
        if spec is None:
            raise ConfigError(f"throughput: the release has no stage {stage}")
        if isinstance(spec, HostedStage):
            raise ConfigError(f"throughput: {stage} is hosted; its replicas are the provider's")
        if spec.orders is not (throughput.lists_per_s is not None):
            does = "orders lists: give lists_per_s" if spec.orders else "scores pairs: give pairs_per_s or tokens_per_s"
            raise ConfigError(f"throughput: {stage} {does}")


def _have(have: Mapping[str, int] | None, needed: Mapping[Pool, int]) -> dict[Pool, int]:
    if have is None:
        return dict(needed)
    if set(have) != set(needed):
        raise ConfigError(f"--have: name just the replicas that are planned: {', '.join(needed) or 'none are'}")
    return {pool: have[pool] for pool in needed}
