"""Everything that is measured of two sides, from their scores of the same lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cascade.parity.agreement import Agreement, agreement, part_of
from cascade.parity.alignment import misaligned
from cascade.parity.flips import Bucket, flips, large_flips
from cascade.parity.lists import CandidateList, Runs
from cascade.parity.pairs import Paired, paired
from cascade.parity.quality import Quality, quality
from cascade.parity.slices import values_of
from cascade.parity.spaces import Spaces

__all__ = ["Compared", "Slice", "compare"]


@dataclass(frozen=True, slots=True)
class Slice:
    """The pairs with one value of an attribute; quality only where they are whole queries."""

    attribute: str
    value: str
    agreement: Agreement
    quality: Quality | None

    @property
    def name(self) -> str:
        """Return how checks name it."""
        return f"{self.attribute}: {self.value}"


@dataclass(frozen=True, slots=True)
class Compared:
    """What two sides are on the same lists. ``ref_sd`` is the standard deviation of REF's scores over all pairs."""

    paired: Paired
    whole: Agreement
    slices: tuple[Slice, ...]
    flips: tuple[Bucket, ...]
    misaligned: float
    quality: Quality | None
    ref_sd: float

    @property
    def large_flips(self) -> float | None:
        """Return the share of comparisons at large margins that are flipped."""
        return large_flips(self.flips)


def compare(
    lists: Sequence[CandidateList], ref: Runs, cand: Runs, spaces: Spaces, *, k: int, resamples: int, seed: int
) -> Compared:
    """Measure the agreement of two sides on ``lists``, as a whole and by slice."""
    both = paired(lists, ref, cand, spaces)
    found = tuple(flips(both.lists))
    slices = []
    for attribute, value in values_of(lists):
        part, whole = part_of(both.lists, attribute, value)
        if part:
            cost = quality(part, k, resamples, seed) if whole else None
            slices.append(Slice(attribute, value, agreement(part, k), cost))
    return Compared(
        paired=both,
        whole=agreement(both.lists, k),
        slices=tuple(slices),
        flips=found,
        misaligned=misaligned(both.lists),
        quality=quality(both.lists, k, resamples, seed),
        ref_sd=float(np.concatenate([item.ref for item in both.lists]).std()) if both.lists else 0.0,
    )
