"""Re-estimate what was not scored from the large scores seen so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.calibration.features import Described
from cascade.calibration.gain import CUTOFFS

__all__ = ["FEATURES", "SecondRound"]

FloatArray = npt.NDArray[np.float64]

FEATURES: Final = (
    "logit_p", "reach", "reach_squared", "logit_p_times_reach", "logit_p_10", "log_scored", "late_hits",
    "late_hits_times_logit_p", "full",
)  # fmt: skip
"""Features (n, 4, len) of a candidate that the second round's logistic regressions read, a set a cutoff."""

_REACH_RANGE: Final = (-8.0, 4.0)


@dataclass(frozen=True, slots=True)
class SecondRound:
    """What scored candidates tell of the others of the same query.

    The large score of a candidate, standardised by ``scale``, is mu + effects' beta + noise: mu is expected
    from its features, beta ~ N(0, ``covariance``) is how this query strays from what is usual, and the
    noise has variance ``noise`` (B,) by bin of mu with inner edges ``bins`` (B - 1,). The first of beta,
    the query's level, has a flat prior: a constant added to all large scores changes nothing. ``weights``
    (4, F), ``centre`` and ``spread`` (4, F) and ``intercept`` (4,) are logistic regressions by cutoff.
    """

    scale: float
    covariance: FloatArray
    bins: FloatArray
    noise: FloatArray
    centre: FloatArray
    spread: FloatArray
    weights: FloatArray
    intercept: FloatArray

    def features(
        self, described: Described, logit_p: FloatArray, mu: FloatArray, value: FloatArray, large: FloatArray
    ) -> FloatArray:
        """Return (n, 4, F); meaningful for candidates that ``large`` (n,) does not score (NaN).

        ``large`` is on the large stage's own scale, where a constant may be added. At least one is scored.
        """
        scored = np.isfinite(large)
        # The level is free. From the highest, so that a constant leaves no trace in the last bits.
        seen = (large[scored] - large[scored].max()) / self.scale
        posterior, covariance = self._posterior(described.effects[scored], mu[scored], seen)
        noise = self._noise_of(mu)
        expected = mu + described.effects @ posterior
        sd = np.sqrt(np.einsum("ni,ij,nj->n", described.effects, covariance, described.effects) + noise)
        best = -np.sort(-seen)
        count = len(seen)
        late = np.argsort(-value[scored], kind="stable")[2 * count // 3 :]
        bars = np.array([best[cutoff - 1] if count >= cutoff else best[-1] - 1.0 for cutoff in CUTOFFS])
        hits = (seen[late, None] >= bars).mean(axis=0) if len(late) else np.zeros(len(CUTOFFS))
        reach = np.clip((expected[:, None] - bars) / sd[:, None], *_REACH_RANGE)
        table = np.empty((len(large), len(CUTOFFS), len(FEATURES)))
        columns = (
            logit_p, reach, reach**2, logit_p * reach, logit_p[:, -1:], np.log(count), hits, hits * logit_p,
            np.minimum(count, CUTOFFS) / np.array(CUTOFFS),
        )  # fmt: skip
        for feature, column in enumerate(columns):
            table[:, :, feature] = column
        return table

    def __call__(self, features: FloatArray) -> FloatArray:
        """Return the logits (n, 4) of entering the large stage's top c, from `features`."""
        standard = (features - self.centre) / self.spread
        return np.asarray(np.einsum("ncf,cf->nc", standard, self.weights) + self.intercept)

    def _noise_of(self, mu: FloatArray) -> FloatArray:
        return np.asarray(self.noise[np.searchsorted(self.bins, mu, side="right")])

    def _posterior(self, effects: FloatArray, mu: FloatArray, seen: FloatArray) -> tuple[FloatArray, FloatArray]:
        precision = np.zeros_like(self.covariance)
        precision[1:, 1:] = np.linalg.inv(self.covariance[1:, 1:])
        weighted = effects.T / self._noise_of(mu)
        covariance = np.linalg.inv(weighted @ effects + precision)
        return covariance @ (weighted @ (seen - mu)), np.asarray(covariance)
