"""Move traffic between the stable release and a candidate, and take note of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, assert_never

from cascade.errors import ConfigError
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.history import Happened, KeptCandidate, KeptRelease, RolloutState, TurnedDown
from cascade.rollout.ledger import Ledger
from cascade.rollout.ports import Closes, Serving, Shown, Splits
from cascade.rollout.trial import Judge, Trial

__all__ = ["Moves"]

Release = TypeVar("Release", bound=Serving)


class Moves(Generic[Release]):
    """Hold the candidate that is being tried, and move traffic to it and from it, each time as one reference.

    ``judge_of`` makes what judges a candidate against the stable release, from its kept state after a restart;
    ``beside_of`` starts what runs beside it. Nothing here awaits: when a move returns, no new request goes where none
    should. What is left behind is closed in the background.
    """

    def __init__(
        self,
        traffic: Splits[Release],
        ledger: Ledger,
        *,
        judge_of: Callable[[Release, Release, Mapping[str, Any] | None], Judge],
        beside_of: Callable[[Release, Release, Judge], Closes | None] = lambda stable, candidate, judge: None,
        count_fault: Callable[[BaseException], None],
        shown: Shown | None = None,
    ) -> None:
        self.trial: Trial[Release] | None = None
        self._traffic = traffic
        self._ledger = ledger
        self._judge_of = judge_of
        self._beside_of = beside_of
        self._count_fault = count_fault
        self._shown = shown
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def stable(self) -> Release:
        """Return the release that decides whatever the candidate does not."""
        return self._traffic.stable

    def must_be_another(self, digest: str) -> None:
        """Raise ConfigError for the stable release."""
        if digest == self.stable.digest:
            raise ConfigError("that release is the stable one already")

    def serves(self) -> None:
        """Take note of the stable release that there is, where it is not the one that is remembered.

        A candidate that was held against that one begins again.
        """
        remembered = self._ledger.remembered
        if remembered.stable is None or remembered.stable.digest != self.stable.digest:
            kept = remembered.candidate
            if kept is not None and kept.controller is not None:  # what it has shown, it has shown against another one
                seen = None if kept.by_source else remembered.seen
                again = kept.model_copy(update={"controller": None, "activated_at": None})
                self._ledger.set(candidate=again, seen=seen)
            refused = None if remembered.refused is None else remembered.refused.digest
            if kept is None and (remembered.state is RolloutState.COMPLETED or refused == self.stable.digest):
                self._ledger.set(state=RolloutState.IDLE)  # how the last one ended is no word on this one
            self._now_stable(self.stable)
            self._ledger.note(Happened.SERVED, self.stable.name, self.stable.digest, share=1.0)

    def bring_in(self, release: Release, kept: KeptCandidate) -> None:
        """Let a release that was made ready decide: its first share, or with ``at_once`` everything.

        It is the step `swap` of its activation: where it raises, the old release decides everything as before.
        """
        if kept.at_once:
            self._retire(self._traffic.activate(release))
            return
        trial = Trial(release, self._judge_of(self.stable, release, kept.controller), lenient=kept.lenient)
        try:
            self._traffic.split(release, trial.controller.share)
            trial.beside = self._beside_of(self.stable, release, trial.judge)
        except BaseException:
            if self._traffic.candidate is release:
                self._traffic.unsplit()
            raise
        self.trial = trial

    def brought_in(self, release: Release, kept: KeptCandidate) -> None:
        """Take note of a release that `bring_in` let decide."""
        more: dict[str, Any] = {"at_once": kept.at_once, "lenient": kept.lenient}
        if self.trial is None:
            self._now_stable(release)
            self._ledger.set(state=RolloutState.COMPLETED, candidate=None)
            self._ledger.note(Happened.COMPLETED, release.name, release.digest, share=1.0, **more)
        else:
            resumed = kept.controller is not None
            now = kept.activated_at if resumed and kept.activated_at is not None else self._ledger.now()
            controller, said = self.trial.controller, self._ledger.remembered.candidate or kept  # as `outlived` left it
            said = said.model_copy(update={"activated_at": now, "controller": controller.state()})
            self._ledger.set(state=RolloutState.RUNNING, candidate=said)
            what = Happened.RESUMED if resumed else Happened.STARTED
            self._ledger.note(what, release.name, release.digest, share=controller.share, step=controller.step, **more)
        self.show()

    def act(self, verdict: RolloutVerdict, evidence: dict[str, Any], what: Happened, why: tuple[str, ...] = ()) -> None:
        """Let traffic follow a verdict of the controller's; ``what`` is how an advance is written down."""
        trial = self.trial
        if trial is None:
            return
        match verdict:
            case RolloutVerdict.HOLD:
                return
            case RolloutVerdict.ADVANCE:
                controller = trial.controller
                self._traffic.split(trial.candidate, controller.share)
                self.keep_numbers()
                self._note(what, trial, evidence, share=controller.share, step=controller.step, why=why)
            case RolloutVerdict.COMPLETE:
                self.complete(evidence, why)
            case RolloutVerdict.ROLL_BACK:
                self.take_back(Happened.ROLLED_BACK, failed(evidence), evidence)
            case _:
                assert_never(verdict)
        self.show()

    def complete(self, evidence: dict[str, Any], why: tuple[str, ...] = (), *, at_once: bool = False) -> None:
        """Let the candidate be the stable release."""
        trial = self.trial
        if trial is None:
            return
        before = self._traffic.activate(trial.candidate)
        self.trial = None
        self._retire(before, trial.beside)
        self._now_stable(trial.candidate)
        self._ledger.set(state=RolloutState.COMPLETED, candidate=None)
        self._note(Happened.COMPLETED, trial, evidence, share=1.0, why=why, at_once=at_once)
        self.show()

    def take_back(self, what: Happened, why: tuple[str, ...], evidence: dict[str, Any] | None = None) -> None:
        """Let the stable release decide everything again; the evidence stays in the history.

        ``what`` is rolled back, aborted or replaced.
        """
        trial = self.trial
        if trial is None:
            return
        gone = self._traffic.unsplit()
        self.trial = None
        step = trial.controller.step
        if gone is not None:
            self._retire(gone, trial.beside)
        told = trial.controller.told() if evidence is None else evidence
        self._ledger.set(state=RolloutState(what), candidate=None)
        self.turned_down(trial.candidate.name, trial.candidate.digest, what, why)
        self._note(what, trial, told, step=step, why=why)
        self.show()

    def give_up(self, kept: KeptCandidate, why: tuple[str, ...], evidence: Mapping[str, Any]) -> None:
        """Take back what a restart left being tried, without bringing it in again; the evidence stays in the history."""
        what, more = Happened.ROLLED_BACK, {"evidence": _guardrails(evidence), "lenient": kept.lenient}
        self._ledger.set(state=RolloutState(what), candidate=None)
        self.turned_down(kept.release, kept.digest, what, why)
        self._ledger.note(what, kept.release, kept.digest, why=why, **more)

    def outlived(self) -> None:
        """Hold no end of the process against its candidate any more: it is told to stop, or went on with it."""
        kept = self._ledger.remembered.candidate
        if kept is not None and kept.attempts:
            self._ledger.set(candidate=kept.model_copy(update={"attempts": 0}))

    def not_judged(self, trial: Trial[Release] | None, error: Exception) -> None:
        """Take a candidate back that cannot be judged for a fault of ours, which is counted in any case."""
        self._count_fault(error)
        if trial is not None and self.trial is trial:
            why = f"it could not be judged: {type(error).__name__}"
            self.take_back(Happened.ROLLED_BACK, (why,), {"guardrails": []})

    def turned_down(self, release: str, digest: str, step: str, why: tuple[str, ...]) -> None:
        """Take note of a release that does not serve, and why."""
        refused = TurnedDown(digest=digest, release=release, step=step, why=why, at=self._ledger.now())
        self._ledger.set(refused=refused)

    def passed_over(self, release: str, digest: str, step: str, why: tuple[str, ...]) -> None:
        """Take note of a release that this start could not serve."""
        if self._ledger.remembered.candidate is None:
            self._ledger.set(state=RolloutState.REFUSED)
        self.turned_down(release, digest, step, why)
        self._ledger.note(Happened.REFUSED, release, digest, step=step, why=why)

    def keep_numbers(self) -> None:
        """Remember where the controller stands, for a restart to go on from."""
        kept = self._ledger.remembered.candidate
        if self.trial is not None and kept is not None:
            self._ledger.set(candidate=kept.model_copy(update={"controller": self.trial.controller.state()}))

    def show(self) -> None:
        """Show the step and the guardrails in the metrics."""
        if self._shown is None:
            return
        trial = self.trial
        guardrails = [] if trial is None else trial.controller.told()["guardrails"]
        step = None if trial is None else trial.controller.step
        self._shown.rollout(
            step, self._traffic.share, {str(each["name"]): _NUMBERS.get(each["verdict"], 0) for each in guardrails}
        )

    async def aclose(self) -> None:
        """Give the candidate back without a word of it in the history, and wait until all that was left is closed."""
        trial, self.trial = self.trial, None
        if trial is not None:
            gone = self._traffic.unsplit()
            if gone is not None:
                self._retire(gone, trial.beside)
        while self._retiring:
            await asyncio.gather(*self._retiring, return_exceptions=True)

    def _now_stable(self, release: Release) -> None:
        stable = KeptRelease(
            release=release.name,
            digest=release.digest,
            policy_digest=release.policy_digest,
            activated_at=self._ledger.now(),
        )
        self._ledger.set(stable=stable)

    def _note(self, what: Happened, trial: Trial[Release], evidence: Mapping[str, Any], **more: Any) -> None:
        more |= {"evidence": _guardrails(evidence), "lenient": trial.lenient}
        self._ledger.note(what, trial.candidate.name, trial.candidate.digest, **more)

    def _retire(self, release: Release, beside: Closes | None = None) -> None:
        task = asyncio.create_task(self._close(release, beside), name="end of a release")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _close(self, release: Release, beside: Closes | None) -> None:
        for each in (beside, release):
            try:
                if each is not None:
                    await each.aclose()
            except Exception as error:  # noqa: BLE001 - the boundary of a background task
                self._count_fault(error)


_NUMBERS: Mapping[str, int] = {"fail": -1, "inconclusive": 0, "pass": 1}  # nosec B105 # no password


def _guardrails(evidence: Mapping[str, Any]) -> dict[str, Any]:
    return {"guardrails": evidence["guardrails"]}


def failed(evidence: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which guardrails failed, by name and in their own words."""
    return tuple(f"{each['name']}: {each['why']}" for each in evidence["guardrails"] if each["verdict"] == "fail")
