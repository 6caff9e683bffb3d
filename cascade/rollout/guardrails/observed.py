"""What the guardrails see of one decided request."""

from __future__ import annotations

from dataclasses import dataclass

from cascade.decision import Decision, DegradedReason
from cascade.errors import ConfigError
from cascade.policy.level_bounds import most_pairs
from cascade.policy.release import Prices, Release
from cascade.rollout.guardrails.settled import Settled
from cascade.types import SCORING, Arm, StageName

__all__ = ["Observed", "Pricing", "observed_of", "pricings"]


@dataclass(frozen=True, slots=True)
class Pricing:
    """What a query costs: the pairs sent to each stage by its release's prices, over ``most``.

    ``most`` is what the dearest query costs under either of the two releases that are compared, so that a cost is in
    [0, 1] and two of them are in the same unit.
    """

    prices: Prices
    most: float

    def cost(self, small_pairs: float, large_pairs: float) -> float:
        """Return the cost of a query in [0, 1]; 0 where no release scores anything."""
        if self.most <= 0.0:
            return 0.0
        return min(1.0, (small_pairs * self.prices.small + large_pairs * self.prices.large) / self.most)


def pricings(stable: Release, candidate: Release) -> tuple[Pricing, Pricing]:
    """Return what requests cost under two releases, each by its own prices, in one unit."""
    most = max(map(_dearest, (stable, candidate)))
    return Pricing(stable.rollout.prices, most), Pricing(candidate.rollout.prices, most)


def _dearest(release: Release) -> float:
    small, large = most_pairs(release)
    prices = release.rollout.prices
    return small * prices.small + large * prices.large


@dataclass(frozen=True, slots=True)
class Observed:
    """One request of an arm.

    ``late``: it left after its deadline. ``error``: it was not answered with an order, or with first-stage order
    because of a fault of ours. ``fallback``: the answer is degraded. ``escalated_share``: pairs sent to the large stage
    over candidates, [0, 1]. ``cost``: in [0, 1], by `Pricing`. ``small_top`` and ``large_top``: the best raw score of a
    stage, None where it scored nothing. ``unit`` tells units of traffic apart, None where that is not known.
    ``left``: there is no answer, as the caller left before it was late; nothing else is known. Raises ConfigError for a share that
    is none.
    """

    arm: Arm
    late: bool = False
    error: bool = False
    fallback: bool = False
    escalated_share: float = 0.0
    cost: float = 0.0
    small_top: float | None = None
    large_top: float | None = None
    unit: int | None = None
    left: bool = False

    def __post_init__(self) -> None:
        if not (0.0 <= self.escalated_share <= 1.0 and 0.0 <= self.cost <= 1.0):
            raise ConfigError("observed: a share or a cost is no number in [0, 1]")


def observed_of(settled: Settled, pricing: Pricing, within_ms: float) -> Observed:
    """Return what the guardrails see of a request.

    ``within_ms`` is the smaller budget of the two releases: where the caller stated no deadline both arms are held to
    it, as each by its own would never find a release late that only takes longer. A body of several queries costs the
    mean of them.
    """
    decision = settled.decision
    if settled.left_after_ms is not None:
        is_late = settled.left_after_ms > within_ms and not settled.states_deadline
        return Observed(settled.arm, late=is_late, left=not is_late, unit=settled.unit)
    if decision is None:
        return Observed(settled.arm, error=True, unit=settled.unit)
    deadline_ms = decision.deadline_ms if settled.states_deadline else min(decision.deadline_ms, within_ms)
    small, large = (_sent(decision, stage) for stage in SCORING)
    return Observed(
        arm=settled.arm,
        late=decision.total_ms > deadline_ms,
        error=not settled.answered or DegradedReason.INTERNAL_ERROR in decision.degraded,
        fallback=bool(decision.degraded),
        escalated_share=min(1.0, large / max(1, decision.candidates)),
        cost=pricing.cost(small / settled.queries, large / settled.queries),
        small_top=_top(decision, StageName.SMALL),
        large_top=_top(decision, StageName.LARGE),
        unit=settled.unit,
    )


def _sent(decision: Decision, stage: StageName) -> int:
    return sum(one.sent for one in decision.rounds if one.stage is stage)


def _top(decision: Decision, stage: StageName) -> float | None:
    return max((one.top for one in decision.rounds if one.stage is stage and one.top is not None), default=None)
