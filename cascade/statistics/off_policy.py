"""Estimate what a policy would have earned from what another one logged.

Arrays run over records in the last axis. ``rewards`` are those that were logged; a weight is pi(a|x) / p(a|x) of
the logged action a: for a policy without chance 1 / p where it takes that action, and 0 where it does not.
``counts`` says how often each record counts, as a bootstrap draws it; None is once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["clipped", "doubly_robust", "effective_sample_size", "ips", "mean_of", "snips"]

FloatArray = NDArray[np.float64]


def ips(rewards: FloatArray, weights: FloatArray, counts: FloatArray | None = None) -> FloatArray:
    """Return mean(w r), unbiased (Horvitz and Thompson, 1952)."""
    return mean_of(weights * rewards, counts)


def snips(rewards: FloatArray, weights: FloatArray, counts: FloatArray | None = None) -> FloatArray:
    """Return sum(w r) / sum(w), consistent and within the range of the rewards (Swaminathan and Joachims, 2015).

    NaN where all weights are nought.
    """
    over = mean_of(weights, counts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(over > 0.0, ips(rewards, weights, counts) / over, np.nan))


def doubly_robust(
    rewards: FloatArray, weights: FloatArray, predicted: FloatArray, counts: FloatArray | None = None
) -> FloatArray:
    """Return mean(q + w (r - q)), q the ``predicted`` reward of the policy's own action (Dudik et al., 2011).

    Unbiased whatever is predicted, as long as a record's prediction depends on neither its reward nor the action
    that was logged for it.
    """
    return mean_of(predicted + weights * (rewards - predicted), counts)


def mean_of(values: FloatArray, counts: FloatArray | None = None) -> FloatArray:
    """Return the mean over records, each as often as it counts."""
    if counts is None:
        return np.asarray(values.mean(axis=-1))
    return np.asarray(np.einsum("...n,...n->...", counts, values) / counts.sum(axis=-1))


def effective_sample_size(weights: FloatArray) -> FloatArray:
    """Return (sum w)^2 / sum w^2 (Kish, 1965), 0 where all weights are nought."""
    squares = (weights**2).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(squares > 0.0, weights.sum(axis=-1) ** 2 / squares, 0.0))


def clipped(weights: FloatArray, most: float) -> tuple[FloatArray, float]:
    """Return the weights with ``most`` in place of greater ones, and which share of their sum that took away."""
    kept = np.minimum(weights, most)
    total = float(weights.sum())
    return kept, 1.0 - float(kept.sum()) / total if total > 0.0 else 0.0
