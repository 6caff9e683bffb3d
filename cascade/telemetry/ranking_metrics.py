"""Metrics of what was decided of a ranking: how deep, how sure, how far the large stage moved it, and whether that drifts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cascade.decision import Action, Decision, Movement
from cascade.telemetry.declared import EXPERIMENTAL, STABLE, Declaring

__all__ = ["RankingMetrics"]

_CANDIDATES: Final = (0, 1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
_PAIRS: Final = (0, 5, 10, 20, 30, 50, 75, 100, 150, 200)
_TENTHS: Final = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
_PLACES: Final = (0, 0.5, 1, 2, 3, 5, 10, 20, 50)
_MARGINS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


class RankingMetrics:
    """Take in decisions; drift is set when metrics are read."""

    def __init__(self, declare: Declaring) -> None:
        self._candidates = declare.histogram(
            STABLE, "cascade_candidates", "Candidates of an answered request", buckets=_CANDIDATES
        )
        self._depth = declare.histogram(STABLE, "cascade_depth", "Candidates within depth", buckets=_PAIRS)
        self._escalated = declare.histogram(STABLE, "cascade_escalated", "Candidates escalated", buckets=_PAIRS)
        self._actions = declare.counters(
            STABLE, "cascade_actions", "Answers by what escalation decided", "action", Action
        )
        self._margin = declare.histogram(
            EXPERIMENTAL,
            "cascade_margin",
            "Calibrated margin of an answer: p of its last place less p of the one behind; where a calibration decided",
            buckets=_MARGINS,
        )
        self._overlap = declare.histogram(
            EXPERIMENTAL,
            "cascade_rank_overlap_ratio",
            "Share of the small stage's first ten that are among the first ten once the large stage has scored",
            buckets=_TENTHS,
        )
        self._displacement = declare.histogram(
            EXPERIMENTAL,
            "cascade_rank_displacement_places",
            "Places that the small stage's first ten were moved by the large stage, on average",
            buckets=_PLACES,
        )
        self._psi = declare.gauge(
            EXPERIMENTAL,
            "cascade_calibration_drift_psi",
            "Population stability index of the last answers against the queries that the calibration was fitted on: the best "
            "small score (score), the margin (margin); NaN below 200 answers",
            ["of"],
        )
        self._compared = declare.gauge(
            EXPERIMENTAL, "cascade_calibration_drift_answers", "Answers that the index is of, 1000 at most", ["of"]
        )

    def observe(self, decision: Decision) -> None:
        """Count an answer."""
        self._candidates.observe(decision.candidates)
        self._depth.observe(decision.depth)
        self._escalated.observe(len(decision.escalated))
        self._actions[decision.action].inc()
        if decision.estimates is not None:
            self._margin.observe(decision.estimates.margin)
        self.moved(decision.movement)

    def moved(self, movement: Movement | None) -> None:
        """Count how far the large stage moved an order, None where there were not two orders."""
        if movement is not None:
            self._overlap.observe(movement.overlap)
            self._displacement.observe(movement.displacement)

    def show_drift(self, drift: Mapping[str, tuple[float, int]]) -> None:
        """Show the index and the answers that it is of, by what is compared; nothing of what is not."""
        self._psi.clear()
        self._compared.clear()
        for name, (psi, answers) in drift.items():
            self._psi.labels(name).set(psi)
            self._compared.labels(name).set(answers)
