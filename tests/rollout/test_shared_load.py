"""Like releases in front of the same servers, in a burst of load: neither looks worse, or better, for what the other sheds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from cascade.guard.pressure import Pressure
from cascade.policy.release import RolloutRules, parse_release
from cascade.rollout.guardrails.arm_comparison import ArmComparison
from cascade.rollout.guardrails.observed import Observed
from cascade.rollout.guardrails.spending import harm_alpha
from cascade.server.stepping import Stepping
from cascade.types import Arm, StageName
from tests.guard.load_simulation import BOUNDS, CAPACITY, DEADLINE_S, Fixed, Request, Served, Simulation
from tests.scenario import release_data

_RULES = RolloutRules()
_RELEASE = parse_release(
    release_data(
        budgets={"total_ms": DEADLINE_S * 1000, "small_ms": 150, "large_ms": 200, "reserve_ms": 10},
        levels=[
            {"name": "normal"},
            {"name": "degraded-1", "escalation": {"kind": "static", "top_m": 8}},
            {"name": "degraded-2", "escalation": "none"},
            {"name": "degraded-3", "depth": 20, "escalation": "none"},
            {"name": "degraded-4", "stages": "none"},
        ],
    )
)


class _Arm:
    """One release in the simulation of two: levels, and what is told of its answers."""

    def __init__(self, simulation: _Two, arm: Arm, jitter: float) -> None:
        self._simulation = simulation
        self._arm = arm
        self.pressure = Pressure(simulation.clock, least_deadline_ms=DEADLINE_S * 1000)
        for name, server in ((StageName.SMALL, simulation.small), (StageName.LARGE, simulation.large)):
            self.pressure.watch_stage(name, server, server.breaker)
        self.stepping = Stepping(
            _RELEASE,
            self.pressure,
            simulation.clock,
            metrics=None,
            jitter=jitter,
            soon=self._soon,
        )
        self.controller = self.served = self
        self.retries = 0
        self.answers: list[Served] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulation, name)

    def _soon(self, call: Callable[[], object]) -> None:
        def called() -> None:
            call()

        self._simulation.at(self._simulation.now, called)

    def choose(self, pressure: Pressure) -> int:
        return self.stepping.choose()

    def append(self, served: Served) -> None:
        """Take an answer, as the guardrails see it."""
        bound = BOUNDS[served.level]
        seen = Observed(
            self._arm,
            fallback=served.level > 0 or not served.planned,
            escalated_share=bound.large / 50,
            cost=(bound.small * 0.1 + bound.large) / 25,
        )
        self.answers.append(served)
        take = self._simulation.compared.canary if self._arm is Arm.CANARY else self._simulation.compared.stable
        take(seen)

    @property
    def degraded(self) -> float:
        """Return the share of its answers that were not what the release plans."""
        return sum(each.level > 0 or not each.planned for each in self.answers) / len(self.answers)


class _Two(Simulation):
    """Both arms, each request dealt by itself."""

    def __init__(self, share: float, seed: int, *, shared: bool) -> None:
        load = CAPACITY * 0.6
        super().__init__(Fixed(0), lambda at: load if not 60 <= at < 90 else CAPACITY * 1.6, 120.0, seed=seed)
        rng = random.Random(seed)  # noqa: S311 - a simulation
        self._share, self._deal = share, rng.random
        self.compared = ArmComparison(_RULES.guardrails, harm_alpha(_RULES), _RULES.alpha, _RULES.warm_up)
        self.stable, self.canary = (_Arm(self, arm, rng.uniform(0.8, 1.2)) for arm in (Arm.STABLE, Arm.CANARY))
        if shared:
            self.canary.stepping.follow(self.stable.stepping)

    def _look(self) -> None:
        self.stable.stepping.look()
        self.canary.stepping.look()

    def _request(self, attempt: int) -> None:
        arm: Any = self.canary if self._deal() < self._share else self.stable
        Request(arm, attempt).begin()


def _played(share: float, *, shared: bool) -> list[_Two]:
    played = [_Two(share, seed, shared=shared) for seed in range(3)]
    for each in played:
        each.run()
    return played


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_like_releases_are_let_be_in_a_burst_that_both_shed(share: float) -> None:
    """Three fifths more than the servers can do at normal, for half a minute: both are degraded as much, and no guardrail fails."""
    for each in _played(share, shared=True):
        assert not each.compared.has_failed
        assert each.canary.degraded == pytest.approx(each.stable.degraded, abs=0.15)
        assert each.stable.degraded > 0.2


def test_each_by_itself_one_sheds_for_both() -> None:
    """What sharing is for: at one request in twenty the candidate answers nearly all in full, in room that the other made."""
    played = _played(0.05, shared=False)
    assert sum(each.canary.degraded for each in played) < sum(each.stable.degraded for each in played) / 3
