"""Reciprocal rank fusion: one order out of the scores of several channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cascade.replay.columns import FloatArray, IntArray

__all__ = ["RRF_CONSTANT", "fused_order"]

RRF_CONSTANT: Final = 60
"""The constant that Cormack, Clarke and Buettcher give (SIGIR 2009)."""


def fused_order(channels: Sequence[FloatArray]) -> IntArray:
    """Return positions by the sum over channels of 1 / (60 + rank), best first.

    Each channel is an array (n,) of scores, higher is better, NaN where it did not find a document,
    which then gains nothing from it. Equal scores of a channel share the better rank, so that which
    stands first in the arrays decides nothing but ties of the sum.
    """
    total = np.zeros(len(channels[0]))
    for scores in channels:
        found = np.flatnonzero(~np.isnan(scores))
        ordered = np.sort(scores[found])
        ranks = len(found) - np.searchsorted(ordered, scores[found], side="right") + 1
        total[found] += 1.0 / (RRF_CONSTANT + ranks)
    order: IntArray = np.argsort(-total, kind="stable")
    return order
