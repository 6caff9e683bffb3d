"""Metrics of a rollout: which releases are active, and how the arms fare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, Histogram

from cascade import __version__
from cascade.decision import Decision
from cascade.telemetry.declared import EXPERIMENTAL, SECONDS, STABLE, Declaring
from cascade.types import Arm, StageName

__all__ = ["ArmMetrics"]

_ACTIVATIONS: Final = (
    "swapped", "aborted", "read", "signature", "verify", "load", "start", "probe", "smoke", "fingerprint", "swap",
)  # fmt: skip
_SHADOWED: Final = (
    "compared", "paused", "queue_full", "bytes_full", "closed", "stable_degraded", "candidate_degraded",
    "no_large_stage", "silver_failed", "silver_excluded", "silver_tied", "timed_out", "fault",
)  # fmt: skip
_ROLLOUTS: Final = ("completed", "rolled_back", "aborted", "refused")
"""Outcomes that are shown from the start, at 0: a rate over a counter that appears late would miss its first event."""
_ANSWERING: Final = (Arm.STABLE, Arm.CANARY)
"""The arms that answer. Nobody waits for a shadow, so it is in none of these but the last."""


@dataclass(frozen=True, slots=True)
class _OfArm:
    """What is counted of one arm."""

    answered: Counter
    refused: Counter
    abandoned: Counter
    late: Counter
    degraded: Counter
    seconds: Histogram
    large_pairs: Counter
    candidates: Counter


class ArmMetrics:
    """Count the decided requests of each arm, and show where a rollout stands."""

    def __init__(self, declare: Declaring) -> None:
        self._info = declare.gauge(
            STABLE,
            "cascade_release_info",
            "The active releases: 1 for each, by the arm that it is",
            ["release", "digest", "version", "arm"],
        )
        requests = declare.counter(
            STABLE,
            "cascade_arm_requests",
            "Decided requests by the arm of a rollout: answered, or refused because the caller wanted an error then",
            ["arm", "outcome"],
        )
        abandoned = declare.counter(
            EXPERIMENTAL, "cascade_arm_abandoned", "Requests whose caller went away before the answer, by arm", ["arm"]
        )
        late = declare.counter(
            STABLE, "cascade_arm_late", "Decided requests that took longer than their deadline", ["arm"]
        )
        degraded = declare.counter(STABLE, "cascade_arm_degraded", "Degraded answers by arm", ["arm"])
        seconds = declare.histogram(
            STABLE, "cascade_arm_duration_seconds", "Time of a request by arm", ["arm"], buckets=SECONDS
        )
        pairs = declare.counter(
            STABLE,
            "cascade_arm_large_pairs",
            "Pairs that the large stage was asked for and scored, or the cache in its place, by arm",
            ["arm"],
        )
        candidates = declare.counter(STABLE, "cascade_arm_candidates", "Candidates of requests by arm", ["arm"])
        self._of = {
            arm: _OfArm(
                requests.labels(arm, "answered"),
                requests.labels(arm, "refused"),
                abandoned.labels(arm),
                late.labels(arm),
                degraded.labels(arm),
                seconds.labels(arm),
                pairs.labels(arm),
                candidates.labels(arm),
            )
            for arm in _ANSWERING
        }
        self._share = declare.gauge(STABLE, "cascade_arm_share", "Share of the requests that an arm answers", ["arm"])
        self._step = declare.gauge(
            STABLE, "cascade_rollout_step", "Step of the rollout under way, from 0; -1 where there is none"
        )
        self._guardrails = declare.gauge(
            STABLE,
            "cascade_guardrail",
            "Guardrails of the rollout under way: -1 fails, 0 inconclusive, 1 passes",
            ["name"],
        )
        self._shadow = declare.counter(
            STABLE,
            "cascade_shadow",
            "Requests offered to the shadow of a candidate, by what became of them",
            ["outcome"],
        )
        self._activations = declare.counter(
            STABLE,
            "cascade_activations",
            "Activations of a release by outcome: swapped, or the step that refused it",
            ["outcome"],
        )
        self._rollouts = declare.counter(
            STABLE,
            "cascade_rollouts",
            "Rollouts that ended, by outcome: all traffic moved, taken back by a guardrail, aborted or replaced, or refused",
            ["outcome"],
        )
        self._state_unkept = declare.gauge(
            EXPERIMENTAL,
            "cascade_rollout_state_unkept",
            "1 where the state of rollouts, which a restart goes on from, could not be written the last time",
        )
        self._passed_over = declare.gauge(
            EXPERIMENTAL,
            "cascade_start_passed_over",
            "Releases that this start could not serve, as long as what it serves in their place is the stable release",
        )
        self._desired_unusable = declare.gauge(
            EXPERIMENTAL,
            "cascade_desired_unusable",
            "1 where what the watched source of releases names cannot be read or used: what served goes on",
        )
        for counter, outcomes in (
            (self._shadow, _SHADOWED), (self._activations, _ACTIVATIONS), (self._rollouts, _ROLLOUTS),
        ):  # fmt: skip
            for outcome in outcomes:
                counter.labels(outcome)
        self._step.set(-1)

    def decided(self, decision: Decision, *, answered: bool) -> None:
        """Count one decided request."""
        of = self._of[decision.arm]
        (of.answered if answered else of.refused).inc()
        if decision.total_ms > decision.deadline_ms:
            of.late.inc()
        if decision.degraded:
            of.degraded.inc()
        of.seconds.observe(decision.total_ms / 1000)
        of.candidates.inc(decision.candidates)
        for item in decision.rounds:
            if item.stage is StageName.LARGE and item.scored:
                of.large_pairs.inc(item.scored)

    def refused(self, arm: Arm) -> None:
        """Count one request that the release of an arm does not take."""
        self._of[arm].refused.inc()

    def abandoned(self, arm: Arm) -> None:
        """Count one request whose caller left before the answer."""
        self._of[arm].abandoned.inc()

    def serve(self, releases: Iterable[tuple[str, str, Arm]], share: float) -> None:
        """Show what is active, each as its name, digest and arm, and the share that the candidate answers."""
        self._info.clear()
        for release, digest, arm in releases:
            self._info.labels(release, digest, __version__, arm).set(1)
        self._show_share(share)

    def rollout(self, step: int | None, share: float, guardrails: Mapping[str, int]) -> None:
        """Show the step, None where no rollout is under way, the candidate's share, and each guardrail.

        A guardrail is -1 where it fails, 0 inconclusive, 1 where it passes.
        """
        self._step.set(-1 if step is None else step)
        self._show_share(share)
        self._guardrails.clear()
        for name, verdict in guardrails.items():
            self._guardrails.labels(name).set(verdict)

    def activated(self, outcome: str) -> None:
        """Count an activation by its outcome: ``swapped``, or the step that refused it."""
        self._activations.labels(outcome).inc()

    def rolled_out(self, outcome: str) -> None:
        """Count a rollout that ended, by what came of it: one of a closed list."""
        self._rollouts.labels(outcome).inc()

    def state_kept(self, good: bool) -> None:
        """Show whether the state that a restart goes on from was kept the last time."""
        self._state_unkept.set(not good)

    def passed_over(self, releases: int) -> None:
        """Show how many releases the start could not serve; 0 once another one than it chose is stable."""
        self._passed_over.set(releases)

    def desired_usable(self, good: bool) -> None:
        """Show whether what the watched source names can be used; it can where none is watched."""
        self._desired_unusable.set(not good)

    def shadowed(self, outcome: str) -> None:
        """Count a request that was offered to a shadow, by what became of it: one of a closed list."""
        self._shadow.labels(outcome).inc()

    def _show_share(self, share: float) -> None:
        self._share.labels(Arm.STABLE).set(1 - share)
        self._share.labels(Arm.CANARY).set(share)
