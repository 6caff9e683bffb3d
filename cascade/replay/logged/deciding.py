"""What a release would have done for a request, from what the record of another one knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from cascade.calibration.calibrated import Calibration
from cascade.policy.depth import choose_depth, needed_signals
from cascade.policy.escalation import (
    Choice,
    Known,
    choose_round,
    goes_direct,
    orders_by_fit,
    signals_of_direct,
)
from cascade.policy.escalation_rules import Escalation, NoEscalation
from cascade.policy.merge import merge, rank_changes
from cascade.policy.release import Release
from cascade.replay.columns import FloatArray
from cascade.replay.logged.told import signals_of_record, untold_signals
from cascade.replay.record_lines import DecisionLine
from cascade.signals.history import History

__all__ = ["Decider", "Taken", "is_faithful", "taken"]


@dataclass(frozen=True, slots=True)
class Decider:
    """A release that decides: its escalation, the calibration that this names, and the signals that its rules read."""

    release: Release
    rule: Escalation
    calibration: Calibration | None
    signals: frozenset[str]
    history: History | None

    @classmethod
    def of(cls, release: Release, calibration: Calibration | None = None) -> Self:
        """Return what decides as a release does."""
        rule = NoEscalation() if release.stages.large is None else release.escalation
        names = needed_signals(release.depth) | signals_of_direct(rule)
        history = None if release.history is None else release.history.frozen()
        return cls(release, rule, calibration, frozenset() if release.mode == "observe" else names, history)


@dataclass(frozen=True, slots=True)
class Taken:
    """An action: how deep, whether the small stage was asked, what was sent to the large one, and the order answered.

    ``sent`` is all that is sent where ``whole``, else what is sent before a score would have to be known that the
    record lacks; then, and where the scores of what is sent are not known, ``order`` is None.
    """

    depth: int
    small: bool
    sent: frozenset[int]
    whole: bool
    order: tuple[int, ...] | None

    def is_same(self, other: Self, top_n: int) -> bool:
        """Tell whether two actions are known to be one: the same stages asked of the same, the same answer.

        What nobody was answered with, behind ``top_n``, does not count.
        """
        if self.order is None or other.order is None:
            return False
        same = (self.depth, self.small, self.sent) == (other.depth, other.small, other.sent)
        return same and self.order[:top_n] == other.order[:top_n]

    def may_be_same(self, other: Self) -> bool:
        """Tell whether two actions, of which one at least is not known to its end, could be one."""
        if (self.order is not None and other.order is not None) or (self.depth, self.small) != (
            other.depth,
            other.small,
        ):
            return False
        if self.whole and other.whole:
            return self.sent == other.sent
        return (not self.whole or other.sent <= self.sent) and (not other.whole or self.sent <= other.sent)


def taken(decider: Decider, record: DecisionLine, *, observed: bool) -> Taken | None:
    """Return what a release does, as far as a record knows; None where it cannot even be told apart from others.

    ``observed``: the record's release was of mode observe, so that the large stage scored every candidate within
    depth, and the small one beside the answer. None stands for a rule that reads a text which no record holds, and
    for small scores that are not there by accident. A stage that left a candidate out left it out for everybody.
    """
    if untold_signals(decider.signals, record):
        return None
    release = decider.release
    count = len(record.ids)
    if release.mode == "observe":
        depth = min(release.limits.max_candidates, count)
        return _sent(record, _Stages(depth, small=True, order_by_small=False), range(depth), _asked(record, observed))
    signals = signals_of_record(decider.signals, record, decider.history)
    depth = choose_depth(release.depth, release.limits, count, signals).depth
    if not depth:
        return Taken(0, small=False, sent=frozenset(), whole=True, order=tuple(range(count)))
    direct = min(goes_direct(decider.rule, signals), depth)
    if direct:
        return _sent(record, _Stages(depth, small=False), range(direct), _asked(record, observed))
    stages = _Stages(depth, small=release.stages.small is not None)
    if stages.small and record.small_depth < depth:
        by_accident = observed and depth <= record.depth
        return None if by_accident else Taken(depth, small=True, sent=frozenset(), whole=False, order=None)
    return _escalated(decider, record, stages, _asked(record, observed))


def is_faithful(own: Taken, record: DecisionLine) -> bool:
    """Tell whether what a release does by its record is what it did."""
    if own.order is None:
        return False
    done = (record.depth, frozenset(record.escalated), record.rank_changes_at_5)
    return (own.depth, own.sent, rank_changes(own.order, 5)) == done


@dataclass(frozen=True, slots=True)
class _Stages:
    """How deep candidates are scored, and whether the small stage is asked, and decides the order too."""

    depth: int
    small: bool
    order_by_small: bool = True

    def scores(self, record: DecisionLine) -> FloatArray:
        """Return the small scores (depth,) that decisions and the order have."""
        if not (self.small and self.order_by_small):
            return np.full(self.depth, np.nan)
        return np.array(record.small[: self.depth], dtype=np.float64)


def _asked(record: DecisionLine, observed: bool) -> frozenset[int]:
    """Return the candidates of which it is known what the large stage says."""
    return frozenset(range(record.depth)) if observed else frozenset(record.escalated)


def _sent(record: DecisionLine, stages: _Stages, sent: Collection[int], asked: frozenset[int]) -> Taken:
    """Return the action that sends ``sent`` whatever the scores, its order by the large scores."""
    whole = frozenset(sent)
    if not whole <= asked:
        return Taken(stages.depth, stages.small, whole, whole=True, order=None)
    large = {index: score for index in whole if (score := record.large[index]) is not None}
    return Taken(stages.depth, stages.small, whole, whole=True, order=_order(record, stages, large))


def _escalated(decider: Decider, record: DecisionLine, stages: _Stages, asked: frozenset[int]) -> Taken:
    """Let the rule decide, round after round, until it ends or asks for a score that is not known."""
    depth = stages.depth
    scores = {name: np.array(values[:depth], dtype=np.float64) for name, values in record.channels.items()}
    channels = {name: values for name, values in scores.items() if np.isfinite(values).any()}
    known = Known(stages.scores(record), channels, np.full(depth, np.nan))
    sent: list[int] = []
    choice: Choice | None = None
    while choice is None or choice.more:
        choice = choose_round(decider.rule, known, decider.calibration, choice)
        chosen = list(choice.indices)
        sent += chosen
        if not asked.issuperset(chosen):
            return Taken(depth, stages.small, frozenset(sent), whole=not choice.more, order=None)
        known.large[chosen] = [np.nan if (score := record.large[index]) is None else score for index in chosen]
        if not np.isfinite(known.large[chosen]).any():  # a round without a score is the last
            break
    block = _block(decider, choice, known.large)
    return Taken(depth, stages.small, frozenset(sent), whole=True, order=_order(record, stages, block))


def _block(decider: Decider, choice: Choice, large: FloatArray) -> Mapping[int, float]:
    """Return what the scored block is ordered by, by candidate: the large scores, or the calibration's fitted order."""
    fitted = None
    if decider.calibration is not None and orders_by_fit(decider.rule):
        fitted = decider.calibration.final_scores(choice.first, large)
    return {
        int(index): float((large if fitted is None else fitted)[index]) for index in np.flatnonzero(~np.isnan(large))
    }


def _order(record: DecisionLine, stages: _Stages, block: Mapping[int, float]) -> tuple[int, ...]:
    scores = stages.scores(record)
    small = {int(index): float(scores[index]) for index in np.flatnonzero(~np.isnan(scores))}
    return tuple(merge(len(record.ids), small, block)[0])
