"""What both sides score: candidates of a query, in first-stage order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["BoolArray", "CandidateList", "FloatArray", "Runs"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

Runs = Mapping[str, FloatArray]
"""The raw scores of one side by the list's id, (runs, n); NaN where it did not score."""


@dataclass(frozen=True, slots=True)
class CandidateList:
    """The n candidates of one query, in first-stage order.

    ``query`` and ``documents`` are None where only a table is known. ``grades`` has a grade for each
    candidate, -1 where unjudged, None where the query is not judged; ``ideal`` the positive grades of all
    its judged documents. ``labels`` maps an attribute to a value for each candidate, for slices.
    """

    id: str
    doc_ids: tuple[str, ...]
    query: str | None = field(default=None, repr=False)
    documents: tuple[str, ...] | None = field(default=None, repr=False)
    grades: tuple[int, ...] | None = None
    ideal: tuple[int, ...] = ()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
