"""What happens to the simulated sidecar, and the figures that tell how it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cascade.types import BreakerState
from tests.guard.load_simulation import (
    BOUNDS,
    CAPACITY,
    DEADLINE_S,
    FIRST_STAGE,
    RULES,
    Adaptive,
    Controller,
    Fixed,
    Naive,
    Simulation,
)

__all__ = ["CONTROLLERS", "SCENARIOS", "Figures", "Scenario", "played"]

_C: Final = CAPACITY
_SMALL_S: Final = 0.15
_Change = Callable[[Simulation], None]


@dataclass(frozen=True)
class Scenario:
    """A load in multiples of what the first level can serve, and what is done to the servers.

    ``ends`` is when the trouble is over, None where it never is. A round at the small server takes ``small_s`` at most.
    """

    what: str
    load: Callable[[float], float]
    seconds: float
    ends: float | None = None
    disturb: Sequence[tuple[float, _Change]] = ()
    retries: int = 0
    clock_jumps: Sequence[tuple[float, float]] = ()
    small_s: float = DEADLINE_S


def _large(**fields: float) -> _Change:
    def change(simulation: Simulation) -> None:
        for name, value in fields.items():
            setattr(simulation.large, name, value)

    return change


def _revived(simulation: Simulation) -> None:
    for server in (simulation.small, simulation.large):
        server.hangs = server.refuses = False
        server.running = []


def _hangs(simulation: Simulation) -> None:
    simulation.large.hangs = True


def _small_hangs(simulation: Simulation) -> None:
    simulation.small.hangs = True


def _small_refuses(simulation: Simulation) -> None:
    simulation.small.refuses = True


_FLAPS: Final = [(10 + 4.0 * number, _large(slow=1.0 if number % 2 else 5.0)) for number in range(14)]


def _ramp(t: float) -> float:
    return 0.2 + 4.8 * (t / 60 if t < 60 else max(0.0, (90 - t) / 30))


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "quiet": Scenario("0.5x", lambda t: 0.5, 60),
    "step": Scenario("0.6x, 4x from 20 to 60 s", lambda t: 4.0 if 20 <= t < 60 else 0.6, 100, 60),
    "step 10x": Scenario("0.6x, 10x from 20 to 40 s", lambda t: 10.0 if 20 <= t < 40 else 0.6, 80, 40),
    "spike": Scenario("0.6x, 9x from 20 to 23 s", lambda t: 9.0 if 20 <= t < 23 else 0.6, 60, 23),
    "ramp": Scenario("0.2x to 5x in 60 s and back in 30", _ramp, 110, 90),
    "hover": Scenario("1.0x", lambda t: 1.0, 120),
    "hover 2.5x": Scenario("2.5x, what the second level can serve", lambda t: 2.5, 120),
    "slow backend": Scenario(
        "0.6x; the large server 5 times as slow from 20 to 50 s", lambda t: 0.6, 100, 50,
        [(20, _large(slow=5.0)), (50, _large(slow=1.0))],
    ),
    "flapping backend": Scenario(
        "0.6x; the large server slow and well in turns of 4 s, from 10 to 66 s", lambda t: 0.6, 110, 66, _FLAPS
    ),
    "black hole": Scenario(
        "0.6x; the large server accepts and never answers from 20 to 50 s", lambda t: 0.6, 110, 50,
        [(20, _hangs), (50, _revived)],
    ),
    "small stage hangs": Scenario(
        "0.6x; the small server accepts and never answers from 20 to 50 s", lambda t: 0.6, 110, 50,
        [(20, _small_hangs), (50, _revived)], small_s=_SMALL_S,
    ),
    "small stage answers 503": Scenario(
        "0.6x; the small server answers 503 from 20 to 50 s", lambda t: 0.6, 110, 50,
        [(20, _small_refuses), (50, _revived)], small_s=_SMALL_S,
    ),
    "small stage heals": Scenario(
        "0.6x; the small server hangs from 20 to 24 s, and answers 503 from 40 to 44 s", lambda t: 0.6, 80, 44,
        [(20, _small_hangs), (24, _revived), (40, _small_refuses), (44, _revived)], small_s=_SMALL_S,
    ),
    "partial failure": Scenario(
        "0.6x; three of ten batches of the large server fail from 20 to 50 s", lambda t: 0.6, 80, 50,
        [(20, _large(fails=0.3)), (50, _large(fails=0.0))],
    ),
    "retry storm": Scenario(
        "0.7x, 4x from 20 to 40 s; who gets less than planned asks again, three times",
        lambda t: 4.0 if 20 <= t < 40 else 0.7, 100, 40, retries=3,
    ),
    "clock jump": Scenario(
        "2.0x; the clock goes back an hour at 30 s, and ahead two at 45 s", lambda t: 2.0, 80, None,
        clock_jumps=[(30, -3600.0), (45, 7200.0)],
    ),
}  # fmt: skip


def _without_filling() -> Controller:
    controller = Adaptive(BOUNDS, RULES)
    controller.fills = False
    return controller


CONTROLLERS: Final[Mapping[str, Callable[[], Controller]]] = {
    "adaptive": lambda: Adaptive(BOUNDS, RULES),
    "adaptive, no filling": _without_filling,
    "naive": Naive,
    **{f"fixed {level}": (lambda level=level: Fixed(level)) for level in range(len(BOUNDS))},  # type: ignore[misc]
}


@dataclass(frozen=True)
class Figures:
    """How a controller did, over first attempts.

    ``goodput`` is the share answered in time as the level that decided it plans; ``quality`` the mean quality of what
    was answered in time, ``gain`` that above first-stage order, of the most there is: first-stage order is worth
    nothing in it. ``recovery_s`` is the time from the end of the trouble until goodput over five seconds is 99%,
    ``quality_recovery_s`` until gain is within a twentieth of what it was before; None where it never is.
    ``gains`` is the gain of each second. ``opened_at`` is when the large server's breaker opened, ``trouble_gain`` the gain from 20 s until the trouble's end.
    """

    goodput: float
    quality: float
    gain: float
    switches_a_minute: float
    p99_ms: float
    recovery_s: float | None
    quality_recovery_s: float | None
    opened_at: Sequence[float] = ()
    trouble_gain: float | None = None
    gains: Sequence[float] = field(repr=False, default=())
    levels: Sequence[tuple[float, int]] = field(repr=False, default=())


def played(scenario: Scenario, controller: Controller, seed: int = 1, *, knows_queues: bool = True) -> Figures:
    """Play a scenario, and return how the controller did; ``knows_queues`` as of the servers."""
    simulation = Simulation(
        controller,
        lambda t: scenario.load(t) * _C,
        scenario.seconds,
        seed=seed,
        disturb=scenario.disturb,
        retries=scenario.retries,
        clock_jumps=scenario.clock_jumps,
        knows_queues=knows_queues,
        small_s=scenario.small_s,
    ).run()
    first = [each for each in simulation.served if not each.attempt]
    took = sorted(each.took_s for each in first)
    buckets = int(scenario.seconds)
    good = [0.0] * buckets
    gains = [0.0] * buckets
    counts = [0] * buckets
    for each in first:
        place = min(buckets - 1, int(each.at))
        counts[place] += 1
        good[place] += each.planned
        gains[place] += _gain(each.quality)
    recovery = quality_recovery = trouble_gain = None
    if scenario.ends is not None:
        begin = int(scenario.ends)
        recovery = _recovered(good, counts, begin, 0.99)
        before = sum(gains[5:15]) / max(1, sum(counts[5:15]))
        quality_recovery = _recovered(gains, counts, begin, 0.95 * before)
        trouble_gain = sum(gains[20:begin]) / max(1, sum(counts[20:begin]))
    return Figures(
        goodput=sum(each.planned for each in first) / len(first),
        quality=sum(each.quality for each in first) / len(first),
        gain=sum(_gain(each.quality) for each in first) / len(first),
        switches_a_minute=(len(simulation.levels) - 1) * 60 / scenario.seconds,
        p99_ms=took[int(0.99 * len(took))] * 1000,
        recovery_s=recovery,
        quality_recovery_s=quality_recovery,
        opened_at=[at for at, state in simulation.large.states if state is BreakerState.OPEN],
        trouble_gain=trouble_gain,
        gains=[total / max(1, count) for total, count in zip(gains, counts, strict=True)],
        levels=simulation.levels,
    )


def _gain(quality: float) -> float:
    return (quality - FIRST_STAGE) / (1 - FIRST_STAGE)


def _recovered(sums: Sequence[float], counts: Sequence[int], begin: int, least: float) -> float | None:
    """Return the seconds after ``begin`` until the mean of five seconds is at least ``least``."""
    for start in range(begin, len(counts) - 5):
        n = sum(counts[start : start + 5])
        if n and sum(sums[start : start + 5]) >= least * n:
            return float(start - begin)
    return None
