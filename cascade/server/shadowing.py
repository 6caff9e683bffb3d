"""Score beside answers for the sake of a candidate: a sample of the traffic, and judged queries."""

from __future__ import annotations

from cascade.errors import ConfigError
from cascade.rollout.bundle import Bundle
from cascade.rollout.shadow import AsideStages, GoldQueries, GoldRun, Shadowing, ShadowOutcome, ShadowRunner, parse_gold
from cascade.rollout.trial import Judge
from cascade.server.active import ActiveRelease
from cascade.server.service import Service

__all__ = ["gold_of", "shadowing"]


def gold_of(bundle: Bundle) -> GoldQueries | None:
    """Return the judged queries that a release names, None where it names none. Raises ConfigError."""
    digest = bundle.loaded.release.rollout.gold
    if digest is None:
        return None
    try:
        return parse_gold(bundle.source.artefacts.read(digest))
    except ConfigError as error:
        raise ConfigError(f"rollout.gold: {error}") from None


def shadowing(
    service: Service, stable: ActiveRelease, candidate: ActiveRelease, judge: Judge, gold: GoldQueries | None
) -> Shadowing:
    """Begin to score beside the answers of ``stable``, and what ``gold`` asks, whenever there is no load.

    To be closed before either release is. Load stops it before anything else: nothing begins while either release is
    above its normal level, or a request waits to be admitted.
    """
    rules, clock = candidate.bundle.loaded.release.rollout.shadow, service.clock
    controller = judge.controller

    def paused() -> bool:
        loaded = stable.stepping.is_loaded or candidate.stepping.is_loaded
        return loaded or service.draining or service.admission.oldest_wait_s() > 0

    stages = AsideStages(clock, paused)

    def count(outcome: ShadowOutcome) -> None:
        service.metrics.arms.shadowed(outcome)
        if outcome is not ShadowOutcome.COMPARED:
            controller.pair_left_out(outcome.value)

    runner = ShadowRunner(
        rules,
        stable=lambda: stable.ladder[0],
        candidate=lambda: candidate.ladder[0],
        salt=candidate.digest,
        clock=clock,
        paused=paused,
        observe_pair=controller.observe_pair,
        count=count,
        count_fault=service.faults,
        stages=stages,
    )
    asking = None
    if gold is not None:
        asking = GoldRun(
            gold,
            stable=lambda: stable.ladder[0],
            candidate=lambda: candidate.ladder[0],
            salt=candidate.digest,
            clock=clock,
            paused=paused,
            observe_gold=controller.observe_gold,
            count_fault=service.faults,
            stages=stages,
            within_ms=rules.max_ms,
            done=_asked_before(judge),
        )
    return Shadowing(stable.tap, runner, asking)


def _asked_before(judge: Judge) -> int:
    """Return how many judged queries the controller was told of before a restart."""
    told = judge.controller.told()["guardrails"]
    return next((each["n"] for each in told if each["name"] == "gold_loss"), 0)
