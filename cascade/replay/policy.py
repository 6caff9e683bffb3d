"""Replay what a release decides, by the functions that decide it when it serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.calibration.calibrated import Calibration, Estimate
from cascade.decision import Action, Estimates
from cascade.policy.depth import AnyDepth, choose_depth, needed_signals
from cascade.policy.escalation import Known, choose_round, goes_direct, orders_by_fit, signals_of_direct
from cascade.policy.escalation_rules import CalibratedEscalation, Escalation
from cascade.policy.release import Limits
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.queries import ReplayedQuery
from cascade.replay.remembering import Remembering
from cascade.replay.serving import served_orders
from cascade.replay.signals import check_told, never_told, replayed_signals
from cascade.replay.sweep import Metric, Sweep, outcome, sweep_of
from cascade.signals.compute import Signals
from cascade.signals.history import History

__all__ = ["PRICES", "Played", "Policy", "Step", "play"]

PRICES: Final = (1e-9, *np.geomspace(1e-5, 0.2, 40).tolist(), 1.0)
"""Prices that are tried: from one at which every candidate is worth sending to one at which none is."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What of a release decides which candidates are scored.

    ``calibration`` is the one that its rule names. ``described`` is how a report tells where it comes from.
    """

    escalation: Escalation
    depth: AnyDepth
    limits: Limits
    calibration: Calibration | None = None
    history: History | None = None
    described: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """What one rule did with a query: what went to the large stage (n,), in how many rounds, as which action.

    ``depth`` is how many candidates the small stage scored; past it, with action ``direct``, how many it
    would have. ``first`` is what the first round estimated, the same at every price, and ``estimates`` what
    the last choice reports, None where nothing was estimated; ``misfit`` is why the calibration did not hold.
    """

    sent: NDArray[np.bool_]
    rounds: int
    action: Action
    depth: int
    first: Estimate | None = None
    estimates: Estimates | None = None
    misfit: str | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """A replayed policy: its sweep over prices, and where in it the release's own price stands.

    ``steps`` is what it did with each query at its own price, and ``orders`` the order (n,) that it then
    served. ``never_told`` names the signals that the rules read and no table tells.
    """

    sweep: Sweep
    own: int
    steps: Sequence[Step]
    orders: Sequence[IntArray]
    never_told: Sequence[str]


def play(
    queries: Sequence[ReplayedQuery],
    policy: Policy,
    k: int,
    metric: Metric,
    prices: Sequence[float] = PRICES,
) -> Played:
    """Replay a policy on every query at each of ``prices`` and at its own.

    A rule without a price has one setting, 0.
    Raises ConfigError where the tables lack a column that the rules read.
    """
    names = needed_signals(policy.depth) | signals_of_direct(policy.escalation)
    check_told(names, queries)
    rules, settings, own = _rules(policy.escalation, prices)
    outcomes, steps, orders, signals = [], [], [], []
    for query in queries:
        signals.append(replayed_signals(names, query, policy.history))
        step = _Query(query, policy, signals[-1])
        done = [step.escalate(rule) for rule in rules]
        small, block = step.small(done[own].action), step.block(done[own].first)
        outcomes.append(outcome(query, np.stack([one.sent for one in done]), k, small=small, block=block))
        steps.append(done[own])
        orders.append(served_orders(done[own].sent[None], small, query.large if block is None else block)[0])
    return Played(
        sweep=sweep_of("policy", settings, outcomes, metric),
        own=own,
        steps=steps,
        orders=orders,
        never_told=never_told(names, signals),
    )


def _rules(rule: Escalation, prices: Sequence[float]) -> tuple[list[Escalation], list[float], int]:
    """Return the rule at each price, cheapest price and so most pairs first, and the position of its own."""
    if not isinstance(rule, CalibratedEscalation):
        return [rule], [0.0], 0
    tried = sorted({*prices, rule.price_per_pair})
    rules: list[Escalation] = [rule.model_copy(update={"price_per_pair": price}) for price in tried]
    return rules, tried, tried.index(rule.price_per_pair)


class _Query:
    """One query on its way through a policy; what no price changes is worked out once."""

    def __init__(self, query: ReplayedQuery, policy: Policy, signals: Signals) -> None:
        self._query = query
        self._signals = signals
        self._fitted_order = orders_by_fit(policy.escalation)
        self._calibration = None if policy.calibration is None else Remembering(policy.calibration)
        self.depth = choose_depth(policy.depth, policy.limits, query.pairs, signals).depth
        self._small = query.small[: self.depth]
        self._channels = {name: scores[: self.depth] for name, scores in query.channels.items()}

    def small(self, action: Action) -> FloatArray:
        """Return the small scores (n,) that the policy had: none beyond its depth, or where it went past the stage."""
        reached = 0 if action is Action.DIRECT else self.depth
        return np.where(np.arange(self._query.small.size) < reached, self._query.small, np.nan)

    def block(self, first: Estimate | None) -> FloatArray | None:
        """Return what scored candidates (n,) are ordered by, None where these are the large scores."""
        if not self._fitted_order or self._calibration is None or first is None:
            return None
        scores = self._calibration.final_scores(first, self._query.large[: self.depth])
        beyond = np.full(self._query.large.size - self.depth, np.nan)
        return None if scores is None else np.concatenate([scores, beyond])

    def escalate(self, rule: Escalation) -> Step:
        """Let a rule decide, round after round."""
        sent = np.zeros(self._query.small.size, dtype=np.bool_)
        if not self.depth:
            return Step(sent, 0, Action.NONE, 0)
        direct = min(goes_direct(rule, self._signals), self.depth)
        if direct:
            sent[:direct] = True
            return Step(sent, 1, Action.DIRECT, self.depth)
        large = np.full(self.depth, np.nan)
        known = Known(self._small, self._channels, large)
        choice = choose_round(rule, known, self._calibration)
        first, rounds = choice.first, 0
        while choice.indices:
            rounds += 1
            chosen = list(choice.indices)
            sent[chosen] = True
            large[chosen] = self._query.large[chosen]
            if not choice.more or not np.isfinite(large[chosen]).any():  # a round without a score is the last
                break
            choice = choose_round(rule, known, self._calibration, choice)
        return Step(sent, rounds, choice.action, self.depth, first, choice.estimates, choice.misfit)
