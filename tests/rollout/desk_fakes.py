"""What a desk stands on, in memory: releases, traffic, a controller, a source, a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from cascade.decision import Action, Decision, DegradedReason, Level, RankedCandidate, Ranking
from cascade.errors import ConfigError
from cascade.guard.deadline import Deadline
from cascade.policy.release import release_digest
from cascade.rollout.activation import Activation, ActivationStep, Asked, Refused
from cascade.rollout.bringing_in import BringingIn
from cascade.rollout.bundle import Bundle, load_bundle
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.desk import Desk
from cascade.rollout.guardrails import Observed, Settled
from cascade.rollout.history import Remembered
from cascade.rollout.ledger import Ledger
from cascade.rollout.moves import Moves
from cascade.rollout.sources.desired import Desired
from cascade.rollout.sources.looking import OffLoop
from cascade.rollout.store import Stored
from cascade.rollout.trial import Judge
from cascade.stages.probe import Probe, Verdict
from cascade.types import Arm, Dialect, Request, StageName

__all__ = [
    "OK",
    "FakeController",
    "FakeKeeps",
    "FakeRelease",
    "FakeSource",
    "FakeTraffic",
    "Setup",
    "asked",
    "decision",
    "inline",
    "load",
    "observed",
    "release_data",
    "write_release",
]


def release_data(name: str = "r2", **changes: Any) -> dict[str, Any]:
    """Return a release that asks no stage, as plain data."""
    return {
        "release": name,
        "stages": {},
        "depth": 0,
        "escalation": "none",
        "budgets": {"total_ms": 100, "small_ms": 40, "large_ms": 60, "reserve_ms": 10},
    } | changes


def write_release(folder: Path, name: str = "r2", **changes: Any) -> Stored:
    """Write a release, and return it as a store tells of it."""
    data = release_data(name, **changes)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return Stored(release_digest(data), name, path)


def decision(
    arm: Arm = Arm.STABLE, release: str = "r1", degraded: tuple[DegradedReason, ...] = (), total_ms: float = 10.0
) -> Decision:
    """Return a decision of an arm."""
    return Decision(
        id="d",
        dialect=Dialect.NATIVE,
        release=release,
        level=Level(),
        tenant=None,
        query_hash="h",
        candidates=2,
        top_n=2,
        depth=2,
        depth_reason="fixed",
        action=Action.NONE,
        escalated=(),
        estimates=None,
        misfit=None,
        query_class=None,
        signals={},
        stage=StageName.SMALL,
        degraded=degraded,
        excluded=0,
        rounds=(),
        rank_changes_at_5=0,
        deadline_ms=100.0,
        total_ms=total_ms,
        own_ms=1.0,
        arm=arm,
    )


@dataclass
class FakeRelease:
    """A release that answers in first-stage order. ``faults`` holds what a step raises; ``open`` is false once closed."""

    bundle: Bundle
    faults: Mapping[ActivationStep, BaseException] = field(default_factory=dict)
    probes: list[Mapping[StageName, Probe]] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    answers: list[tuple[DegradedReason, ...]] = field(default_factory=list)
    first: int = 0
    hangs_at: ActivationStep | None = None
    is_open: bool = True
    asked: int = 0
    background: asyncio.Task[None] | None = None

    @property
    def digest(self) -> str:
        return self.bundle.loaded.digest

    @property
    def policy_digest(self) -> str:
        return self.bundle.loaded.policy_digest

    @property
    def name(self) -> str:
        return self.bundle.loaded.release.release

    def deciding(self) -> FakeRelease:
        return self

    async def rerank(self, request: Request) -> Ranking:
        self.asked += 1
        await self._at(ActivationStep.SMOKE)
        degraded = self.answers.pop(0) if self.answers else ()
        result = RankedCandidate(self.first, None, 1.0, StageName.SMALL)
        return Ranking((result,), decision(Arm.SHADOW, self.name, degraded))

    async def start(self) -> None:
        self.background = asyncio.create_task(asyncio.Event().wait(), name="of a release")  # type: ignore[arg-type]
        await self._at(ActivationStep.START)

    async def probe(self, deadline: Deadline) -> Mapping[StageName, Probe]:
        await self._at(ActivationStep.PROBE)
        return self.probes.pop(0) if len(self.probes) > 1 else (self.probes or [{}])[0]

    def unlike(self) -> list[str]:
        if fault := self.faults.get(ActivationStep.FINGERPRINT):
            raise fault
        return self.differs

    async def aclose(self) -> None:
        await asyncio.sleep(0.01)
        if self.background is not None:
            self.background.cancel()
            await asyncio.gather(self.background, return_exceptions=True)
        self.is_open = False

    async def _at(self, step: ActivationStep) -> None:
        if self.hangs_at is step:
            await asyncio.Event().wait()
        await asyncio.sleep(0.001)
        if fault := self.faults.get(step):
            raise fault


class FakeTraffic:
    """Two references. ``fails`` is raised in place of a change."""

    def __init__(self, stable: FakeRelease) -> None:
        self.stable = stable
        self.candidate: FakeRelease | None = None
        self.share = 0.0
        self.fails: Exception | None = None

    def activate(self, release: FakeRelease) -> FakeRelease:
        self._may()
        before, self.stable = self.stable, release
        if release is self.candidate:
            self.candidate, self.share = None, 0.0
        return before

    def split(self, candidate: FakeRelease, share: float) -> None:
        self._may()
        self.candidate, self.share = candidate, share

    def unsplit(self) -> FakeRelease | None:
        gone, self.candidate, self.share = self.candidate, None, 0.0
        return gone

    def _may(self) -> None:
        if self.fails is not None:
            raise self.fails


@dataclass
class FakeController:
    """A controller that says what a test puts into ``verdicts``, and rolls back after one error or late answer."""

    shares: tuple[float, ...] = (0.01, 0.25, 1.0)
    verdicts: list[RolloutVerdict | Exception] = field(default_factory=list)
    step: int = 0
    observed: list[Observed] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    passes: bool = False

    @property
    def share(self) -> float:
        return self.shares[self.step]

    def observe(self, observed: Observed) -> None:
        self.observed.append(observed)

    def observe_pair(self, loss: float) -> None:
        raise NotImplementedError

    def pair_left_out(self, outcome: str) -> None:
        raise NotImplementedError

    def observe_gold(self, loss: float) -> None:
        raise NotImplementedError

    def tick(self, now: float) -> RolloutVerdict:
        self.ticks.append(now)
        if self.failed:
            return RolloutVerdict.ROLL_BACK
        verdict = self.verdicts.pop(0) if self.verdicts else RolloutVerdict.HOLD
        if isinstance(verdict, Exception):
            raise verdict
        if verdict is RolloutVerdict.ADVANCE:
            self.step += 1
        return verdict

    def promote(self, now: float) -> None:
        if self.is_complete:
            raise ConfigError("the release has all of the traffic")
        self.step += 1

    @property
    def is_complete(self) -> bool:
        return self.step == len(self.shares) - 1

    @property
    def failed(self) -> bool:
        return any(each.arm is Arm.CANARY and (each.error or each.late) for each in self.observed)

    def told(self) -> dict[str, Any]:
        count = sum(each.arm is Arm.CANARY for each in self.observed)
        verdict = "fail" if self.failed else "pass" if self.passes else "inconclusive"
        return {
            "guardrails": [
                {"name": "errors", "verdict": verdict, "n": count, "why": "made up", "needed": True},
                {"name": "cost", "verdict": "inconclusive", "n": count, "why": "made up", "needed": False},
            ],
            "waits_for": [] if self.passes else ["more answers"],
        }

    def state(self) -> dict[str, Any]:
        return {"step": self.step, "n": len(self.observed)}


@dataclass
class FakeKeeps:
    """A state folder in memory, as JSON: what a restart would read."""

    kept: str | None = None
    writes: int = 0
    fails: OSError | None = None

    def read(self) -> Remembered | None:
        return None if self.kept is None else Remembered.model_validate_json(self.kept)

    def write(self, remembered: Remembered) -> None:
        if self.fails is not None:
            raise self.fails
        self.kept = remembered.model_dump_json()
        self.writes += 1


@dataclass
class FakeSource:
    """A source that says what a test lets it say."""

    queue: asyncio.Queue[Desired | Exception] = field(default_factory=asyncio.Queue)

    def say(self, stored: Stored | None, fault: str | None = None) -> None:
        """Let it name a release, or with None nothing."""
        told = Desired(fault=fault)
        if stored is not None:
            told = replace(told, digest=stored.digest, name=stored.name, path_in_store=stored.path, asked_at="t0")
        self.queue.put_nowait(told)

    async def changes(self) -> AsyncIterator[Desired]:
        while True:
            said = await self.queue.get()
            if isinstance(said, Exception):
                raise said
            yield said


async def inline(work: Callable[[], Any], /) -> Any:
    """Do it on the loop: on virtual time there are no threads."""
    await asyncio.sleep(0)
    return work()


class Setup:
    """A desk over fakes, with r1 stable. ``make`` builds what an activation is given, ``controllers`` judge in turn."""

    def __init__(
        self,
        folder: Path,
        keeps: FakeKeeps | None = None,
        *,
        serves: Stored | None = None,
        off_loop: OffLoop = inline,
    ) -> None:
        clock = asyncio.get_running_loop().time
        self.folder = folder
        self.faults: list[BaseException] = []
        self.releases: list[FakeRelease] = []
        self.controllers: list[FakeController] = []
        self.restored: list[Mapping[str, Any] | None] = []
        self.outcomes: list[str] = []
        self.shown: list[tuple[int | None, float, Mapping[str, int]]] = []
        self.keeps = keeps or FakeKeeps()
        self.source = FakeSource()
        self.known: dict[str, Stored] = {}
        self.refuses: dict[str, Refused] = {}
        self.options: dict[str, dict[str, Any]] = {}
        self.next_controller: Callable[[], FakeController] = FakeController
        stable = serves or self.write("r1")
        self.traffic = FakeTraffic(self.build(load(stable.path)))
        began = datetime(2026, 11, 30, tzinfo=UTC)
        self.ledger = Ledger(
            self.keeps.read(),
            self.keeps,
            now=lambda: began + timedelta(seconds=clock()),
            off_loop=off_loop,
        )
        self.activation = Activation({}, self.build, clock=clock, count_fault=self.faults.append, off_loop=inline)
        self.moves = Moves(
            self.traffic,
            self.ledger,
            judge_of=self._judge,
            count_fault=self.faults.append,
            shown=self,
        )
        self.bringing_in = BringingIn(self.activation, self.moves, self.ledger, self)
        self.desk = Desk(
            self.moves,
            self.bringing_in,
            self.ledger,
            find=self._find,
            clock=clock,
            count_fault=self.faults.append,
            source=self.source,
            source_name="folder",
            lenient=True,
        )

    def write(self, name: str, options: dict[str, Any] | None = None, **changes: Any) -> Stored:
        """Write a release that the desk can find; ``options`` are fields of what is built of it."""
        stored = write_release(self.folder, name, **changes)
        self.known[stored.name] = self.known[stored.digest] = stored
        self.options[stored.digest] = options or {}
        return stored

    def build(self, bundle: Bundle) -> FakeRelease:
        """Make a release of a bundle, or raise what a test says for the step `load`."""
        options = dict(self.options.get(bundle.loaded.digest, {}))
        if fault := options.get("faults", {}).get(ActivationStep.LOAD):
            raise fault
        release = FakeRelease(bundle, **options)
        self.releases.append(release)
        return release

    def activated(self, outcome: str) -> None:
        self.outcomes.append(outcome)

    def rollout(self, step: int | None, share: float, guardrails: Mapping[str, int]) -> None:
        self.shown.append((step, share, guardrails))

    def happened(self) -> list[str]:
        """Return what the history has, oldest first."""
        return [entry["what"] for entry in reversed(self.desk.history())]

    def tell(self, arm: Arm, *, answered: bool = True, digest: str | None = None, **changes: Any) -> None:
        """Tell the desk of a request of an arm, by default one that the arm's release of the moment decided."""
        release = self.traffic.candidate if arm is Arm.CANARY else self.traffic.stable
        if digest is None:
            assert release is not None
            digest = release.digest
        said = decision(arm, "same", **changes)
        self.desk.told(Settled(arm, digest, said, answered))

    async def _find(self, wanted: str) -> Stored:
        if wanted in self.refuses:
            raise self.refuses[wanted]
        try:
            return self.known[wanted]
        except KeyError:
            raise ConfigError("no release of this name") from None

    def _judge(self, stable: FakeRelease, candidate: FakeRelease, kept: Mapping[str, Any] | None) -> Judge:
        controller = self.next_controller()
        controller.step = 0 if kept is None else kept["step"]
        self.restored.append(kept)
        self.controllers.append(controller)
        return Judge(controller, observed)


def observed(settled: Settled) -> Observed:
    """Return what a guardrail sees of a request, as far as these tests look."""
    said = settled.decision
    late = said is not None and said.total_ms > said.deadline_ms
    return Observed(settled.arm, late=late, error=not settled.answered)


def load(path: Path) -> Bundle:
    """Return the bundle of a release in YAML."""
    return load_bundle(path, {})


OK = Probe(Verdict.OK, "", 1.0)


def asked(stored: Stored, *, lenient: bool = True) -> Asked:
    """Return an activation of a release; by default one that warnings do not stop."""
    return Asked(stored.path, stored.digest, lenient=lenient)
