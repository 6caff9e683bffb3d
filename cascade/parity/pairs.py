"""Put the scores of both sides beside each other, and count what only one of them has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Final

import numpy as np

from cascade.parity.lists import BoolArray, CandidateList, FloatArray, Runs
from cascade.parity.spaces import Spaces
from cascade.types import ScoreSpace

__all__ = ["OneSided", "Paired", "PairedList", "paired"]

_FALSE_ALARM: Final = 0.01
"""Chance that noise alone shows as an error anywhere, over all pairs."""


@dataclass(frozen=True, slots=True, eq=False)
class PairedList:
    """The n candidates of a query that both sides scored, in first-stage order; arrays (n,).

    ``ref`` and ``cand`` are means over runs of the raw scores, ``ref_common`` and ``cand_common`` in the common
    space, NaN where there is none. ``excess`` is what of the error's size the runs' own noise does not explain.
    """

    id: str
    ref: FloatArray
    cand: FloatArray
    ref_common: FloatArray
    cand_common: FloatArray
    excess: FloatArray
    labels: Mapping[str, tuple[str, ...]]
    grades: tuple[int, ...] | None = None
    ideal: tuple[int, ...] = ()

    @property
    def error(self) -> FloatArray:
        """Return CAND minus REF in the common space, (n,)."""
        return self.cand_common - self.ref_common

    def take(self, places: Sequence[int]) -> PairedList:
        """Return these candidates alone; they are not judged then, as the others are not there."""
        return PairedList(
            self.id,
            self.ref[places],
            self.cand[places],
            self.ref_common[places],
            self.cand_common[places],
            self.excess[places],
            {name: tuple(values[place] for place in places) for name, values in self.labels.items()},
        )


@dataclass(frozen=True, slots=True)
class OneSided:
    """Pairs that one side has and the other has not, and the first of them: query and document id."""

    pairs: int = 0
    first: tuple[str, str] | None = None

    def and_then(self, other: OneSided) -> OneSided:
        """Return both counted together."""
        return OneSided(self.pairs + other.pairs, self.first or other.first)


@dataclass(frozen=True, slots=True)
class Paired:
    """All lists with at least one pair of both sides. ``neither`` counts pairs that no side scored.

    ``noise_ref`` and ``noise_cand`` are standard deviations of a pair over runs, in the common space, pooled
    over pairs; None with one run.
    """

    lists: tuple[PairedList, ...]
    only_ref: OneSided = field(default_factory=OneSided)
    only_cand: OneSided = field(default_factory=OneSided)
    neither: int = 0
    noise_ref: float | None = None
    noise_cand: float | None = None

    @property
    def pairs(self) -> int:
        """Return the number of pairs that both sides scored."""
        return sum(item.ref.size for item in self.lists)


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One side over its runs: means (n,) raw and in the common space, variance of a pair over runs, and their number."""

    raw: FloatArray
    common: FloatArray
    variance: FloatArray
    runs: int


def paired(lists: Sequence[CandidateList], ref: Runs, cand: Runs, spaces: Spaces) -> Paired:
    """Pair the scores of two sides of the same lists.

    The allowance of an error is z times the standard error of both means, with the larger of a pair's own and
    the pooled variance, and z so that noise shows in no pair with a probability of 99% (Bonferroni).
    """
    sides = [
        (item, _side(ref[item.id], spaces, spaces.ref), _side(cand[item.id], spaces, spaces.cand)) for item in lists
    ]
    noise_ref, noise_cand = _pooled([side for _, side, _ in sides]), _pooled([side for _, _, side in sides])
    total = max(1, sum(len(item.doc_ids) for item in lists))
    z = NormalDist().inv_cdf(1.0 - _FALSE_ALARM / (2.0 * total))
    made, only_ref, only_cand, neither = [], OneSided(), OneSided(), 0
    for item, ours, theirs in sides:
        has_ref, has_cand = np.isfinite(ours.raw), np.isfinite(theirs.raw)
        only_ref = only_ref.and_then(_one_sided(item, has_ref & ~has_cand))
        only_cand = only_cand.and_then(_one_sided(item, has_cand & ~has_ref))
        neither += int((~has_ref & ~has_cand).sum())
        both = has_ref & has_cand
        if both.any():
            spread = np.sqrt(_standard_error2(ours, noise_ref) + _standard_error2(theirs, noise_cand))
            made.append(_list(item, both, ours, theirs, z * spread))
    return Paired(tuple(made), only_ref, only_cand, neither, noise_ref, noise_cand)


def _side(runs: FloatArray, spaces: Spaces, own: ScoreSpace | None) -> _Side:
    common = np.full_like(runs, np.nan) if spaces.incomparable is not None else spaces.in_common(runs, own)
    count = runs.shape[0]
    variance = common.var(axis=0, ddof=1) if count > 1 else np.zeros(runs.shape[1])
    return _Side(runs.mean(axis=0), common.mean(axis=0), variance, count)


def _pooled(sides: Sequence[_Side]) -> float | None:
    if not any(side.runs > 1 for side in sides):
        return None
    every = np.concatenate([side.variance[np.isfinite(side.variance)] for side in sides])
    return float(np.sqrt(every.mean())) if every.size else None


def _standard_error2(side: _Side, pooled: float | None) -> FloatArray:
    return np.maximum(side.variance, (pooled or 0.0) ** 2) / side.runs


def _one_sided(item: CandidateList, which: BoolArray) -> OneSided:
    if not which.any():
        return OneSided()
    return OneSided(int(which.sum()), (item.id, item.doc_ids[int(np.argmax(which))]))


def _list(item: CandidateList, both: BoolArray, ref: _Side, cand: _Side, allowance: FloatArray) -> PairedList:
    whole = PairedList(
        id=item.id,
        ref=ref.raw,
        cand=cand.raw,
        ref_common=ref.common,
        cand_common=cand.common,
        excess=np.maximum(0.0, np.abs(cand.common - ref.common) - allowance),
        labels=item.labels,
    )
    kept = np.flatnonzero(both).tolist()
    part = whole if len(kept) == both.size else whole.take(kept)
    return replace(
        part, grades=None if item.grades is None else tuple(item.grades[place] for place in kept), ideal=item.ideal
    )
