"""Tell whether a side's scores are the right numbers at the wrong documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cascade.parity.pairs import PairedList

__all__ = ["misaligned"]

_SORTED_AWAY: Final = 0.02
"""Sorting both sides makes so little of the error remain only where the numbers are the same."""
_NEGLIGIBLE: Final = 0.01


def misaligned(lists: Sequence[PairedList]) -> float:
    """Return the share of queries whose scores agree when both sides are sorted, and do not as they stand.

    A server that answers sorted by score and a client that does not read the index make just that. Errors
    below a hundredth of REF's spread within the query are none.
    """
    wrong = 0
    for item in lists:
        standing = float(np.abs(item.error).mean())
        sorted_away = float(np.abs(np.sort(item.cand_common) - np.sort(item.ref_common)).mean())
        negligible = standing <= _NEGLIGIBLE * item.ref_common.std()
        wrong += not negligible and sorted_away <= _SORTED_AWAY * standing  # never where they are not comparable: NaN
    return wrong / len(lists) if lists else 0.0
