"""Which releases a start may serve: one after the other, until one starts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from typing import TypeVar

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep
from cascade.rollout.bundle import Bundle
from cascade.telemetry.logs import note

__all__ = ["PassedOver", "Place", "StartChoices"]

Opened = TypeVar("Opened")


@dataclass(frozen=True, slots=True)
class Place:
    """A release that may be served: its digest, its name as far as it is known, and what loads it or raises ConfigError."""

    digest: str
    name: str
    load: Callable[[], Bundle]


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A release that could not be served, by the activation step that it failed at, and why."""

    release: str
    digest: str
    step: ActivationStep
    why: str


class StartChoices:
    """Hold the release that is to serve, and the next ones where it cannot.

    ``bundle`` is that of the moment and ``passed_over`` what does not serve and why: at first what comes later in ``places``
    than it would, then what could not be served. ``keep`` has one in the store for a later start. ``taken_back`` are the
    digests of what a rollout took back, ``fault`` says why the release that settings name cannot be read, and ``named`` is its
    digest where it can. Raises ConfigError where none can be loaded, and tells why of each.
    """

    def __init__(
        self,
        places: Iterable[Place],
        *,
        keep: Callable[[Bundle], None] = lambda bundle: None,
        passed_over: Iterable[PassedOver] = (),
        taken_back: Collection[str] = (),
        named: str | None = None,
        fault: str | None = None,
    ) -> None:
        self.passed_over = list(passed_over)
        self._tried: set[str] = set()
        self._left = deque(places)
        self._keep = keep
        self._taken_back = taken_back
        self._named = named
        self._fault = fault
        self._told: set[PassedOver] = set()
        self.bundle = self._next(ConfigError(fault or "release: there is none"))

    @classmethod
    def of(cls, bundle: Bundle) -> StartChoices:
        """Return the one choice that settings name."""
        loaded = bundle.loaded
        return cls([Place(loaded.digest, loaded.release.release, lambda: bundle)], named=loaded.digest)

    @property
    def is_named(self) -> bool:
        """Tell whether it is the release that settings name."""
        return self.bundle.loaded.digest == self._named

    @property
    def was_taken_back(self) -> bool:
        """Tell whether a rollout took it back: then it serves because settings say so anew, or as no other can."""
        return self.bundle.loaded.digest in self._taken_back

    async def pass_over(self, step: ActivationStep, error: Exception) -> None:
        """Go on to the next one. Where there is none, raises ConfigError with the reasons of all, or ``error`` if it is the only one."""
        loaded = self.bundle.loaded
        self._tried.add(loaded.digest)
        self._pass_over(loaded.digest, loaded.release.release, step, error)
        self.bundle = await asyncio.to_thread(self._next, error)

    async def opened(self, make: Callable[[Bundle], Opened]) -> Opened:
        """Return what ``make`` makes of the first that it takes. Raises ConfigError as `pass_over` does."""
        while True:
            try:
                return make(self.bundle)
            except ConfigError as error:
                await self.pass_over(ActivationStep.LOAD, error)

    def tell(self) -> None:
        """Tell in the log where what serves now was taken back before."""
        if self.was_taken_back:
            loaded = self.bundle.loaded
            why = "settings name it anew" if not self.passed_over else "no other can be served"
            served = {"release": loaded.release.release, "digest": loaded.digest}
            note("error", "a release serves that a rollout took back", why=why, **served)

    def _next(self, error: Exception) -> Bundle:
        """Return the next one that loads, and tell what came to nothing since; where none does, who ends tells it."""
        while self._left:
            place = self._left.popleft()
            if place.digest in self._tried:
                continue
            try:
                bundle = place.load()
            except ConfigError as unread:
                error = unread
                self._pass_over(place.digest, place.name, ActivationStep.READ, unread)
                continue
            self.passed_over = [one for one in self.passed_over if not _was_only_late(one, place)]
            for one in self.passed_over:
                if one not in self._told:
                    note("error", "a release cannot be served at this start", **asdict(one))
            self._told.update(self.passed_over)
            self._keep(bundle)
            return bundle
        why = [f"{one.release or one.digest}: {one.step}: {one.why}" for one in self.passed_over]
        if self._fault is not None:
            why.append(self._fault)
        if len(why) < 2:
            raise error
        raise ConfigError(f"no release can be served: {'; '.join(why)}") from None

    def _pass_over(self, digest: str, name: str, step: ActivationStep, error: Exception) -> None:
        why = str(error) if isinstance(error, ConfigError) else f"an internal fault: {type(error).__name__}"
        self.passed_over.append(PassedOver(name, digest, step, why))


def _was_only_late(one: PassedOver, place: Place) -> bool:
    """Tell whether what was passed over is what loads now: not for a kept bundle that cannot be read, but for coming later."""
    return one.digest == place.digest and one.step is not ActivationStep.READ
