"""Where traffic goes: the stable release, and a share of it to a candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cascade.policy.levels import level_names
from cascade.rollout.arms import place, unit_number
from cascade.rollout.guardrails import Settled
from cascade.server.active import ActiveRelease
from cascade.server.queue_waits import QueueWaits
from cascade.server.recent_decisions import RecentDecisions
from cascade.server.tenant_quotas import TenantQuotas
from cascade.telemetry.faults import Faults
from cascade.telemetry.logs import note
from cascade.telemetry.metrics import Metrics
from cascade.telemetry.records import Assignment
from cascade.types import Arm

__all__ = ["Dealt", "Traffic"]


class Dealt(NamedTuple):
    """What decides a request, how the request came to it, and the number of its unit of traffic where there was a choice."""

    release: ActiveRelease
    assigned: Assignment
    unit: int | None


@dataclass(frozen=True, slots=True)
class _Split:
    """What is active at one moment, swapped as one reference; the rest follows from the first three."""

    stable: ActiveRelease
    candidate: ActiveRelease | None = None
    share: float = 0.0
    active: tuple[ActiveRelease, ...] = field(init=False)
    assigned: Mapping[Arm, Assignment] = field(init=False)

    def __post_init__(self) -> None:
        active = (self.stable,) if self.candidate is None else (self.stable, self.candidate)
        object.__setattr__(self, "active", active)
        shares = {Arm.STABLE: 1 - self.share, Arm.CANARY: self.share}
        assigned = {arm: Assignment(share, arm=arm) for arm, share in shares.items()}
        object.__setattr__(self, "assigned", assigned)

    @property
    def shares_load(self) -> bool:
        """Tell whether both releases answer, by the same stages, and have the same levels: then load is the stable one's to tell.

        What a candidate misses may be its own doing: it must neither take the stable release down with it, nor be shed unseen.
        """
        if self.candidate is None or not 0 < self.share < 1:
            return False
        stages = [list(map(id, release.stages.values())) for release in self.active]
        said = [release.bundle.loaded.release for release in self.active]
        levels = [(each.mode, level_names(each)) for each in said]
        return stages[0] == stages[1] and levels[0] == levels[1]


class Traffic:
    """Say which release decides a request, and change that in one step.

    A request that began with one release ends with it. ``outcomes`` is told of each settled request, after the metrics;
    ``recent`` keeps the last ones that were decided. Tenants are held to the limits of the stable release. ``pinned`` is
    the load level that an operator keeps releases to, as far as they have one of that name.
    """

    def __init__(
        self,
        stable: ActiveRelease,
        *,
        metrics: Metrics,
        faults: Faults,
        waits: QueueWaits,
        quotas: TenantQuotas,
        pinned: str | None = None,
    ) -> None:
        self._metrics = metrics
        self._faults = faults
        self._waits = waits
        self._quotas = quotas
        self._pinned = pinned
        self._split = _Split(stable)
        self.recent = RecentDecisions()
        self.outcomes: Callable[[Settled], None] = lambda settled: None
        self._turn(self._split, joins=stable)

    @property
    def stable(self) -> ActiveRelease:
        """Return the release that decides whatever the candidate does not."""
        return self._split.stable

    @property
    def candidate(self) -> ActiveRelease | None:
        """Return the release that is being tried, None where there is none."""
        return self._split.candidate

    @property
    def share(self) -> float:
        """Return the share of the requests that the candidate decides."""
        return self._split.share

    @property
    def releases(self) -> tuple[ActiveRelease, ...]:
        """Return what is active, the stable release first."""
        return self._split.active

    @property
    def is_split(self) -> bool:
        """Tell whether a candidate decides any requests: else nothing of a request needs to be looked at."""
        return self._split.share > 0

    @property
    def total_ms(self) -> float:
        """Return the longest time that a request may get which states none, whoever is going to decide it."""
        return max(release.pipeline.release.budgets.total_ms for release in self._split.active)

    @property
    def max_documents(self) -> int:
        """Return the most documents that any active release takes of a request."""
        return max(release.pipeline.release.limits.max_documents for release in self._split.active)

    def choose(self, unit: str) -> Dealt:
        """Return what decides the requests of a unit of traffic, which is hashed at once."""
        split = self._split
        candidate = split.candidate
        if candidate is None or not split.share:
            return Dealt(split.stable, split.assigned[Arm.STABLE], None)
        at = place(unit, candidate.digest)
        release, arm = (candidate, Arm.CANARY) if at < split.share else (split.stable, Arm.STABLE)
        return Dealt(release, split.assigned[arm], unit_number(at))

    def activate(self, release: ActiveRelease) -> ActiveRelease:
        """Let ``release`` decide all new requests from now on; return the one before, which the caller closes.

        Where it is the candidate, there is none any more; another candidate stays, and its share too.
        """
        before = self._split
        if release is before.stable:
            raise ValueError("it is the stable release already")
        before.stable.retire()
        if release is before.candidate:
            self._turn(_Split(release))
        else:
            self._turn(_Split(release, before.candidate, before.share), joins=release)
        return before.stable

    def split(self, candidate: ActiveRelease, share: float) -> None:
        """Let ``candidate`` decide a share of the requests; 0 gives it none, and it can still be shadowed."""
        before = self._split
        if not 0 <= share <= 1:
            raise ValueError("a share is from 0 to 1")
        if candidate is before.stable or before.candidate not in (None, candidate):
            raise ValueError("another release is being tried, or this is the stable one")
        self._turn(_Split(before.stable, candidate, share), joins=None if before.candidate else candidate)

    def unsplit(self) -> ActiveRelease | None:
        """Let the stable release decide all; return the candidate, which the caller closes."""
        candidate = self._split.candidate
        if candidate is not None:
            self._turn(_Split(self._split.stable))
        return candidate

    def settled(self, settled: Settled) -> None:
        """Count a request that an arm had, and tell of it. What is told may fail; the answer does not."""
        if settled.left_after_ms is not None:
            self._metrics.arms.abandoned(settled.arm)
        elif settled.decision is None:
            self._metrics.arms.refused(settled.arm)
        else:
            self._metrics.observe(settled.decision, answered=settled.answered)
            self.recent.add(settled.decision, answered=settled.answered)
            for release in self._split.active:
                if release.digest == settled.digest:
                    release.answered(settled.decision)
        try:
            self.outcomes(settled)
        except Exception as error:  # noqa: BLE001 - a boundary: who listens never costs an answer
            self._faults(error)

    def pin(self, name: str | None) -> None:
        """Keep to a load level of the stable release from now on, or with None step again. Raises ConfigError.

        A candidate that has a level of that name is kept to it too, and so is what comes later; another steps by itself.
        """
        self.stable.stepping.pin(name)
        self._pinned = name
        if self.candidate is not None:
            self._keep_to_pinned(self.candidate)

    def _turn(self, split: _Split, joins: ActiveRelease | None = None) -> None:
        """Let this be what is active. ``joins`` is the one that was not before."""
        before = self._split
        if joins is not None:
            self._keep_to_pinned(joins)
        active = tuple(zip(split.active, (Arm.STABLE, Arm.CANARY), strict=False))
        for release, arm in active:
            release.serve_as(arm)
        leader = split.stable.stepping if split.shares_load else None
        for release in dict.fromkeys((*before.active, *split.active)):
            release.stepping.follow(leader if release is split.candidate else None)
        self._split = split
        self._quotas.follow(split.stable.bundle.loaded.release.limits.tenants)
        self._waits.pressures = tuple(release.pressure for release in split.active)
        self._metrics.arms.serve(((release.name, release.digest, arm) for release, arm in active), split.share)

    def _keep_to_pinned(self, release: ActiveRelease) -> None:
        has = self._pinned in level_names(release.bundle.loaded.release)
        if self._pinned is not None and not has:
            note("warning", "no level of the pinned name", release=release.name, load_level=self._pinned)
        release.stepping.pin(self._pinned if has else None)
