"""The stages that active releases share: one breaker, one limit and one set of connections for each server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from cascade.policy.release import Release, StageSpec
from cascade.stages.base import Stage
from cascade.stages.build import round_budget_ms, specs_of
from cascade.stages.http import HttpReranker
from cascade.types import StageName

__all__ = ["PooledStage", "StageLease", "StagePool"]

Build = Callable[[StageName, StageSpec, float], Stage]
"""Make a stage that is not started, from its name, what a release says of it, and the most that a round of it has in
milliseconds. Raises ConfigError."""


class PooledStage:
    """One stage and who uses it."""

    def __init__(self, name: StageName, stage: Stage) -> None:
        self.name = name
        self.stage = stage
        self.is_started = False
        self._starting = asyncio.Lock()
        self._budgets: dict[object, float] = {}

    @property
    def is_used(self) -> bool:
        """Tell whether any release has it."""
        return bool(self._budgets)

    async def start(self) -> None:
        """Start it where nobody has. Raises ConfigError; then the next one tries."""
        async with self._starting:
            if not self.is_started:
                await self.stage.start()
                self.is_started = True

    def use(self, user: object, budget_ms: float) -> None:
        """Count a user, whose rounds have ``budget_ms``."""
        self._budgets[user] = budget_ms
        self._allow()

    def leave(self, user: object) -> None:
        """Count a user no more."""
        self._budgets.pop(user, None)
        self._allow()

    def _allow(self) -> None:
        """Let the most patient user say what is slow: then it is the server that is."""
        if self._budgets and isinstance(self.stage, HttpReranker):
            self.stage.allow(max(self._budgets.values()))


class StageLease:
    """The stages of one release, by name, until they are given back."""

    def __init__(self, pool: StagePool, pooled: Mapping[StageName, PooledStage]) -> None:
        self._pool = pool
        self._pooled = pooled
        self.stages: dict[StageName, Stage] = {name: each.stage for name, each in pooled.items()}

    async def start(self) -> None:
        """Start those that nobody has started yet; all have ended to start then. Raises ConfigError."""
        ended = await asyncio.gather(*(each.start() for each in self._pooled.values()), return_exceptions=True)
        for fault in ended:
            if fault is not None:
                raise fault

    def drop(self) -> None:
        """Give them back where this lease has not started any: what was made for it holds nothing open."""
        self._pool.take_back(self)

    async def aclose(self) -> None:
        """Give them back, and close those that nobody else has."""
        unused = self._pool.take_back(self)
        await asyncio.gather(*(each.stage.aclose() for each in unused), return_exceptions=True)


class StagePool:
    """Lend stages to releases: to two that say the same of a stage the same one, closed with the last.

    ``build`` makes one; ``changed`` is set where any came or went. Everything happens on one event loop.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._pooled: dict[tuple[StageName, str], PooledStage] = {}
        self.changed = asyncio.Event()

    def __iter__(self) -> Iterator[PooledStage]:
        return iter(tuple(self._pooled.values()))

    def lease(self, release: Release) -> StageLease:
        """Return the stages that a release names, not yet started where they are new. Raises ConfigError.

        Then none is taken: what was made before the fault holds nothing open.
        """
        keys = {name: (name, spec.model_dump_json()) for name, spec in specs_of(release).items()}
        made = {
            name: self._pooled.get(keys[name])
            or PooledStage(name, self._build(name, spec, round_budget_ms(release, name)))
            for name, spec in specs_of(release).items()
        }
        lease = StageLease(self, made)
        for name, each in made.items():
            self._pooled[keys[name]] = each
            each.use(lease, round_budget_ms(release, name))
        self.changed.set()
        return lease

    def take_back(self, lease: StageLease) -> list[PooledStage]:
        """Count a lease no more; return what nobody has any longer, to be closed. It is made anew from then on."""
        for each in self._pooled.values():
            each.leave(lease)
        unused = [key for key, each in self._pooled.items() if not each.is_used]
        self.changed.set()
        return [self._pooled.pop(key) for key in unused]
