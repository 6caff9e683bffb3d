"""The policies of a path, replayed on the queries that choose it and on those that certify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.fit.calibrate import Fitted
from cascade.fit.certify.replays import PRICES, Family, Replay, by_fold, fused_replay, policy_replay, static_replay
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import CalibratedEscalation, Escalation
from cascade.policy.release import Limits
from cascade.replay.policy import Policy
from cascade.replay.queries import ReplayedQuery

__all__ = ["NEED_CALIBRATION", "Policies"]

NEED_CALIBRATION = frozenset({Family.FUSED, Family.CALIBRATED})
"""Families that read entry probabilities."""


@dataclass(frozen=True, slots=True)
class Policies:
    """How the policies of a path are replayed.

    ``most`` is the greatest depth. ``release`` is a release's own policy, ``alone`` at its own threshold only.
    """

    families: tuple[Family, ...]
    k: int
    most: int
    calibration: Calibration | None = None
    release: Policy | None = None
    alone: bool = False

    def replay(self, queries: Sequence[ReplayedQuery]) -> Replay:
        """Replay all policies on queries that the calibration has not seen."""
        return self._all(lambda one: one(queries, self.calibration))

    def replay_fitted(self, queries: Sequence[ReplayedQuery], fitted: Fitted) -> Replay:
        """Replay them on the queries that the calibration was fitted on, each by what was fitted without it."""
        return self._all(lambda one: by_fold(queries, fitted.fold, fitted.of_fold, one))

    def _all(self, each: Callable[[Callable[[Sequence[ReplayedQuery], Calibration | None], Replay]], Replay]) -> Replay:
        return Replay.above([each(partial(self._one, family)) for family in self.families])

    def _one(self, family: Family, queries: Sequence[ReplayedQuery], calibration: Calibration | None) -> Replay:
        if family is Family.STATIC:
            return static_replay(queries, self.k, self.most)
        if family is Family.RELEASE:
            return policy_replay(queries, self._released(), self.k, alone=self.alone)
        if calibration is None or self.calibration is None:
            raise ConfigError(f"family {family} reads a calibration, and there is none")
        if family is Family.FUSED:
            return fused_replay(queries, calibration, self.k, self.most, self.calibration.sha256)
        policy = Policy(self._priced(self.calibration), self.depth, Limits(max_candidates=self.most), calibration)
        return policy_replay(queries, policy, self.k, family=family)

    @property
    def depth(self) -> FixedDepth:
        """Return the depth of the families that no release brings: all candidates."""
        return FixedDepth(depth=self.most)

    def of(self, family: Family, rule: Escalation) -> Policy:
        """Return one policy of the path, by its rule."""
        if family is Family.RELEASE:
            whole = self._released()
            return Policy(rule, whole.depth, whole.limits, whole.calibration, whole.history, whole.described)
        return Policy(rule, self.depth, Limits(max_candidates=self.most), self.calibration)

    def _released(self) -> Policy:
        if self.release is None:
            raise ConfigError("family release: no release is named")
        return self.release

    def _priced(self, calibration: Calibration) -> CalibratedEscalation:
        artefact = calibration.artefact
        return CalibratedEscalation.model_validate(
            {
                "kind": "calibrated",
                "calibration": calibration.sha256,
                "k": self.k if self.k in artefact.cutoffs else artefact.k,
                "price_per_pair": PRICES[0],
                "rounds": 2 if artefact.second_round is not None else 1,
            }
        )
