"""What a reader of a plan must know beside its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cascade.capacity.demand import Basis, Unit
from cascade.capacity.headroom import Headroom
from cascade.capacity.plan import SAFE_MODE, LevelPlan, Pool, StageLoad
from cascade.capacity.throughput import Throughputs
from cascade.capacity.traffic import OverLength, Traffic
from cascade.policy.release import Release
from cascade.types import StageName

__all__ = ["notes", "safe_mode_note"]

_OTHER_LENGTH: Final = 2.0
"""Beyond this ratio of lengths, work in proportion to tokens is a poor guess: attention grows with the square."""


def notes(release: Release, traffic: Traffic, throughputs: Throughputs, plans: Sequence[LevelPlan]) -> list[str]:
    """Return what is uncertain in a plan, the gravest first. ``plans`` are the levels, the release as it stands first."""
    told = [note for plan in plans for note in _worst(plan)]
    for stage in plans[0].stages:
        told += _time(release, stage)
        told += _length(traffic, throughputs, stage)
        if stage.demand.unit is Unit.LISTS:
            unplanned = "; no replicas of it are planned without lists_per_s" if stage.pool is None else ""
            told.append(f"{stage.stage} orders lists: they are counted, each a call, and no pairs or tokens{unplanned}")
        elif stage.pool is None:
            told.append(f"{stage.stage} is hosted: its pairs and tokens are told, and no replicas")
    inside = [str(stage.stage) for stage in plans[0].stages if stage.pool is Pool.SIDECAR]
    if len(inside) > 1:
        told.append(
            f"{' and '.join(inside)} run inside the sidecar and share its cores: their times add up on one pool of "
            "replicas; each throughput must be that of a whole sidecar with nothing else to do"
        )
    return told


def safe_mode_note(
    plans: Sequence[LevelPlan], have: Mapping[Pool, int], headroom: Headroom, planned_qps: float
) -> list[str]:
    """Tell where the replicas at hand carry the planned rate at the first level and not in safe mode."""
    first, last = (plan.safe_qps(have, headroom) for plan in (plans[0], plans[-1]))
    if plans[-1].name != SAFE_MODE or not last[0] < planned_qps * (1 - 1e-9) <= first[0]:
        return []
    rates = f"{last[0]:,.1f} of the planned {planned_qps:,.1f} queries a second"
    return [f"SAFE MODE: while the calibration does not hold, these replicas carry {rates}; {last[1]} fails first"]


def _worst(plan: LevelPlan) -> Iterator[str]:
    for stage in plan.stages:
        if stage.demand.basis is Basis.WORST:
            yield (
                f"WORST CASE: nothing tells how many pairs level {plan.name} sends to {stage.stage}; planned for the most "
                f"that it may send, {stage.pairs:.1f} a query. Give --report, --records or --metrics of this release"
            )


def _time(release: Release, stage: StageLoad) -> Iterator[str]:
    """Tell where a query alone keeps a replica busy for longer than the stage has time."""
    budgets = release.budgets
    name = "small_ms" if stage.stage is StageName.SMALL else "large_ms"
    budget_ms = budgets.small_ms if stage.stage is StageName.SMALL else budgets.large_ms
    if stage.seconds is not None and stage.seconds * 1000 > budget_ms:
        yield (
            f"TOO SLOW: a query keeps one replica of {stage.stage} busy for {stage.seconds * 1000:.0f} ms at full "
            f"throughput, and budgets.{name} is {budget_ms:g}: more replicas do not mend that, unless its calls are "
            "spread over them"
        )


def _length(traffic: Traffic, throughputs: Throughputs, stage: StageLoad) -> Iterator[str]:
    if stage.work.over_share > 0 and stage.pairs > 0:
        windows = traffic.over_length.get(stage.stage) is OverLength.WINDOWS
        yield (
            f"{stage.stage}: {stage.work.over_share:.1%} of pairs are longer than max_length and are "
            f"{'split into windows' if windows else 'cut there'}"
        )
    throughput = throughputs.stages.get(stage.stage)
    stated = None if throughput is None else throughput.pair_tokens
    if stated is not None:
        read = stage.work.tokens / stage.work.sequences
        if not 1 / _OTHER_LENGTH <= read / stated <= _OTHER_LENGTH:
            yield (
                f"{stage.stage}: throughput was stated for pairs of {stated:g} tokens and these have {read:.0f}: work is "
                "taken in proportion to tokens, which is rough so far apart"
            )
    elif throughput is not None and throughput.pairs_per_s is not None:
        yield (
            f"{stage.stage}: pairs_per_s is taken to hold for these pairs, of {stage.work.tokens:.0f} tokens; "
            "pair_tokens says what it was measured on"
        )
