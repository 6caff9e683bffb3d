"""Write evals/rollout_simulation.md: rollouts by the controller that is served, on a virtual clock.

``python -m evals.rollout_simulation`` takes some minutes; ``--runs 20`` plays fewer.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from cascade.policy.release import RolloutRules
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.guardrails import time_to_rollback
from cascade.rollout.guardrails.spending import harm_alpha
from cascade.statistics.bounds import rate_upper_bound
from tests.rollout.rollout_simulation import SCENARIOS, Outcome, planted, played

_RULES: Final = RolloutRules()
_PER_S: Final = 100.0
_HEAD: Final = """# Rollouts in simulation

Written by `python -m evals.rollout_simulation`; the simulation is `tests/rollout/rollout_simulation.py`, and `make test` asserts what
matters of it with fewer requests. The controller is the one that is served, with the defaults of a release: steps {steps} %, at least
{min_queries} answers and {min_seconds:g} s at each, alpha {alpha:g} (each test {each:.5f}), {share:.0%} of requests scored beside. {per_s:g}
requests a second, except where a scenario says otherwise; the controller looks each second.

Decisions are made up, and seen by the guardrails as served ones are: of the stable release 0.5% are late, 0.1% errors, 1% degraded, and half escalate nothing; where harm is planted 1%
each, as the times told beforehand assume. Seven in ten pairs scored beside lose just the mean; the standard deviation of losses is 0.1,
and 0.2 where a loss is planted. Seeds count from {first_seed}; the threshold of the comparison by units was chosen on seeds 0 to 49.

## Planted harm

*within*: runs that ended within the seconds told beforehand. Seconds are those of the rollout, queries answers of the candidate (pairs
scored beside for ranking loss), up to the verdict.

| harm | runs | rolled back | told beforehand: queries | seconds | within | queries: median | p95 | seconds: median | p95 |
|---|---|---|---|---|---|---|---|---|---|"""
_LIKE: Final = """
## Like releases, and others

*alarms*: runs rolled back, with the interval of 95% (Clopper and Pearson). *complete*: runs that reached 100% by evidence alone, and in
how many minutes. The rest hold.

| scenario | runs | alarms | interval | complete | minutes: median | p95 | by what |
|---|---|---|---|---|---|---|---|"""
_TAIL: Final = """
With few and unlike callers a caller with a tenth of the traffic is in one arm for good, and what is peculiar to it looks like the release's doing,
but for the comparison by units of traffic. What that costs is among the limits in [guardrails.md](../docs/guardrails.md#limits-of-guardrails).
"""


def main() -> None:
    """Play all, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="runs of a like release; a quarter of it of each harm")
    parser.add_argument("--first-seed", type=int, default=1000, help="seed of the first run of each scenario")
    asked = parser.parse_args()
    path = Path(__file__).with_suffix(".md")
    path.write_text("\n".join(_lines(asked.runs, asked.first_seed)) + "\n", encoding="utf-8")


def _lines(runs: int, first_seed: int) -> Iterator[str]:
    yield _HEAD.format(
        steps=", ".join(f"{step:g}" for step in _RULES.steps),
        min_queries=_RULES.min_queries,
        min_seconds=_RULES.min_seconds,
        alpha=_RULES.alpha,
        each=harm_alpha(_RULES),
        share=_RULES.shadow.share,
        per_s=_PER_S,
        first_seed=first_seed,
    )
    for row in time_to_rollback(_RULES, _PER_S):
        name, harm = row["guardrail"], row["harm"]
        if name in {"errors", "late", "fallback", "ranking_loss"}:
            outcomes = [
                played(planted(name, harm), _RULES, seed) for seed in range(first_seed, first_seed + max(2, runs // 4))
            ]
            yield _planted(name, harm, row["queries"], row["seconds"], outcomes)
    yield _LIKE
    for name, make in SCENARIOS.items():
        count = runs if name == "identical" else max(2, runs // 4)
        yield _like(make().what, [played(make(), _RULES, seed) for seed in range(first_seed, first_seed + count)])
    yield _TAIL.rstrip()


def _planted(name: str, harm: float, queries: int, seconds: float, outcomes: Sequence[Outcome]) -> str:
    back = [one for one in outcomes if one.verdict is RolloutVerdict.ROLL_BACK]
    counted = [one.pairs if name == "ranking_loss" else one.queries for one in back]
    took = [one.seconds for one in back]
    within = sum(each <= seconds for each in took)
    return f"| {name} +{harm:g} | {len(outcomes)} | {len(back)} | {queries} | {seconds:.0f} | {within} | {_spread(counted)} | {_spread(took)} |"


def _like(what: str, outcomes: Sequence[Outcome]) -> str:
    alarms = [one for one in outcomes if one.verdict is RolloutVerdict.ROLL_BACK]
    complete = [one.seconds / 60.0 for one in outcomes if one.verdict is RolloutVerdict.COMPLETE]
    count = len(outcomes)
    high, low = rate_upper_bound(len(alarms), count, 0.025), 1.0 - rate_upper_bound(count - len(alarms), count, 0.025)
    by = Counter(name for one in alarms for name in one.failed)
    told = ", ".join(f"{name} {count}" for name, count in by.most_common()) or "-"
    return f"| {what} | {len(outcomes)} | {len(alarms)} | {low:.1%} to {high:.1%} | {len(complete)} | {_spread(complete)} | {told} |"


def _spread(values: Sequence[float]) -> str:
    """Return the median and the 95th percentile, dashes where there is none."""
    if len(values) < 2:
        return "- | -"
    return f"{median(values):.0f} | {quantiles(values, n=20, method='inclusive')[-1]:.0f}"


if __name__ == "__main__":
    main()
