"""How near the scores and orders of two sides are: errors, correlation, Kendall's tau, overlap of the top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.parity.lists import FloatArray
from cascade.parity.pairs import PairedList

__all__ = ["Agreement", "Spread", "agreement", "kendall", "part_of", "top"]

_LEAST_FOR_CORRELATION: Final = 3


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and least of a figure over ``queries`` for which it is defined."""

    mean: float
    least: float
    queries: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two sides agree on some pairs. What is undefined is None.

    Errors are absolute; ``max_excess`` and ``mean_excess`` are what noise over runs does not explain of them.
    ``kendall`` is tau-b within a query, ``overlap`` the share of the first k that both have in common.
    ``tied_ref`` and ``tied_cand`` are the shares of a query's pairs of candidates that a side scores alike.
    """

    queries: int
    pairs: int
    max_error: float | None
    max_excess: float | None
    mean_error: float | None
    mean_excess: float | None
    pearson: float | None
    kendall: Spread | None
    overlap: Spread | None
    tied_ref: float | None
    tied_cand: float | None


def agreement(lists: Sequence[PairedList], k: int) -> Agreement:
    """Measure the agreement on all pairs of ``lists``.

    Overlap is taken over the queries with more than k candidates: with fewer it is always whole.
    """
    error = np.concatenate([item.error for item in lists]) if lists else np.zeros(0)
    excess = np.concatenate([item.excess for item in lists]) if lists else np.zeros(0)
    known = error.size > 0 and bool(np.isfinite(error).all())
    taus = [tau for item in lists if (tau := kendall(item.ref, item.cand)) is not None]
    overlaps = [_overlap(item, k) for item in lists if item.ref.size > k]
    return Agreement(
        queries=len(lists),
        pairs=int(error.size),
        max_error=float(np.abs(error).max()) if known else None,
        max_excess=float(excess.max()) if known else None,
        mean_error=float(np.abs(error).mean()) if known else None,
        mean_excess=float(excess.mean()) if known else None,
        pearson=_pearson(lists) if known else None,
        kendall=_spread(taus),
        overlap=_spread(overlaps),
        tied_ref=_tied([item.ref for item in lists]),
        tied_cand=_tied([item.cand for item in lists]),
    )


def part_of(lists: Sequence[PairedList], attribute: str, value: str) -> tuple[list[PairedList], bool]:
    """Return the pairs with this value, as lists, and whether they are all pairs of each of their queries."""
    parts, whole = [], True
    for item in lists:
        kept = [place for place, label in enumerate(item.labels.get(attribute, ())) if label == value]
        if len(kept) == item.ref.size:
            parts.append(item)
        elif kept:
            parts.append(item.take(kept))
            whole = False
    return parts, whole


def kendall(ref: FloatArray, cand: FloatArray) -> float | None:
    """Return Kendall's tau-b of two score lists, None where both are constant, 0 where one is.

    Kendall, "The treatment of ties in ranking problems" (1945).
    """
    if ref.size < 2:
        return None
    upper = np.triu_indices(ref.size, 1)
    ours, theirs = (np.sign(values[upper[0]] - values[upper[1]]) for values in (ref, cand))
    untied_ref, untied_cand = float(np.abs(ours).sum()), float(np.abs(theirs).sum())
    if not untied_ref and not untied_cand:
        return None
    if not untied_ref or not untied_cand:
        return 0.0
    return float((ours * theirs).sum() / np.sqrt(untied_ref * untied_cand))


def top(scores: FloatArray, k: int) -> set[int]:
    """Return the positions of the first k by score; ties keep first-stage order."""
    return set(np.argsort(-scores, kind="stable")[:k].tolist())


def _overlap(item: PairedList, k: int) -> float:
    return len(top(item.ref, k) & top(item.cand, k)) / k


def _pearson(lists: Sequence[PairedList]) -> float | None:
    ref = np.concatenate([item.ref_common for item in lists])
    cand = np.concatenate([item.cand_common for item in lists])
    if ref.size < _LEAST_FOR_CORRELATION or not np.ptp(ref) or not np.ptp(cand):
        return None
    return float(np.corrcoef(ref, cand)[0, 1])


def _tied(scores: Sequence[FloatArray]) -> float | None:
    pairs = tied = 0
    for values in scores:
        counts = np.unique(values, return_counts=True)[1]
        pairs += values.size * (values.size - 1) // 2
        tied += int((counts * (counts - 1) // 2).sum())
    return tied / pairs if pairs else None


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(float(np.mean(values)), min(values), len(values)) if values else None
