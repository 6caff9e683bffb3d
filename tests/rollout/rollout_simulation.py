"""Play a rollout on a virtual clock: made-up decisions of two releases, and what is served to judge them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cascade.decision import DegradedReason
from cascade.policy.release import Release, RolloutRules, parse_release
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.guardrails import Observed, Settled
from cascade.rollout.guardrails.time_to_rollback import STABLE_RATE
from cascade.rollout.judge import judge_of
from cascade.types import Arm, StageName
from tests.scenario import release_data
from tests.telemetry.decisions import decision, round_of

from .simulated_callers import Asked, Callers, Floats, failing_callers, heavy_callers

__all__ = ["SCENARIOS", "Answers", "Outcome", "Scenario", "planted", "played"]

_STAGE: Final[dict[str, Any]] = release_data()["stages"]["large"]
_ESCALATED: Final = (0.0, 0.1, 0.2, 0.4)
_TOPS: Final = 64
"""Places that the best score of a stage has; scores are these, from -2 to 2."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The law of one release's answers: rates of what is bad, chances of each share escalated, the best score's mean."""

    late: float = 0.005
    error: float = 0.001
    fallback: float = 0.01
    escalated: tuple[float, float, float, float] = (0.5, 0.2, 0.2, 0.1)
    top: float = 0.0


_Canary = Callable[[float, Answers], Answers]


def _same(_now: float, usual: Answers) -> Answers:
    return usual


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a candidate is like. ``both`` changes both releases' answers over time, ``canary`` the candidate's alone."""

    what: str
    canary: _Canary = _same
    both: Callable[[float, np.random.Generator], Answers] = lambda _now, _rng: Answers()
    loss: float = 0.0
    loss_spread: float = 0.1
    requests_per_s: float = 100.0
    longest_s: float = 4 * 3600.0
    candidate: dict[str, Any] = field(default_factory=dict)
    """What the candidate's release says otherwise than the stable one's."""
    cold: bool = False
    """Whether of the candidate's first answers more are late: six of ten, two of ten, then ever fewer of forty."""
    callers: Callable[[np.random.Generator], Callers] | None = None
    """Who asks, each always answered by one release; None: every request is dealt by itself."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a rollout ended: its verdict and step, when, after how many answers of the candidate and pairs, and by what."""

    verdict: RolloutVerdict
    step: int
    seconds: float
    queries: int
    pairs: int
    failed: tuple[str, ...]
    told: dict[str, Any]


def _worse(late: float = 0.0, error: float = 0.0, fallback: float = 0.0, top: float = 0.0) -> _Canary:
    """Return a candidate with more of what is named than the stable release."""

    def canary(_now: float, usual: Answers) -> Answers:
        return replace(
            usual,
            late=usual.late + late,
            error=usual.error + error,
            fallback=usual.fallback + fallback,
            top=usual.top + top,
        )

    return canary


def _as_assumed(_now: float, _rng: np.random.Generator) -> Answers:
    """Be as bad as `time_to_rollback` assumes of a stable release."""
    return Answers(late=STABLE_RATE, error=STABLE_RATE, fallback=STABLE_RATE)


def _day(now: float, _rng: np.random.Generator) -> Answers:
    """Change everything over a day of half an hour."""
    up = (1.0 + math.sin(2.0 * math.pi * now / 1800.0)) / 2.0
    escalated = (0.6 - 0.2 * up, 0.2, 0.2 - 0.1 * up, 0.3 * up)
    return Answers(0.002 + 0.04 * up, 0.001 + 0.004 * up, 0.005 + 0.05 * up, escalated, up)


class _Bursts:
    """Errors for some seconds now and then, of both releases."""

    def __init__(self) -> None:
        self._until = -1.0

    def __call__(self, now: float, rng: np.random.Generator) -> Answers:
        if now >= self._until and rng.random() < 1.0 / 60.0:
            self._until = now + rng.exponential(3.0)
        return Answers(late=0.2, error=0.3, fallback=0.3) if now < self._until else Answers()


SCENARIOS: Final[dict[str, Callable[[], Scenario]]] = {
    "identical": lambda: Scenario("a release like the stable one"),
    "day": lambda: Scenario("a like release, and traffic that changes over the day", both=_day),
    "cold": lambda: Scenario("a like release with cold caches at first", cold=True),
    "bursts": lambda: Scenario("a like release, and bursts of errors of both", both=_Bursts()),
    "heavy callers": lambda: Scenario(
        "a like release, 300 callers of very unlike traffic, lateness and scores", callers=heavy_callers
    ),
    "failing callers": lambda: Scenario(
        "a like release, 20,000 callers of whom 2% always fail", callers=failing_callers, longest_s=3600.0
    ),
    "tiny": lambda: Scenario("a like release, one request in 20 s", requests_per_s=0.05, longest_s=3600.0),
    "no gold": lambda: Scenario(
        "a like release of another large stage, no judged queries",
        candidate={"stages": {"small": _STAGE, "large": _STAGE | {"model": "another"}}},
        longest_s=600.0,
    ),
    "drift": lambda: Scenario("the small stage's best scores 0.7 spreads higher", canary=_worse(top=0.7)),
}
"""Like releases and others, by name."""


def planted(guardrail: str, harm: float) -> Scenario:
    """Return a release with a harm that `time_to_rollback` tells of, of the kind that it assumes."""
    if guardrail == "ranking_loss":
        return Scenario(f"{harm:g} nDCG worse", loss=harm, loss_spread=0.2)
    name = {"errors": "error"}.get(guardrail, guardrail)
    return Scenario(f"{harm:g} more {guardrail}", canary=_worse(**{name: harm}), both=_as_assumed)


def played(scenario: Scenario, rules: RolloutRules, seed: int) -> Outcome:
    """Play one rollout until it ends or ``longest_s`` are over; the controller looks each second."""
    rng = np.random.default_rng([seed, 20261130])
    candidate = _release("r2", **scenario.candidate).model_copy(update={"rollout": rules})
    controller = judge_of(_STABLE, candidate, now=0.0).controller
    callers = None if scenario.callers is None else scenario.callers(rng)
    now, queries, pairs = 0.0, 0, 0
    while True:
        count = int(rng.poisson(scenario.requests_per_s))
        usual = scenario.both(now, rng)
        asked = (
            _dealt(rng, count, controller.share, usual) if callers is None else callers.asked(count, controller.share)
        )
        new = scenario.canary(now, usual)
        if scenario.cold:
            cold = np.where(asked.canary, _cold(queries + asked.canary.cumsum()), 0.0)
            asked = replace(asked, late=asked.late + cold)
        codes = _codes(rng, asked, usual, new)
        for code, unit in zip(codes.tolist(), asked.units, strict=True):
            controller.observe(_answer(code, unit))
        queries += int(asked.canary.sum())
        for loss in _losses(rng, scenario, rules, int((~asked.canary).sum())).tolist():
            controller.observe_pair(loss)
            pairs += 1
        now += 1.0
        verdict = controller.tick(now)
        if verdict in {RolloutVerdict.ROLL_BACK, RolloutVerdict.COMPLETE} or now >= scenario.longest_s:
            told = controller.told()
            failed = tuple(one["name"] for one in told["guardrails"] if one["verdict"] == "fail")
            return Outcome(verdict, controller.step, now, queries, pairs, failed, told)


def _dealt(rng: np.random.Generator, count: int, share: float, usual: Answers) -> Asked:
    """Return requests of which each is dealt by itself."""
    canary = rng.random(count) < share
    return Asked(
        [None] * count, canary, np.full(count, usual.late), np.full(count, usual.error), np.full(count, usual.top)
    )


def _cold(place: npt.NDArray[np.int64]) -> Floats:
    """Return how much likelier an answer of the candidate is late, by its number."""
    later = np.maximum(0.0, 0.08 - 0.002 * (place - 20))
    return np.asarray(np.where(place <= 10, 0.6, np.where(place <= 20, 0.2, later)))


def _losses(rng: np.random.Generator, scenario: Scenario, rules: RolloutRules, count: int) -> Floats:
    """Return the losses of pairs scored beside answers of the stable release: most are the mean itself, as orders seldom differ."""
    pairs = rng.binomial(count, rules.shadow.share)
    spread = scenario.loss_spread / math.sqrt(0.3)
    losses = np.where(rng.random(pairs) < 0.3, rng.normal(0.0, spread, pairs), 0.0)
    return np.clip(scenario.loss + losses, -1.0, 1.0)


def _codes(rng: np.random.Generator, asked: Asked, usual: Answers, new: Answers) -> npt.NDArray[np.int64]:
    """Return for each request the place of its answer in the pool."""
    canary, count = asked.canary, asked.canary.size
    is_late = rng.random(count) < asked.late + np.where(canary, new.late - usual.late, 0.0)
    is_error = rng.random(count) < asked.error + np.where(canary, new.error - usual.error, 0.0)
    degraded = rng.random(count) < np.where(canary, new.fallback, usual.fallback)
    bounds = np.cumsum([usual.escalated, new.escalated], axis=1)[canary.astype(np.int64)]
    escalated = (rng.random(count)[:, None] > bounds[:, :-1]).sum(axis=1)
    tops = rng.normal(asked.top + np.where(canary, new.top - usual.top, 0.0), 1.0, count)
    place = np.clip(((tops + 2.0) / 4.0 * (_TOPS - 1)).round(), 0, _TOPS - 1).astype(np.int64)
    code = canary * 2 + is_late
    code = code * 2 + is_error
    code = code * 2 + degraded
    return np.asarray((code * len(_ESCALATED) + escalated) * _TOPS + place)


def _release(name: str, **changes: Any) -> Release:
    return parse_release(release_data(release=name, **changes))


_STABLE: Final = _release("r1")


def _pool() -> list[Observed]:
    """Return what guardrails see of every answer that there is, by its code; to decide each anew would take the longest."""
    observed = judge_of(_STABLE, _release("r2"), now=0.0).observed
    return [
        observed(_settled(arm, late, error, fallback, share, -2.0 + 4.0 * place / (_TOPS - 1)))
        for arm in (Arm.STABLE, Arm.CANARY)
        for late in (False, True)
        for error in (False, True)
        for fallback in (False, True)
        for share in _ESCALATED
        for place in range(_TOPS)
    ]


def _settled(arm: Arm, late: bool, error: bool, fallback: bool, share: float, top: float) -> Settled:
    """Return a request as the room that serves tells of it: 50 candidates, of which the large stage scored a share."""
    small, large = round_of(sent=50, top=top), round_of(StageName.LARGE, sent=round(50 * share), top=top)
    decided = decision(
        arm=arm,
        candidates=50,
        rounds=(small, large) if share else (small,),
        total_ms=_STABLE.budgets.total_ms * (1.5 if late else 0.5),
        degraded=(DegradedReason.STAGE_TIMEOUT,) if fallback else (),
    )
    return Settled(arm, f"sha256:{arm}", decided, answered=not error)


_POOL: Final = _pool()


@lru_cache(maxsize=2**17)
def _answer(code: int, unit: int | None) -> Observed:
    return _POOL[code] if unit is None else replace(_POOL[code], unit=unit)
