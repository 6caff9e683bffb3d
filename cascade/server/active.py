"""Everything that belongs to one release and can decide requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cascade.cache.score_cache import ScoreCache
from cascade.calibration.calibrated import Calibration
from cascade.calibration.drift import CalibrationDrift
from cascade.decision import Decision
from cascade.guard.beside import Beside
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.pressure import Pressure
from cascade.guard.under_way import UnderWay
from cascade.pipeline import Pipeline
from cascade.pipeline.tap import Tap
from cascade.policy.levels import level_names
from cascade.rollout.bundle import Bundle
from cascade.rollout.evidence import evidence_held
from cascade.rollout.identity import unlike_declared
from cascade.rollout.measured import measured_levels
from cascade.server.caching import cached_stages
from cascade.server.calibration_use import CalibrationState, calibration_use
from cascade.server.recording import Records
from cascade.server.stage_pool import StagePool
from cascade.server.stepping import Stepping, step_levels, watch_rooms
from cascade.stages.base import Observed, Stage
from cascade.stages.probe import Probe, probe
from cascade.telemetry.faults import Faults
from cascade.telemetry.metrics import Metrics
from cascade.types import Arm, StageName

__all__ = ["ActiveRelease", "Shared"]

_LAST_SECONDS: Final = 1.0
"""What was under way when its time was ended answers at once; a stage is not kept longer for it."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the releases of a process share.

    ``jitter`` draws what a release's times between steps of its level are multiplied by, ``queue_wait_ms`` tells how
    long the request at the head of the queue has waited. ``leftover_s`` is what requests under way have when their
    release is closed; then they are answered with what they have. ``records`` is None where none are kept, and ``cache``
    where no scores are.
    ``opened`` has every release that is not closed yet.
    """

    pool: StagePool
    metrics: Metrics
    faults: Faults
    clock: Clock
    under_way: UnderWay
    hash_query: Callable[[str], str]
    new_id: Callable[[], str]
    queue_wait_ms: Callable[[], float] = lambda: 0.0
    jitter: Callable[[], float] = lambda: 1.0
    records: Records | None = None
    observe_in_flight: int = 16
    leftover_s: float = 20.0
    cache: ScoreCache | None = None
    opened: set[ActiveRelease] = field(default_factory=set)


class ActiveRelease:
    """One release, loaded: its stages, its pipelines by load level, and what steps between them.

    ``pipeline`` is the one that decides from now on, of ``ladder``, those by load level with the calibration or in safe
    mode. ``measured`` is what is known beforehand of the levels, ``probes`` what probes found, and ``tap`` is offered answers.

    A release of no arm (``arm`` None) decides for nobody: what `deciding` gives then is of the arm ``shadow`` and tells
    neither the controller of load levels nor the records, as its activation needs it. Raises ConfigError where its
    stages cannot be made; then nothing is held.
    """

    def __init__(self, bundle: Bundle, shared: Shared, *, level: str | None = None) -> None:
        release = bundle.loaded.release
        self.bundle = bundle
        self.digest = bundle.loaded.digest
        self.policy_digest = bundle.loaded.policy_digest
        self.name = release.release
        self.arm: Arm | None = None
        self.tap = Tap()
        self.probes: dict[StageName, Probe] = {}
        self.measured = measured_levels(bundle.loaded, bundle.source)
        self._evidence = evidence_held(bundle, self.measured)
        self.calibration = calibration_use(bundle)
        self._drift = _drift_of(bundle.calibration)
        self.pressure = Pressure(shared.clock, least_deadline_ms=release.budgets.total_ms)
        self.pressure.watch_queue(shared.queue_wait_ms)
        self._shared = shared
        self._beside = None if shared.records is None else Beside(shared.observe_in_flight)
        self.stepping = Stepping(
            release,
            self.pressure,
            shared.clock,
            metrics=None,
            jitter=shared.jitter(),
            pinned=level,
            beside=self._beside,
            soon=lambda call: asyncio.get_running_loop().call_soon(shared.faults.counting(call)),
        )
        self._lease = shared.pool.lease(release)
        self.stages: Mapping[StageName, Stage] = self._lease.stages
        watch_rooms(self.pressure, self.stages)
        self.under_way = shared.under_way.part()
        self._recorder = None if shared.records is None else shared.records.recorder(bundle.loaded, self.stages)
        self._tasks: list[asyncio.Task[Any]] = []
        self._closing: asyncio.Task[None] | None = None
        self._held = 0
        self._idle = asyncio.Event()
        self._is_shown = False
        try:
            self._made = self._make()
        except BaseException:
            self._lease.drop()
            raise
        self._decide()
        self.stepping.changed = lambda level: self._decide()
        shared.opened.add(self)

    @property
    def evidence_faults(self) -> dict[str, str]:
        """Return why a certificate or a report that the release names does not hold for it, by kind."""
        return self._evidence.told(self._observed())

    def deciding(self) -> Pipeline:
        """Return the pipeline that decides one request: the one of the load level of the moment."""
        stepping = self.stepping
        return self.pipeline if not stepping.level else self.ladder[stepping.choose()]

    def answered(self, decision: Decision) -> None:
        """Hold an answer that it decided against what its calibration was fitted on."""
        if self._drift is not None and self.calibration.state is CalibrationState.USED:
            self._drift.add(decision)

    def drift(self) -> Mapping[str, tuple[float, int]]:
        """Return the index of what is compared and the answers that it is of; nothing where nothing can be compared."""
        return {} if self._drift is None else self._drift.told()

    def serve_as(self, arm: Arm) -> None:
        """Decide from now on as an arm of the rollout. What the stable release does is shown in the metrics."""
        if arm is not self.arm:
            self.arm = arm
            self._made = self._make()
            self._decide()
        self._show(shown=arm is Arm.STABLE)

    def retire(self) -> None:
        """Show nothing in the metrics any more. What it decides until it is closed is of the arm that it had."""
        self._show(shown=False)

    def enter(self) -> None:
        """Count a request that this release decides; `leave` follows exactly once."""
        self._held += 1

    def leave(self) -> None:
        """Count a request as ended, however it did."""
        self._held -= 1
        if not self._held:
            self._idle.set()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the stages open inside the block, as a request does."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    async def start(self) -> None:
        """Start the stages, settle whether the calibration decides, and step between levels from then on.

        Raises ConfigError.
        """
        await self._lease.start()
        self.settle()
        interval_s = self.bundle.loaded.release.overload.interval_ms / 1000
        self.spawn(step_levels(self.stepping, interval_s, self._shared.faults), "steps of the load level")

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run ``work`` beside the requests for as long as this release is there."""
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        return task

    def settle(self) -> None:
        """Let the calibration decide from now on, or the safe mode where a server is not as declared.

        Requests under way end as they began. What a stage has not been told yet leaves what was known of it.
        """
        use = self.calibration
        if use.digest is not None:
            use.look(self.bundle.loaded.release, self.stages)
            self._decide()
            use.tell() if self._is_shown else use.tell(candidate=self.name)
        self._show(shown=self._is_shown)

    async def probe(self, deadline: Deadline) -> Mapping[StageName, Probe]:
        """Score known pairs with every stage, once; return what was found, as ``probes`` has it then too."""
        found = await asyncio.gather(*(probe(stage, deadline) for stage in self.stages.values()))
        self.probes = dict(zip(self.stages, found, strict=True))
        return self.probes

    def unlike(self) -> list[str]:
        """Return where servers are not as declared, and why calibration or certificate cannot be used, one sentence each."""
        observed = self._observed()
        unusable = ((name, stage.unusable) for name, stage in self.stages.items() if stage.unusable is not None)
        told = [f"{name} stage: the server cannot serve it: {why}" for name, why in unusable]
        told += [*unlike_declared(self.bundle.loaded.release, observed), *self.calibration.reasons]
        return list(dict.fromkeys((*told, *(f"certificate, {line}" for line in self._evidence.unlike(observed)))))

    async def aclose(self) -> None:
        """Wait for what is under way, for a while, then give the stages back; those that others have stay open.

        It is done to the end even where who waits for it is cancelled; a second call waits for the same end.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="end of a release")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.retire()
        await self._until_idle(self._shared.leftover_s)
        self.under_way.end()
        await self._until_idle(_LAST_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._beside is not None:
            await self._beside.aclose()
        await self._lease.aclose()
        self._shared.under_way.forget(self.under_way)
        self._shared.opened.discard(self)

    def _observed(self) -> dict[StageName, Observed]:
        """Return what stages say of themselves, of those that have said anything."""
        return {name: told for name, stage in self.stages.items() if (told := stage.observed) is not None}

    async def _until_idle(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._held:
                    self._idle.clear()
                    await self._idle.wait()

    def _decide(self) -> None:
        """Let the pipelines decide that the calibration's state and the load level ask for."""
        self.ladder = self._made[self.calibration.state is CalibrationState.USED]
        self.pipeline = self.ladder[self.stepping.level]

    def _show(self, *, shown: bool) -> None:
        self._is_shown = shown
        self.stepping.show_in(self._shared.metrics.levels if shown else None)
        if shown:
            self._shared.metrics.tell_evidence(self.evidence_faults)
            self._shared.metrics.safe_mode.set(self.calibration.state is CalibrationState.SAFE_MODE)

    def _make(self) -> Mapping[bool, tuple[Pipeline, ...]]:
        """Return the pipelines by load level, with the calibration (True) and without."""
        calibration = self.calibration.calibration
        safe = self._ladder(None)
        return {False: safe, True: safe if calibration is None else self._ladder(calibration)}

    def _ladder(self, calibration: Calibration | None) -> tuple[Pipeline, ...]:
        release, shared = self.bundle.loaded.release, self._shared
        serves = self.arm is not None
        stages = cached_stages(shared.cache, release, self.stages, self.arm)
        return tuple(
            Pipeline(
                release,
                stages,
                level=name,
                calibration=calibration,
                clock=shared.clock,
                new_id=shared.new_id,
                hash_query=shared.hash_query,
                count_fault=shared.faults,
                recorder=self._recorder if serves else None,
                beside=self._beside if serves else None,
                under_way=self.under_way,
                pressure=self.pressure if serves else None,
                arm=self.arm or Arm.SHADOW,
                tap=self.tap if serves else None,
            )
            for name in level_names(release)
        )


def _drift_of(calibration: Calibration | None) -> CalibrationDrift | None:
    artefact = None if calibration is None else calibration.artefact
    return None if artefact is None or artefact.reference is None else CalibrationDrift(artefact.reference, artefact.k)
