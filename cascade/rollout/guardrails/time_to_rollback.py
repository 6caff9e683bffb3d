"""How soon a harmful release is rolled back, worked out before it answers anybody."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.policy.release import RolloutRules
from cascade.rollout.guardrails.names import GuardrailName
from cascade.rollout.guardrails.spending import canary_steps, harm_alpha
from cascade.statistics.sample import FloatArray
from cascade.statistics.sequential import log_wealth

__all__ = [
    "STABLE_COST",
    "STABLE_ESCALATION",
    "STABLE_RATE",
    "queries_to_show",
    "seconds_to_gather",
    "time_to_rollback",
]

STABLE_RATE: Final = 0.01
"""What is assumed of the stable release: one answer in a hundred late, degraded or in error,"""
STABLE_ESCALATION: Final = 0.2
"""a fifth of the candidates escalated, of some requests all and of the others none (no other spread shows less),"""
STABLE_COST: Final = 0.2
"""a fifth of the cost of the dearest request, spread as widely,"""
_LOSS_SPREAD: Final = 0.2
"""and ranking losses of this standard deviation."""
_CLEAR: Final = 5.0
_LEAST_CLEAR: Final = 0.05
_GROSS: Final = 0.5
_RUNS: Final = 200
_QUANTILE: Final = 0.99
_FIRST_PAIRS: Final = 64
_MOST_PAIRS: Final = 2**13
_SEED: Final = 7
_TICK_S: Final = 1.0


def time_to_rollback(rules: RolloutRules, requests_per_s: float) -> list[dict[str, Any]]:
    """Return how soon harm is met at the first step that has a canary, a row for each guardrail and size of harm.

    ``harm`` is how much worse than the stable release the candidate is, in the unit of the limit: five times the limit,
    at least 0.05, and 0.5 where that is more: half of the answers. ``queries`` are answers of the candidate, or pairs scored beside,
    after which it is rolled back with a probability of 0.99: a quantile of the wager over 200 runs, of a fixed seed,
    under what is assumed of the stable release above. None where 8192 are not enough. ``seconds`` are those in which so
    many arrive, again with 0.99, and one for the look. ``share`` is that of the requests which count. Later steps
    gather faster. It takes some
    tenths of a second, and none for rules that were seen: call it in a thread first. Raises ConfigError for a rate that is not positive.
    """
    if not (math.isfinite(requests_per_s) and requests_per_s > 0.0):
        raise ConfigError("requests_per_s: not a positive number")
    return [
        {
            "guardrail": name.value,
            "harm": harm,
            "queries": queries,
            "share": share,
            "seconds": None if queries is None else seconds_to_gather(queries, share * requests_per_s) + _TICK_S,
        }
        for name, harm, share, queries in _rows(rules)
    ]


def _rows(rules: RolloutRules) -> Iterator[tuple[GuardrailName, float, float, int | None]]:
    limits, alpha = rules.guardrails, harm_alpha(rules)
    share = next((rules.steps[place] / 100.0 for place in canary_steps(rules)), 0.0)
    warm = rules.warm_up
    for name, limit, unseen in (
        (GuardrailName.ERRORS, limits.errors, 0),
        (GuardrailName.LATE, limits.late, warm),
        (GuardrailName.FALLBACK, limits.fallback, warm),
        (GuardrailName.ESCALATION, limits.escalation, 0),
        (GuardrailName.COST, limits.cost, 0),
    ):
        for harm in _harms(name, limit) if share else ():
            queries = queries_to_show(name, limit or 0.0, alpha, harm, share)
            yield name, harm, share, None if queries is None else queries + unseen
    beside = rules.shadow.share * (1.0 - share)  # drawn of what the stable release answers
    for harm in _harms(GuardrailName.RANKING_LOSS, limits.ranking_loss) if beside else ():
        shown = queries_to_show(GuardrailName.RANKING_LOSS, limits.ranking_loss or 0.0, alpha, harm, beside)
        yield GuardrailName.RANKING_LOSS, harm, beside, shown


def _harms(name: GuardrailName, limit: float | None) -> list[float]:
    if limit is None:
        return []
    clear = max(_CLEAR * limit, _LEAST_CLEAR)
    if name is GuardrailName.COST:
        return [clear]
    return sorted({min(clear, _GROSS), _GROSS}) if limit < _GROSS else []


@lru_cache(maxsize=256)
def queries_to_show(name: GuardrailName, limit: float, alpha: float, harm: float, share: float) -> int | None:
    """Return after how many answers of the candidate, or pairs scored beside, a harm is shown with probability 0.99.

    The wager of the controller is played on made-up answers of both releases at a share in (0, 1); None where it takes
    more than 8192 pairs.
    """
    tested = 0.0 if name is GuardrailName.COST else limit
    rng = np.random.default_rng(_SEED)
    differences, counts = _played(rng, name, limit, harm, share, _FIRST_PAIRS)
    while True:
        pairs = differences.shape[1]
        shown = log_wealth(-differences, -tested, alpha) >= -math.log(alpha)
        queries = np.where(shown, counts.cumsum(axis=1), np.inf).min(axis=1)
        last = np.sort(queries)[math.ceil(_QUANTILE * _RUNS) - 1]
        if math.isfinite(last):
            return int(last)
        if pairs >= _MOST_PAIRS:
            return None
        more = _played(rng, name, limit, harm, share, pairs)
        differences, counts = (np.hstack(both) for both in zip((differences, counts), more, strict=True))


def _played(
    rng: np.random.Generator, name: GuardrailName, limit: float, harm: float, share: float, pairs: int
) -> tuple[FloatArray, FloatArray]:
    """Return differences (runs, pairs), as `ArmComparison` makes them, and the candidate's answers in each."""
    shape = (_RUNS, pairs)
    if name is GuardrailName.RANKING_LOSS:
        return np.clip(rng.normal(harm, _LOSS_SPREAD, shape), -1.0, 1.0), np.ones(shape)
    stable_first = rng.random(shape) >= share
    stable_count = np.where(stable_first, rng.geometric(share, shape), 1)
    canary_count = np.where(stable_first, 1, rng.geometric(1.0 - share, shape))
    base = {GuardrailName.ESCALATION: STABLE_ESCALATION, GuardrailName.COST: STABLE_COST}.get(name, STABLE_RATE)
    worse = base * (1.0 + harm) if name is GuardrailName.COST else base + harm
    stable = rng.binomial(stable_count, base) / stable_count
    canary = rng.binomial(canary_count, min(1.0, worse)) / canary_count
    factor = 1.0 + limit if name is GuardrailName.COST else 1.0
    return canary / factor - stable, canary_count.astype(np.float64)


def seconds_to_gather(count: int, per_s: float) -> float:
    """Return the seconds in which ``count`` arrive at random at a rate, with probability 0.99.

    The quantile of a gamma distribution by Wilson and Hilferty.
    """
    z = NormalDist().inv_cdf(_QUANTILE)
    return float(count * (1.0 - 1.0 / (9.0 * count) + z / (3.0 * math.sqrt(count))) ** 3 / per_s)
