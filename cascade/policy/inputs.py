"""What decisions read of a request: channels as arrays, and the signals that a release's rules name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.policy.depth import needed_signals
from cascade.policy.escalation import Known, signals_of_direct
from cascade.policy.release import Release
from cascade.signals.compute import Signals, compute
from cascade.signals.view import Inputs
from cascade.types import Candidate, Request

__all__ = ["channel_scores", "known_within", "signals_of"]

FloatArray = npt.NDArray[np.float64]

_HEAD: Final = 3
"""Documents that the signal of a near-duplicate head reads."""


def channel_scores(candidates: Sequence[Candidate]) -> dict[str, FloatArray]:
    """Return each first-stage channel's scores (n,) in first-stage order, NaN where a candidate has none."""
    names = dict.fromkeys(name for candidate in candidates for name in candidate.scores)
    return {name: np.array([candidate.scores.get(name, np.nan) for candidate in candidates]) for name in names}


def signals_of(release: Release, request: Request) -> Signals:
    """Return the signals that the release's rules read, and no others."""
    names = needed_signals(release.depth) | signals_of_direct(release.escalation)
    if not names:
        return Signals()
    inputs = Inputs(
        channels=channel_scores(request.candidates),
        query=request.query,
        head=tuple(candidate.text for candidate in request.candidates[:_HEAD]),
        tenant=request.tenant,
        history=None if release.history is None else release.history.frozen(),
    )
    return compute(names, inputs)


def known_within(
    depth: int, candidates: Sequence[Candidate], small: Mapping[int, float], large: Mapping[int, float]
) -> Known:
    """Return what is known of the first ``depth`` candidates; ``small`` and ``large`` go by candidate index."""
    within = range(depth)
    return Known(
        np.array([small.get(index, np.nan) for index in within], dtype=np.float64),
        channel_scores(candidates[:depth]),
        np.array([large.get(index, np.nan) for index in within], dtype=np.float64),
    )
