"""Write evals/overload_simulation.md: controllers of load levels on a virtual clock.

``python -m evals.overload_simulation`` takes some twenty seconds. Each figure is the mean of four seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from tests.guard.load_scenarios import CONTROLLERS, SCENARIOS, Figures, played
from tests.guard.load_simulation import BOUNDS, CAPACITY, DEADLINE_S, QUALITIES

_SEEDS: Final = (1, 2, 3, 4)
_HEAD: Final = """# Load levels in simulation

Written by `python -m evals.overload_simulation`; the simulation is `tests/guard/load_simulation.py`, discrete events on a virtual
clock, and `make test` asserts what matters of it. Each figure is the mean of {seeds} seeds.

Two servers that score in batches: a small one (8 ms a batch and 0.15 ms a pair, 200 pairs a batch) and a large one (20 ms and
1.5 ms, 64 a batch). Each is behind the classes of the guards, joined as a stage joins them: circuit breaker, adaptive limit and the comparison of time, with their
defaults. Deadline {deadline:g} ms. Loads are multiples of {capacity:.1f} requests a second, what the large server can score at the first level.
Requests come at random (Poisson), and are answered by the best complete order there is at the deadline.

| level | small pairs | large pairs | quality | serves at most |
|---|---|---|---|---|
{levels}

*goodput*: share answered in time with all that the level that decided plans. *quality*: mean quality of what was answered in time.
*gain*: quality above first-stage order, of the most there is; first-stage order is worth 0 in it. *switches*: changes of the level
a minute. *recovery*: seconds from the end of the trouble until goodput over five seconds is 99%, and until gain is within a
twentieth of what it was before (- where it is not within the run, or nothing is over). `adaptive` is what is served; `adaptive, no filling` the same
without sending requests by the level above where there is room; `naive` goes down a level where the mean wait of a quarter
second is above 20 ms and up where it is below 10; `fixed n` is one level.

The servers and the callers are models: what the real sidecar does under load over sockets is for
`evals/bench/overload.py` to say.
"""


def main() -> None:
    """Play all, and write the table."""
    path = Path(__file__).with_suffix(".md")
    path.write_text("\n".join(_lines()) + "\n", encoding="utf-8")


def _lines() -> Iterator[str]:
    levels = "\n".join(
        f"| {level} | {bound.small} | {bound.large} | {quality:g} | {_most(level)} |"
        for level, (bound, quality) in enumerate(zip(BOUNDS, QUALITIES, strict=True))
    )
    yield _HEAD.format(seeds=len(_SEEDS), deadline=DEADLINE_S * 1000, capacity=CAPACITY, levels=levels)
    ratios: list[tuple[str, float, float]] = []
    for name, scenario in SCENARIOS.items():
        yield f"## {name}: {scenario.what}\n"
        yield "| controller | goodput | quality | gain | switches | p99 ms | recovery | of quality |"
        yield "|---|---|---|---|---|---|---|---|"
        found = {each: [played(scenario, make(), seed) for seed in _SEEDS] for each, make in CONTROLLERS.items()}
        for each, runs in found.items():
            yield _row(each, runs)
        yield ""
        fixed = [runs for each, runs in found.items() if each.startswith("fixed")]
        ratios.append(
            (
                name,
                _mean(found["adaptive"], "quality") / max(_mean(runs, "quality") for runs in fixed),
                _mean(found["adaptive"], "gain") / max(_mean(runs, "gain") for runs in fixed),
            )
        )
    yield "## Adaptive against the best fixed level of each scenario\n"
    yield "| scenario | quality | gain |\n|---|---|---|"
    for name, quality, gain in ratios:
        yield f"| {name} | {quality:.3f} | {gain:.3f} |"
    yield from _queues()


def _queues() -> Iterator[str]:
    yield "\n## What stands in a queue is no failure\n"
    yield (
        "`adaptive` by whether a round that was given up may be found to stand in the server's queue (it cuts the limit, at most\n"
        "by half) or is always a failure (it cuts the limit by a tenth). Means of 4 seeds: when the large server's breaker opened\n"
        "first, in seconds, in how many of the runs, how often, and the gain from 20 s until the trouble is over.\n"
    )
    yield "| scenario | given up | first opened | in runs | openings | gain |\n|---|---|---|---|---|---|"
    for name in ("step", "step 10x", "spike", "black hole"):
        for knows, said in ((True, "may be queued"), (False, "failure")):
            runs = [played(SCENARIOS[name], CONTROLLERS["adaptive"](), seed, knows_queues=knows) for seed in _SEEDS]
            opened = [run.opened_at for run in runs if run.opened_at]
            first = f"{fmean(each[0] for each in opened):.1f}" if opened else "-"
            openings = fmean(len(run.opened_at) for run in runs)
            gain = fmean(run.trouble_gain or 0.0 for run in runs)
            yield f"| {name} | {said} | {first} | {len(opened)} of {len(runs)} | {openings:.1f} | {gain:.3f} |"


def _most(level: int) -> str:
    bound = BOUNDS[level]
    rates = [200 / (0.008 + 200 * 0.00015) / bound.small] if bound.small else []
    rates += [64 / (0.020 + 64 * 0.0015) / bound.large] if bound.large else []
    return f"{min(rates) / CAPACITY:.1f}x" if rates else "any load"


def _mean(runs: Sequence[Figures], name: str) -> float:
    return fmean(float(getattr(run, name)) for run in runs)


def _row(name: str, runs: Sequence[Figures]) -> str:
    shares = " | ".join(f"{_mean(runs, each):.3f}" for each in ("goodput", "quality", "gain"))
    seconds = " | ".join(
        _seconds([getattr(run, each) for run in runs]) for each in ("recovery_s", "quality_recovery_s")
    )
    return f"| {name} | {shares} | {_mean(runs, 'switches_a_minute'):.1f} | {_mean(runs, 'p99_ms'):.0f} | {seconds} |"


def _seconds(times: Sequence[float | None]) -> str:
    known = [time for time in times if time is not None]
    return f"{fmean(known):.0f}" if len(known) == len(times) else "-"


if __name__ == "__main__":
    main()
