"""What shadow pairs say of a target: full information, and nothing but the large order to judge by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cascade.replay.logged.shadowed import Shadowed
from cascade.replay.logged.words import means_told, number

__all__ = ["SILVER", "shadow_report"]

SILVER: Final = (
    "silver: nDCG with gain 1/rank of the large order. It tells how near the target comes to that order, and cannot "
    "reward being better than it"
)


def shadow_report(shadows: Sequence[Shadowed], resamples: int, seed: int) -> dict[str, Any] | None:
    """Return the means over observed requests, over all and by query class; None without any.

    Both stages scored every candidate, so that nothing is weighted. ``lost_at_most`` bounds how much mean nDCG@k the
    target can lose against always-large whatever the judgements, and ``won_at_most`` what it can win.
    """
    if not shadows:
        return None

    def told(some: Sequence[Shadowed]) -> dict[str, Any]:
        columns = {
            "silver": [each.silver for each in some],
            "lost_at_most": [each.lost for each in some],
            "won_at_most": [each.won for each in some],
            "unchanged": [float(each.lost == each.won == 0.0) for each in some],
            "large_pairs": [each.pairs for each in some],
        }
        share = sum(each.pairs for each in some) / sum(each.all_pairs for each in some)
        told = means_told(columns, [each.query for each in some], resamples, seed)
        return {"large_share": number(share), **told}

    classes = sorted({each.query_class for each in shadows})
    by_class = {one.value: told([each for each in shadows if each.query_class is one]) for one in classes}
    return {"judgements": SILVER, **told(shadows), "by_class": by_class}
