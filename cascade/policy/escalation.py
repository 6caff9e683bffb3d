"""Choose which candidates the large stage scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt

from cascade.calibration.calibrated import Calibration, Estimate
from cascade.decision import Action, Estimates
from cascade.policy.boundary import above, at_least, at_most, best_first
from cascade.policy.conditions import holds, signal_name
from cascade.policy.escalation_rules import (
    Accept,
    CalibratedEscalation,
    Escalation,
    FusedEscalation,
    NoEscalation,
    StaticEscalation,
)
from cascade.signals.compute import Signals

__all__ = ["Choice", "Known", "choose_round", "goes_direct", "most_escalated", "orders_by_fit", "signals_of_direct"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a query's candidates within depth, in first-stage order.

    Arrays are (n,); NaN where a scorer has no score. Channels are those that the request carries.
    """

    small: FloatArray
    channels: Mapping[str, FloatArray]
    large: FloatArray


@dataclass(frozen=True, slots=True)
class Choice:
    """One round's decision: the candidates to score now, none to stop.

    ``first`` is what the first round estimated, to be handed to the next; ``misfit`` is why the
    calibration does not hold, where the safe mode decided.
    """

    indices: tuple[int, ...]
    action: Action
    more: bool = False
    estimates: Estimates | None = None
    first: Estimate | None = None
    misfit: str | None = None


def most_escalated(rule: Escalation, depth: int) -> int:
    """Return the most candidates that a rule may send, of ``depth``."""
    match rule:
        case NoEscalation():
            return 0
        case StaticEscalation():
            return min(rule.top_m, depth)
        case FusedEscalation():
            return min(max(rule.top_m, rule.safe_top_m), depth)
        case CalibratedEscalation():
            return _most(rule, depth)
        case _:
            assert_never(rule)


def orders_by_fit(rule: Escalation) -> bool:
    """Tell whether the scored block is ordered by the calibration's fitted order, where it has one."""
    return isinstance(rule, FusedEscalation | CalibratedEscalation) and rule.final_order == "fitted"


def signals_of_direct(rule: Escalation) -> frozenset[str]:
    """Return the names of the signals that decide whether a query goes past the small stage."""
    if not isinstance(rule, CalibratedEscalation) or rule.direct is None:
        return frozenset()
    return frozenset(map(signal_name, rule.direct.when))


def goes_direct(rule: Escalation, signals: Signals) -> int:
    """Return how many candidates go to the large stage without the small one, 0 where the query does not."""
    if not isinstance(rule, CalibratedEscalation) or rule.direct is None:
        return 0
    return rule.direct.top_m if all(holds(condition, signals) for condition in rule.direct.when) else 0


def choose_round(
    rule: Escalation, known: Known, calibration: Calibration | None, first: Choice | None = None
) -> Choice:
    """Decide one round; ``first`` is the choice of the round before, whose scores are in ``known.large``.

    Indices come in the order they would be given up last: for static rules the small order, else by
    expected value. A calibration that is absent or does not hold for these candidates gives the safe mode:
    the top of the small order, in one round and within ``max_share``. Only differences of raw scores enter.
    """
    match rule:
        case NoEscalation():
            return Choice((), Action.NONE)
        case StaticEscalation():
            return Choice(_small_order(known)[: rule.top_m] if first is None else (), Action.STATIC)
        case FusedEscalation() | CalibratedEscalation():
            if first is not None:
                return _second_round(rule, known, calibration, first)
            if calibration is not None and len(known.small) < calibration.artefact.valid.least_candidates:
                return _short_list(rule, known)
            misfit = "no_calibration" if calibration is None else calibration.misfit(known.small, known.channels)
            if calibration is None or misfit is not None:
                return Choice(_small_order(known)[: _safe(rule, len(known.small))], Action.SAFE, misfit=misfit)
            return _first_round(rule, known, calibration)
        case _:
            assert_never(rule)


def _small_order(known: Known) -> tuple[int, ...]:
    """Return every candidate: the small order, then in first-stage order what it has not scored."""
    key = np.where(np.isfinite(known.small), -known.small, np.inf)
    return tuple(np.argsort(key, kind="stable").tolist())


def _most(rule: CalibratedEscalation, depth: int) -> int:
    return int(rule.max_share * depth + 1e-9)


def _safe(rule: FusedEscalation | CalibratedEscalation, depth: int) -> int:
    """Return how many the safe mode sends: a bound on the share holds there too."""
    return min(rule.safe_top_m, _most(rule, depth)) if isinstance(rule, CalibratedEscalation) else rule.safe_top_m


def _short_list(rule: FusedEscalation | CalibratedEscalation, known: Known) -> Choice:
    """Send the head of a list that is shorter than estimates hold for: nothing is lost by its being short."""
    chosen = _small_order(known)[: _safe(rule, len(known.small))]
    return Choice(chosen, _outcome(len(chosen), len(known.small)))


def _first_round(rule: FusedEscalation | CalibratedEscalation, known: Known, calibration: Calibration) -> Choice:
    first = calibration.estimate(known.small, known.channels)
    usable = np.isfinite(known.small)
    worth = np.where(usable, calibration.value(first.p, rule.k), -np.inf)
    by_worth = best_first(worth)
    estimates = calibration.summary(first.p, np.array(_small_order(known)), rule.k)
    if isinstance(rule, FusedEscalation):
        chosen = by_worth[: min(rule.top_m, int(usable.sum()))]
        return _choice(chosen, Action.STATIC, estimates, first)
    if rule.accept is not None and _accepts(rule.accept, estimates, rule.margin_noise):
        return _choice(by_worth[:0], Action.ACCEPT, estimates, first)
    most = _most(rule, len(worth))
    ranked = worth[by_worth]
    wanted = int(above(ranked, rule.price_per_pair).sum())
    least = calibration.second_round_from if rule.rounds > 1 else None
    now = min(wanted, most)
    if least is not None:
        eager = int(above(ranked, rule.price_per_pair * rule.first_round_factor).sum())
        now = min(now, max(eager, rule.chunk, least))
    chosen = by_worth[:now]
    # Of fewer scores than it was fitted on, a second estimate says nothing.
    more = least is not None and least <= now < most
    return _choice(chosen, _outcome(len(chosen), len(worth)), estimates, first, more=more)


def _second_round(
    rule: FusedEscalation | CalibratedEscalation, known: Known, calibration: Calibration | None, before: Choice
) -> Choice:
    if isinstance(rule, FusedEscalation) or calibration is None or before.first is None or not before.more:
        return Choice((), before.action, estimates=before.estimates, misfit=before.misfit)
    scored = np.isfinite(known.large)
    p = calibration.estimate_again(before.first, known.large, rule.k)
    # What was sent and came back without a score is not sent again.
    open_ = np.isfinite(known.small) & ~scored
    open_[list(before.indices)] = False
    worth = np.where(open_, calibration.value(p, rule.k), -np.inf)
    by_worth = best_first(worth)
    room = _most(rule, len(worth)) - len(before.indices)
    chosen = by_worth[: min(int(above(worth, rule.price_per_pair).sum()), room)]
    action = _outcome(len(chosen) + len(before.indices), len(worth))
    return _choice(chosen, action, before.estimates, before.first)


def _outcome(sent: int, depth: int) -> Action:
    if not sent:
        return Action.ACCEPT
    return Action.QUERY if sent == depth else Action.CLUSTER


def _accepts(accept: Accept, estimates: Estimates, noise: float) -> bool:
    return (
        (accept.margin_at_least is None or at_least(estimates.margin, accept.margin_at_least, noise))
        and (accept.entropy_at_most is None or at_most(estimates.entropy, accept.entropy_at_most))
        and (accept.expected_loss_at_most is None or at_most(estimates.expected_loss, accept.expected_loss_at_most))
    )


def _choice(
    chosen: npt.NDArray[np.int64], action: Action, estimates: Estimates | None, first: Estimate, *, more: bool = False
) -> Choice:
    return Choice(tuple(chosen.tolist()), action, more, estimates, first)
