"""A calibration ready to estimate: entry probabilities, their second round, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from cascade.calibration.additive import AdditiveModel
from cascade.calibration.artefact import CalibrationArtefact
from cascade.calibration.build import entry_of, final_order_of, score_map_of, second_round_of
from cascade.calibration.features import Described, describe
from cascade.calibration.gain import CUTOFFS, entropy, expected_loss, margin, value
from cascade.decision import Estimates
from cascade.errors import ConfigError
from cascade.types import ScoreSpace

__all__ = ["Calibration", "Estimate", "estimate_from", "to_additive_space"]

FloatArray = npt.NDArray[np.float64]

_LEAST_PROBABILITY: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the first round estimates: p (n, 4) by cutoff with its logits, and mu (n,), the expected large score."""

    described: Described
    logits: FloatArray
    mu: FloatArray
    p: FloatArray


def estimate_from(entry: AdditiveModel, described: Described) -> Estimate:
    """Return what an entry model estimates of described candidates."""
    outputs = entry(described)
    logits = outputs[:, : len(CUTOFFS)]
    return Estimate(described, logits, outputs[:, -1], _nested(_sigmoid(logits)))


def to_additive_space(scores: FloatArray, space: ScoreSpace) -> FloatArray:
    """Return scores on a scale where a constant may be added: probabilities become logits."""
    if space is not ScoreSpace.PROBABILITY:
        return scores
    inside = np.clip(scores, _LEAST_PROBABILITY, 1.0 - _LEAST_PROBABILITY)
    return np.asarray(np.log(inside) - np.log1p(-inside))


class Calibration:
    """Estimate which candidates the large stage would put on top.

    Arrays are (n,), one entry a candidate in first-stage order, NaN where there is no score. Raises
    ConfigError at once for an artefact whose tables do not fit together.
    """

    def __init__(self, artefact: CalibrationArtefact, sha256: str) -> None:
        self.artefact = artefact
        self.sha256 = sha256
        self.channels = artefact.channels
        self.k = artefact.k
        try:
            self._entry = entry_of(artefact.entry, artefact.channels)
            self._second = second_round_of(artefact.second_round, artefact.channels)
            self._final = final_order_of(artefact.final_order, artefact.channels)
        except (ValueError, IndexError) as error:
            reason = str(error)
        else:
            self.score_maps = {name: score_map_of(entry) for name, entry in artefact.score_maps.items()}
            return
        raise ConfigError(f"calibration {sha256}: its tables do not fit together: {reason}")

    @property
    def second_round_from(self) -> int | None:
        """Return how many large scores must be seen to estimate again, None where that was not fitted."""
        return None if self.artefact.second_round is None else self.artefact.second_round.least_scored

    def misfit(self, small: FloatArray, channels: Mapping[str, FloatArray]) -> str | None:
        """Return why the estimates would not hold for these candidates, None where nothing speaks against."""
        valid = self.artefact.valid
        if not valid.least_candidates <= len(small) <= valid.most_candidates:
            return "candidates_out_of_range"
        for name in ("small", *self.channels):
            present = np.isfinite(small if name == "small" else self._channel(name, channels, len(small)))
            if present.mean() < valid.least_present.get(name, 1.0 / len(small)):
                return "too_few_scores" if present.any() or name == "small" else "channel_missing"
        return None if np.isfinite(small).any() else "too_few_scores"

    def _channel(self, name: str, channels: Mapping[str, FloatArray], count: int) -> FloatArray:
        """Return a channel's scores; one that the request does not carry is missing for every candidate."""
        return channels.get(name, np.full(count, np.nan))

    def estimate(self, small: FloatArray, channels: Mapping[str, FloatArray]) -> Estimate:
        """Estimate from the small scores (raw, in the artefact's space) and every channel of the artefact."""
        described = describe(
            to_additive_space(small, self.artefact.small.space),
            {name: self._channel(name, channels, len(small)) for name in self.channels},
        )
        return estimate_from(self._entry, described)

    def entry(self, small: FloatArray, channels: Mapping[str, FloatArray]) -> FloatArray:
        """Return p (n, 4): the probability that the large stage puts each candidate in its top 1, 3, 5, 10."""
        return self.estimate(small, channels).p

    def estimate_again(self, first: Estimate, large: FloatArray, k: int) -> FloatArray:
        """Return p (n, 4) for candidates whose ``large`` score is NaN, given the raw large scores of the others.

        Rows of scored candidates are those of the first estimate. Without a second round nothing changes.
        """
        scored = np.isfinite(large)
        if self._second is None or not scored.any():
            return first.p
        seen = to_additive_space(large, self.artefact.large.space)
        features = self._second.features(first.described, first.logits, first.mu, value(first.p, k), seen)
        return np.where(scored[:, None], first.p, _nested(_sigmoid(self._second(features))))

    def summary(self, p: FloatArray, small_order: npt.NDArray[np.int64], k: int) -> Estimates:
        """Return what p (n, 4) says of the small order, a permutation of the candidates."""
        loss, gap, doubt = expected_loss(p, small_order, k), margin(p, k), entropy(p, k)
        model = self.artefact.acceptable
        acceptable = None
        if model is not None and k == self.k:  # fitted on the loss, margin and entropy at that length
            odds = model.intercept + sum(w * x for w, x in zip(model.weights, (loss, gap, doubt), strict=True))
            acceptable = float(_sigmoid(np.array(odds)))
        return Estimates(k, float(p[:, 0].max()), gap, doubt, loss, acceptable)

    def best_small(self, scores: Mapping[int, float]) -> float | None:
        """Return the best raw small score (by index) as the reference counts it, None where it cannot be compared."""
        reference = self.artefact.reference
        if reference is None:
            return None
        head = [scores[index] for index in range(reference.candidates) if index in scores]
        if len(head) < reference.candidates:
            return None
        return float(to_additive_space(np.array(max(head)), self.artefact.small.space))

    def relevance(self, stage: Literal["small", "large"], score: float) -> float | None:
        """Return the calibrated probability that a document of this raw score is relevant, None without a map."""
        score_map = self.score_maps.get(stage)
        if score_map is None:
            return None
        space = self.artefact.small.space if stage == "small" else self.artefact.large.space
        return score_map(float(to_additive_space(np.array(score), space)))

    def final_scores(self, first: Estimate | None, large: FloatArray) -> FloatArray | None:
        """Return what the scored block is ordered by (n,), NaN where ``large`` is; None without a fitted order.

        A weighted sum of the large score and the candidate's features: adding a constant to all large
        scores changes no order.
        """
        if self._final is None or first is None:
            return None
        seen = to_additive_space(large, self.artefact.large.space)
        highest = np.max(seen, initial=-np.inf, where=np.isfinite(seen))
        # From the highest, so that a constant leaves no trace in the last bits; it cancels exactly.
        return np.asarray(self._final(first.described, seen - highest))

    def value(self, p: FloatArray, k: int | None = None) -> FloatArray:
        """Return the expected share of discounted gain (n,) of each candidate; see `cascade.calibration.gain.value`."""
        return value(p, self.k if k is None else k)


def _sigmoid(logits: FloatArray) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logits, -700.0, 700.0))))


def _nested(p: FloatArray) -> FloatArray:
    """Being in the top 3 is at least as likely as being in the top 1: what was fitted apart may disagree."""
    return np.asarray(np.maximum.accumulate(p, axis=1))
