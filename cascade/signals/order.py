"""What can be told of an order itself: how noise would change it, and whether its head repeats itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Final

import numpy as np

from cascade.signals.agreement import kendall, rbo
from cascade.signals.channel import MISSING, Curve
from cascade.text import Text

__all__ = ["duplicate_head", "flips", "kendall_first", "rbo_first"]

_HEAD: Final = 3
_READ: Final = 256
_SHINGLE: Final = 4


def rbo_first(small: Curve) -> float:
    """Return the RBO (see agreement.rbo) of the small order with the first stage's, of the candidates scored."""
    return rbo(small, _first_stage(small))


def kendall_first(small: Curve) -> float:
    """Return tau-b (see agreement.kendall) of the small order with the first stage's, of the candidates scored."""
    return kendall(small, _first_stage(small))


def _first_stage(small: Curve) -> Curve:
    scores = np.full(small.total, np.nan)
    scores[small.order] = -small.order.astype(np.float64)
    return Curve(scores)


def flips(small: Curve, k: int, noise_sd: float | None) -> float:
    """Return how many neighbours in the top k are expected to change places when noise is drawn again.

    Neighbours i and i+1, i <= k, swap with probability Phi(-(s_i - s_i+1) / (sd sqrt 2)) where each score
    has independent normal noise of ``noise_sd``, in the score's own unit; the pair over the boundary
    counts. Missing where the noise is not known or fewer than two are scored.
    """
    if small.count < 2 or noise_sd is None or not 0.0 <= noise_sd < math.inf:
        return MISSING
    if noise_sd == 0.0:
        return 0.0
    below = small.below[: k + 1].tolist()
    twice = 2.0 * noise_sd * small.unit or math.ulp(0.0)
    return sum(0.5 * math.erfc((above - under) / twice) for above, under in pairwise(below))


def duplicate_head(documents: Sequence[Text]) -> float:
    """Return the greatest Jaccard similarity between two of the first three documents.

    Compared are sets of four characters in a row, of the first 256, in lower case and with blanks joined.
    A document without text is left out; missing where fewer than two have any.
    """
    sets = [_shingles(document.reveal()[:_READ]) for document in documents[:_HEAD] if not document.is_blank]
    pairs = list(combinations(sets, 2))
    return max((len(one & other) / len(one | other) for one, other in pairs), default=MISSING)


def _shingles(text: str) -> frozenset[str]:
    joined = " ".join(text.casefold().split())
    return frozenset(joined[start : start + _SHINGLE] for start in range(max(1, len(joined) - _SHINGLE + 1)))
