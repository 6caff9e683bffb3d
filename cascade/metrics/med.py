"""How much nDCG one order can have over another, whatever the judgements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cascade.metrics.rows import discounts

__all__ = ["most_ndcg_lost"]


def most_ndcg_lost(order: Sequence[int], other: Sequence[int], k: int) -> float:
    """Return the greatest nDCG@k of ``order`` minus that of ``other`` that any judgements can give.

    Both list the same documents, best first. With w_d the difference of a document's discounts in the two,
    nought behind rank k: max over r of the sum of the r greatest positive w_d / IDCG_r. Binary judgements of those
    r documents reach it. Graded ones are sums of nested binary ones with positive parts; the numerator is linear
    and the ideal additive over nested sets, so that theirs is a mediant of binary ratios and no greater. Judged
    documents that neither order holds only raise the ideal. After MED (Tan and Clarke, TKDE 2015).
    """
    weights = discounts(k)
    won = dict(zip(order[:k], weights.tolist(), strict=False))
    for document, discount in zip(other[:k], weights.tolist(), strict=False):
        won[document] = won.get(document, 0.0) - discount
    gains = np.sort([weight for weight in won.values() if weight > 0.0])[::-1]
    if not gains.size:
        return 0.0
    # No more than k documents gain anything, as no more stand in the first k.
    return float(np.max(np.cumsum(gains) / np.cumsum(weights)[: gains.size]))
