"""The controller of load levels and the breaker of the small stage together: its outage takes no large stage away."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from cascade.decision import Decision, DegradedReason, Level, Round
from cascade.guard.breaker import Breaker, Outcome
from cascade.guard.level_controller import LevelController, LevelRules
from cascade.guard.pressure import Pressure
from cascade.guard.queue_pressure import LevelBound
from cascade.policy.stage_specs import BreakerRules
from cascade.types import BreakerState, StageCost, StageName
from tests.telemetry.decisions import decision

_BOUNDS = (LevelBound(50, 20), LevelBound(50, 0), LevelBound(20, 0), LevelBound(0, 0))
_ONE_STAGE = (LevelBound(50, 0), LevelBound(20, 0), LevelBound(0, 0))
_FROM_S, _UNTIL_S, _SECONDS = 5.0, 35.0, 60.0
_SCORES_S, _LARGE_S = 0.03, 0.05
_HANGS = (0.12, DegradedReason.STAGE_TIMEOUT)
_REFUSES = (0.002, DegradedReason.STAGE_OVERLOADED)
_Fault = tuple[float, DegradedReason]


@dataclass
class _Room:
    """A bound that is never in the way."""

    in_flight: int = 0
    limit: int = 640
    oldest_wait_ms: float = 0.0


@dataclass
class _Played:
    """Which level decided each request and whether the large stage scored it, and the levels of the controller."""

    answers: list[tuple[float, bool]] = field(default_factory=list)
    levels: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])
    states: list[tuple[float, BreakerState]] = field(default_factory=list)

    def unscored(self, begin: float, end: float) -> int:
        """Return how many that came between were not scored by the large stage."""
        return sum(not scored for at, scored in self.answers if begin <= at < end)

    def level_at(self, at: float) -> int:
        """Return the level of a moment."""
        return [level for since, level in self.levels if since <= at][-1]


class _Sidecar:
    """Requests come evenly; the small stage does to each what ``small`` says at its time, and so the large one."""

    def __init__(
        self,
        rate: float,
        small: Callable[[float], _Fault | None],
        large: Callable[[float], _Fault | None] = lambda at: None,
        bounds: tuple[LevelBound, ...] = _BOUNDS,
    ) -> None:
        self.now = 0.0
        self.rate, self.faults, self.bounds = rate, {StageName.SMALL: small, StageName.LARGE: large}, bounds
        self.played = _Played()
        self.pressure = Pressure(lambda: self.now)
        self.breakers = {
            StageName.SMALL: Breaker(
                BreakerRules(),
                lambda: self.now,
                lambda: 0.5,
                lambda state: self.played.states.append((self.now, state)),
            ),
            StageName.LARGE: Breaker(BreakerRules(), lambda: self.now, lambda: 0.5),
        }
        for name, breaker in self.breakers.items():
            self.pressure.watch_stage(name, _Room(), breaker)
        self.controller = LevelController(bounds, LevelRules())
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def play(self) -> _Played:
        """Play it all."""
        for number in range(int(_SECONDS * self.rate)):
            self._at(number / self.rate, self._request)
        for number in range(1, int(_SECONDS * 4)):
            self._at(number / 4, self._look)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self.played

    def _at(self, at: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), event))

    def _look(self) -> None:
        if self.controller.tick(self.now, self.pressure.look()) != self.played.levels[-1][1]:
            self.played.levels.append((self.now, self.controller.level))
            self.pressure.now_at(self.controller.level)

    def _request(self) -> None:
        level = self.pressure.filling(self.controller.level, self.bounds, 0.7)
        self.pressure.arrived(level)
        self._ask(StageName.SMALL, self.now, level, ())

    def _ask(self, stage: StageName, came: float, level: int, rounds: tuple[Round, ...]) -> None:
        pairs = self.bounds[level].of(stage)
        epoch = self.breakers[stage].enter() if pairs else None
        if epoch is None:
            self._after(stage, came, level, rounds)
            return
        fault = self.faults[stage](self.now)
        scores_s = _SCORES_S if stage is StageName.SMALL else _LARGE_S

        def ended() -> None:
            self.breakers[stage].leave(epoch, Outcome.SUCCESS if fault is None else Outcome.FAILURE)
            cost = StageCost(1, pairs, tokens_estimated=True, truncated=0) if fault is None else None
            outcome = "ok" if fault is None else fault[1]
            self._after(
                stage,
                came,
                level,
                (*rounds, Round(stage, "m", pairs, pairs if cost else 0, 0, 0, outcome, "", 1.0, cost)),
            )

        self._at(self.now + (scores_s if fault is None else fault[0]), ended)

    def _after(self, stage: StageName, came: float, level: int, rounds: tuple[Round, ...]) -> None:
        if stage is StageName.SMALL:
            self._ask(StageName.LARGE, came, level, rounds)
            return
        self.pressure.left(level)
        self.pressure.answered(self._decision(level, rounds))
        scored = any(each.stage is StageName.LARGE and each.cost is not None for each in rounds)
        self.played.answers.append((came, scored))

    def _decision(self, level: int, rounds: tuple[Round, ...]) -> Decision:
        bound = self.bounds[level]
        asked = [name for name in StageName if bound.of(name)]
        reasons = [DegradedReason(each.outcome) for each in rounds if each.cost is None]
        if len(rounds) < len(asked):
            reasons.append(DegradedReason.BREAKER_OPEN)
        return decision(level=Level(str(level), level), rounds=rounds, degraded=tuple(reasons))


def _out(fault: _Fault) -> Callable[[float], _Fault | None]:
    return lambda at: fault if _FROM_S <= at < _UNTIL_S else None


@pytest.mark.parametrize("rate", [2.0, 6.0, 15.0, 100.0])
@pytest.mark.parametrize("fault", [_HANGS, _REFUSES])
def test_a_small_stage_that_is_away_leaves_the_large_one_to_answer(rate: float, fault: _Fault) -> None:
    """What it failed before its breaker opened steps down for two seconds at most, and nothing after it does."""
    played = _Sidecar(rate, _out(fault)).play()
    opened = next(at for at, state in played.states if state is BreakerState.OPEN)
    assert _FROM_S < opened < _FROM_S + 2 + 2 / rate
    assert played.unscored(opened + 0.25, _SECONDS) == 0
    assert {level for at, level in played.levels if at > opened + 0.25} <= {0}
    assert played.level_at(_SECONDS) == 0
    assert played.states[-1][1] is BreakerState.CLOSED
    assert played.states[-1][0] < _UNTIL_S + 12


def test_a_small_stage_that_comes_and_goes_leaves_the_large_one_to_answer() -> None:
    """Two seconds away, two seconds well, again and again: hardly an answer without a score, and none once it is well."""
    played = _Sidecar(15.0, lambda at: _HANGS if _FROM_S <= at < _UNTIL_S and int(at / 2) % 2 else None).play()
    assert len([at for at, state in played.states if state is BreakerState.OPEN]) >= 3
    assert played.unscored(0.0, _SECONDS) <= 0.02 * len(played.answers)
    assert played.level_at(_UNTIL_S + 10) == 0


def test_with_both_stages_away_the_large_one_is_left_alone_and_both_come_back() -> None:
    """The breaker of the large one says which level; that of the small one takes nothing of it back."""
    played = _Sidecar(15.0, _out(_HANGS), _out(_REFUSES)).play()
    assert [played.level_at(at) for at in (_FROM_S + 2, _FROM_S + 4)] == [1, 1]
    assert played.level_at(_SECONDS - 1) == 0
    assert played.unscored(_SECONDS - 5, _SECONDS) == 0


def test_a_small_stage_that_is_overloaded_is_asked_for_less() -> None:
    """One in four is refused: too few for its breaker, and too many for the level."""
    number = itertools.count()
    played = _Sidecar(15.0, lambda at: _REFUSES if _FROM_S <= at < _UNTIL_S and next(number) % 4 == 0 else None).play()
    assert played.states == []
    assert played.levels[1][1] == 2
    assert played.levels[1][0] < _FROM_S + 2.5
    assert played.level_at(_UNTIL_S - 1) == 3


def test_a_release_of_one_stage_is_at_its_first_level_while_that_is_away() -> None:
    """Every level answers the same, and the first brings the probes."""
    played = _Sidecar(15.0, _out(_HANGS), bounds=_ONE_STAGE).play()
    assert played.level_at(_FROM_S + 3) == played.level_at(_SECONDS) == 0
    assert played.states[-1][1] is BreakerState.CLOSED
