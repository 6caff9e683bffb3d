"""Bring the release that is desired to the traffic, step by step, and take it back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.rollout.activation import Refused
from cascade.rollout.bringing_in import BringingIn
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.desk_status import status_of
from cascade.rollout.following import Following
from cascade.rollout.guardrails import Settled
from cascade.rollout.history import Happened, KeptCandidate
from cascade.rollout.ledger import Ledger
from cascade.rollout.moves import Moves
from cascade.rollout.names import is_digest
from cascade.rollout.ports import Found, Serving, Source
from cascade.rollout.trial import Rate
from cascade.types import Arm

__all__ = ["TICK_S", "Desk"]

Release = TypeVar("Release", bound=Serving)

TICK_S: Final = 1.0
"""How often the controller is asked, and so at most the time from its verdict to the traffic."""
_OUTLIVED_S: Final = 3600.0
"""How long a process lives with a candidate until its end is not held against that any more."""
_KEEP_S: Final = 10.0
"""How old the controller's numbers may be that a restart goes on from."""


class Desk(Generic[Release]):
    """Hold the desired release against the active one, again and again, and move traffic as the controller says.

    ``find`` returns the bundle that a digest or a name means, or raises ConfigError or Refused, and ``put`` one that is
    uploaded, None where that may not be, or raises ConfigError. ``foresee`` tells what such a one will have to show against the stable release, at so many
    requests a second. ``within`` tells how soon each guardrail rolls a candidate back, at so many requests a
    second. The loop, `run`, keeps to ``clock``.
    """

    def __init__(
        self,
        moves: Moves[Release],
        bringing_in: BringingIn[Release],
        ledger: Ledger,
        *,
        find: Callable[[str], Awaitable[Found]],
        put: Callable[[bytes], Awaitable[Found]] | None = None,
        foresee: Callable[[Release, str, float], Awaitable[dict[str, Any]]] | None = None,
        clock: Clock,
        count_fault: Callable[[BaseException], None],
        source: Source | None = None,
        source_name: str = "",
        lenient: bool = False,
        within: Callable[[Release, float], list[dict[str, Any]]] = lambda release, per_s: [],
    ) -> None:
        self._moves = moves
        self._bringing_in = bringing_in
        self._ledger = ledger
        self._find = find
        self._put = put
        self._foresee = foresee
        self._clock = clock
        self._count_fault = count_fault
        self._lenient = lenient
        self._within = within
        self._wake = asyncio.Event()
        self._kept_at = clock()
        self._rate = Rate(clock)
        self._following = Following(
            source,
            source_name,
            moves,
            bringing_in,
            ledger,
            lenient=lenient,
            clock=clock,
            count_fault=count_fault,
            news=self._wake.set,
        )
        moves.serves()

    async def start(self, wanted: str, *, at_once: bool = False, lenient: bool = False) -> dict[str, Any]:
        """Activate a release by digest or name, and begin its steps; with ``at_once`` it decides everything then.

        Raises ConfigError for an unknown release, and without ``at_once`` while another is under way; Refused where
        an activation step fails.
        """
        found = await self._found(wanted)
        trial = self._moves.trial
        self._moves.must_be_another(found.digest)
        if not at_once and (trial is not None or self._bringing_in.step is not None):
            raise ConfigError("a rollout is under way: abort it first, or name --at-once (over HTTP at_once: true)")
        if trial is not None and trial.candidate.digest == found.digest:
            self._moves.complete(trial.controller.told(), ("an operator let it decide at once",), at_once=True)
            await self._ledger.save()
            return self.status()
        while await self._bringing_in.cancel("another release was started at once"):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)  # what waited behind it begins now
        now, named = self._ledger.now(), self._following.named
        await self._bringing_in.run(
            KeptCandidate(
                release=found.name,
                digest=found.digest,
                path=str(found.path),
                asked_at=now,
                downloaded_at=now,
                lenient=lenient or self._lenient,
                at_once=at_once,
            )
        )
        if named is not None:  # it stays until the source names another
            self._ledger.set(seen=named)
        return self.status()

    async def _found(self, wanted: str) -> Found:
        try:
            return await self._find(wanted)
        except Refused as refused:
            digest = wanted if is_digest(wanted) else None
            self._ledger.note(Happened.REFUSED, wanted, digest, step=refused.step, why=refused.why)
            raise

    async def put(self, bundle: bytes) -> str:
        """Take an uploaded bundle, the bytes of a tar, and return its digest, to be started by.

        Raises Refused for what cannot be used, and ConfigError where no release keys are set: else whoever may start a release
        could send the texts of all requests where he likes.
        """
        if self._put is None:
            raise ConfigError("a bundle is taken only where release_keys_file is set; name one of releases_folder")
        return (await self._put(bundle)).digest

    async def foresee(self, wanted: str) -> dict[str, Any]:
        """Return what a release by digest or name will have to show, and how soon harm would be met: `foreseen`.

        Nothing is begun by it. Raises ConfigError for an unknown release, the stable one, and where that is not told here.
        """
        if self._foresee is None:
            raise ConfigError("what a release will have to show is not told here")
        told = await self._foresee(self._moves.stable, wanted, self._rate.per_s())
        self._moves.must_be_another(told["digest"])
        return told

    async def promote(self, *, force: bool = False) -> dict[str, Any]:
        """Go on to the next step before its time; with ``force`` without the evidence too.

        Raises ConfigError where no candidate is under way, and without ``force`` where a guardrail has not passed.
        """
        trial = self._moves.trial
        if trial is None:
            raise ConfigError("no candidate is under way")
        evidence = trial.controller.told()
        guardrails = evidence["guardrails"]
        unshown = [str(each["name"]) for each in guardrails if each["needed"] and each["verdict"] != "pass"]
        if unshown and not force:
            names = ", ".join(unshown)
            raise ConfigError(f"not shown yet: {names}; --force goes on all the same (over HTTP force: true)")
        trial.controller.promote(self._clock())
        verdict = RolloutVerdict.COMPLETE if trial.controller.is_complete else RolloutVerdict.ADVANCE
        why = (f"an operator went on without evidence of: {', '.join(unshown)}",) if unshown else ()
        self._moves.act(verdict, evidence, Happened.PROMOTED, why)
        await self._ledger.save()
        return self.status()

    async def abort(self, reason: str = "") -> dict[str, Any]:
        """Take the candidate back, or end its activation. Raises ConfigError where nothing is under way."""
        why = reason or "an operator asked for it"
        ended = await self._bringing_in.cancel(why)
        if self._moves.trial is not None:
            self._moves.take_back(Happened.ABORTED, (why,))
        elif not ended:
            raise ConfigError("no rollout is under way")
        await self._ledger.save()
        return self.status()

    def status(self) -> dict[str, Any]:
        """Return what is desired, active and being tried, and the guardrails with their numbers."""
        trial = self._moves.trial
        within = [] if trial is None else self._within(trial.candidate, self._rate.per_s())
        told = status_of(self._ledger.remembered, trial, self._bringing_in.step, within)
        told |= {"desired": self._following.told(), "state_fault": self.state_fault}
        return told

    @property
    def state_fault(self) -> str | None:
        """Return why what a restart goes on from could not be kept the last time, None where it could."""
        return self._ledger.fault

    @property
    def desired_fault(self) -> str | None:
        """Return why what the watched source names cannot be used, None where it can, and where none is watched."""
        desired = self._following.told()
        return None if desired is None else desired["fault"]

    def history(self) -> list[dict[str, Any]]:
        """Return what happened, latest first, with the evidence of each step."""
        return [entry.model_dump(mode="json") for entry in reversed(self._ledger.remembered.history)]

    def told(self, settled: Settled) -> None:
        """Take note of a request; where a guardrail fails by it, the candidate is gone before the next one.

        What a release settled that had the arm before counts for neither of the two that are compared.
        """
        trial = self._moves.trial
        try:
            self._rate.count()
            if trial is None:
                return
            compared = trial.candidate if settled.arm is Arm.CANARY else self._moves.stable
            if settled.digest != compared.digest:
                return
            trial.controller.observe(trial.judge.observed(settled))
            if trial.controller.failed:
                self.tick()
                self._wake.set()  # what happened is kept at once
        except Exception as error:  # noqa: BLE001 - a boundary of its own: judging a release never costs an answer
            self._moves.not_judged(trial, error)

    async def run(self) -> None:
        """Go on from where a restart left off, then look at the source and tick, until cancelled."""
        watching = asyncio.create_task(self._following.watch(), name="looks at the desired release")
        ticking = asyncio.create_task(self._ticks(), name="asks the controller")
        try:
            await self._guarded(self._bringing_in.resume)
            while True:
                await self._guarded(self._following.look)
                await self._guarded(self._keep)
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            watching.cancel()
            ticking.cancel()
            await asyncio.gather(watching, ticking, return_exceptions=True)

    async def _ticks(self) -> None:
        """Tick, whatever the disk or an activation keeps the loop waiting for."""
        while True:
            try:
                self.tick()
                self._count_tick()
            except Exception as error:  # noqa: BLE001 - the boundary of a background task: else nobody judges any more
                self._count_fault(error)
            await asyncio.sleep(TICK_S)

    def _count_tick(self) -> None:
        trial = self._moves.trial
        if trial is not None:
            trial.ticks += 1
            if trial.ticks * TICK_S >= _OUTLIVED_S:
                self._moves.outlived()

    def tick(self) -> None:
        """Ask the controller, and let traffic follow: when it returns no new request goes where none should."""
        trial = self._moves.trial
        if trial is None:
            return
        try:
            before = trial.controller.told()  # a step that is left takes its numbers with it
            verdict = trial.controller.tick(self._clock())
            if verdict is not RolloutVerdict.HOLD:
                evidence = trial.controller.told() if verdict is RolloutVerdict.ROLL_BACK else before
                self._moves.act(verdict, evidence, Happened.ADVANCED)
        except Exception as error:  # noqa: BLE001 - a candidate that cannot be judged must not stay
            self._moves.not_judged(trial, error)

    async def stops(self) -> None:
        """Keep that the process is told to stop: however it ends then, no candidate is the reason."""
        self._bringing_in.stops = True
        self._moves.outlived()
        await self._ledger.save()

    async def aclose(self) -> None:
        """Keep what a restart goes on from, and give the candidate back."""
        self._moves.outlived()
        self._moves.keep_numbers()
        await self._ledger.save()
        await self._moves.aclose()

    async def _keep(self) -> None:
        now = self._clock()
        if now - self._kept_at >= _KEEP_S:
            self._kept_at = now
            self._moves.keep_numbers()
        self._moves.show()
        await self._ledger.save()

    async def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the boundary of a background task: it goes on
            self._count_fault(error)
