"""Bring a release to where it can decide, step by step; where one fails, nothing of it is left and the old one is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from cascade.errors import CascadeError, ConfigError
from cascade.guard.deadline import Clock, Deadline
from cascade.rollout.bundle import Bundle, check_signed, load_bundle
from cascade.rollout.load import LoadedRelease, offline, release_from
from cascade.rollout.ports import Serving
from cascade.rollout.signing import ReleaseKeys
from cascade.rollout.smoke import smoke
from cascade.rollout.source import Source, open_source
from cascade.rollout.sources.looking import OffLoop
from cascade.rollout.verify import Severity, Verification, verify
from cascade.stages.probe import Probe, Verdict
from cascade.types import StageName

__all__ = ["Activation", "ActivationStep", "Asked", "Refused"]

Release = TypeVar("Release", bound=Serving)

_PROBE_MS: Final = 5000.0
_START_S: Final = 60.0
"""A model that is computed here may have to be loaded."""
_ONLY_WARNINGS: Final = (
    "all of these are warnings: --lenient lets them pass "
    "(over HTTP lenient: true; for all releases strict_activation: false)"
)
_UNREACHED_S: Final = 10.0
"""How long a server that does not answer yet is asked again: it may be starting too."""


class ActivationStep(StrEnum):
    """What is done to a release before it decides, in this order. The list is closed."""

    READ = "read"
    SIGNATURE = "signature"
    VERIFY = "verify"
    LOAD = "load"
    START = "start"
    PROBE = "probe"
    SMOKE = "smoke"
    FINGERPRINT = "fingerprint"
    SWAP = "swap"


class Refused(CascadeError):
    """Say at which step a release was refused, and why, one sentence each.

    ``passing`` tells that all that was found is that a server does not answer: that says nothing of the release.
    """

    def __init__(self, step: ActivationStep, why: tuple[str, ...], *, passing: bool = False) -> None:
        super().__init__(f"refused at {step}: {'; '.join(why)}")
        self.step = step
        self.why = why
        self.passing = passing


@dataclass(frozen=True, slots=True)
class Asked:
    """A release that is to be activated: where it lies, and where it is known which one it must be.

    ``lenient`` lets warnings of `verify` pass, and nothing else.
    """

    path: Path
    digest: str | None = None
    lenient: bool = False


@dataclass(slots=True)
class Activation(Generic[Release]):
    """Activate releases, one at a time.

    ``build`` makes of a bundle what can decide, without starting it. ``keys`` returns the keys of which one must have
    signed a bundle, None where signatures are not asked for. ``prepare`` works out, off the loop, what else is needed
    of a bundle; it may raise ConfigError. ``began`` is told of each step.
    """

    environment: Mapping[str, str]
    build: Callable[[Bundle], Release]
    clock: Clock
    count_fault: Callable[[BaseException], None]
    keys: Callable[[], ReleaseKeys | None] = lambda: None
    prepare: Callable[[Bundle], object] = lambda bundle: None
    began: Callable[[ActivationStep], None] = lambda step: None
    off_loop: OffLoop = asyncio.to_thread
    _step: ActivationStep = field(default=ActivationStep.READ, init=False)
    _closing: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def run(self, asked: Asked, swap: Callable[[Release], Any]) -> Release:
        """Return the release that ``swap``, the last step, was called with. Raises Refused.

        Whatever ends it, a fault, a refusal or a cancellation: of the new release nothing is left, and ``swap`` is
        called only where every step before it went well. A ``swap`` that raises must leave the old release deciding.
        """
        release: Release | None = None
        try:
            bundle = await self._loaded(asked)
            release = self.build(bundle)
            await self._ready(release, asked)
            self._begin(ActivationStep.SWAP)
            swap(release)
        except BaseException as error:
            if release is not None:
                await self._give_back(release)
            if not isinstance(error, Exception):
                raise
            raise self._refusal(error) from None
        return release

    async def _loaded(self, asked: Asked) -> Bundle:
        self._begin(ActivationStep.READ)
        source, read = await self.off_loop(lambda: self._read(asked.path))
        self._begin(ActivationStep.SIGNATURE)
        await self.off_loop(lambda: self._check_signature(source, read))
        self._begin(ActivationStep.VERIFY)
        found = await self.off_loop(lambda: verify(asked.path, self.environment, asked.digest))
        self._refuse(_against(found, lenient=asked.lenient))
        self._begin(ActivationStep.LOAD)
        bundle = await self.off_loop(lambda: load_bundle(asked.path, self.environment))
        if not read.digest == found.loaded.digest == bundle.loaded.digest:
            self._refuse(["it was changed while it was looked at"])
        await self.off_loop(lambda: self.prepare(bundle))
        return bundle

    def _read(self, path: Path) -> tuple[Source, LoadedRelease]:
        source = open_source(path)
        return source, release_from(source, offline(self.environment))

    def _check_signature(self, source: Source, read: LoadedRelease) -> None:
        keys = self.keys()
        if keys is not None:
            check_signed(source, read, keys)

    async def _ready(self, release: Release, asked: Asked) -> None:
        """Start the release, and see that it answers as its bundle says."""
        self._begin(ActivationStep.START)
        try:
            async with asyncio.timeout(_START_S):
                await release.start()
        except TimeoutError:
            self._refuse([f"it had not started after {_START_S:g} seconds"])
        self._begin(ActivationStep.PROBE)
        said = release.bundle.loaded.release
        if said.probe != "off":
            odd = await self._probed(release)
            away = all(probe.verdict is Verdict.FAILED for probe in odd.values())
            self._refuse([f"{name} stage: {_words(probe)}" for name, probe in odd.items()], passing=away)
        self._begin(ActivationStep.SMOKE)
        smoked = await smoke(release, said.rollout.smoke)
        self._refuse([one.what for one in smoked], passing=all(one.is_away for one in smoked))
        self._begin(ActivationStep.FINGERPRINT)
        self._refuse(release.unlike())

    async def _probed(self, release: Release) -> dict[StageName, Probe]:
        """Return the stages that do not score known pairs right; one that fails to answer is asked again for a while."""
        give_up = Deadline.after_ms(_UNREACHED_S * 1000, self.clock)
        wait_s = 0.1
        while True:
            found = await release.probe(Deadline.after_ms(_PROBE_MS, self.clock))
            failed = any(probe.verdict is Verdict.FAILED for probe in found.values())
            if not failed or give_up.remaining_ms() <= wait_s * 1000:
                return {name: probe for name, probe in found.items() if probe.verdict is not Verdict.OK}
            await asyncio.sleep(wait_s)
            wait_s *= 2

    def _begin(self, step: ActivationStep) -> None:
        self._step = step
        self.began(step)

    def _refuse(self, why: list[str], *, passing: bool = False) -> None:
        if why:
            raise Refused(self._step, tuple(why), passing=passing)

    def _refusal(self, error: Exception) -> Refused:
        match error:
            case Refused():
                return error
            case ConfigError():
                return Refused(self._step, (str(error),))
            case _:
                self.count_fault(error)
                return Refused(self._step, (f"an internal fault: {type(error).__name__}",))

    async def _give_back(self, release: Release) -> None:
        """Close what came of a release, to the end even where who waits for it is cancelled."""
        closing = asyncio.create_task(release.aclose(), name="end of a release that was refused")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        try:
            await asyncio.shield(closing)
        except Exception as error:  # noqa: BLE001 - what is told is why the release was refused
            self.count_fault(error)


def _against(found: Verification, *, lenient: bool) -> list[str]:
    """Return what speaks against a release that was looked at."""
    if found.passes(strict=not lenient):
        return []
    told = [one.what for one in found.findings if not lenient or one.severity is Severity.ERROR]
    return [*told, _ONLY_WARNINGS] if found.passes(strict=False) else told


def _words(probe: Probe) -> str:
    said = probe.reason or probe.verdict
    return f"{said} ({probe.code})" if probe.code else said
