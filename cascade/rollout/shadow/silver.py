"""Ranking loss without judgements: gains from the whole depth scored by one strong stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cascade.guard.deadline import Deadline
from cascade.metrics import ideal_dcg, ndcg_rows, silver_gains
from cascade.pipeline.rounds import Rounds
from cascade.pipeline.run import Run
from cascade.rollout.shadow.outcome import ShadowOutcome
from cascade.types import Request, StageName

__all__ = ["gains_from", "ranking_loss", "score_silver"]

_LARGE: Final = StageName.LARGE


def ranking_loss(stable: Sequence[int], candidate: Sequence[int], gains: NDArray[np.float64], k: int) -> float:
    """Return nDCG@k of the stable order minus that of the candidate's, in [-1, 1]; above zero is worse.

    Orders are indices of candidates, best first, and may be cut; ``gains`` go by index, of all that were judged.
    """
    ideal = ideal_dcg(gains, k)
    of_stable, of_candidate = (float(ndcg_rows(gains[list(order[:k])], ideal, k)) for order in (stable, candidate))
    return max(-1.0, min(1.0, of_stable - of_candidate))


def gains_from(scores: Sequence[float], k: int) -> NDArray[np.float64] | None:
    """Return the gain 1 / rank of each score, as a replay without judgements has it; None where the head is not told.

    A tie that reaches into the first ``k`` leaves it unknown which document is worth more. Whether it does hangs on
    the scores alone, never on an order that is judged: what is left out favours neither release. Behind the first ``k``
    documents that tie share the mean of their ranks' gains.
    """
    told = np.asarray(scores, dtype=np.float64)
    gains = silver_gains(told)
    order = np.argsort(-told, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(told[order]) != 0))
    ends = np.append(starts[1:], told.size)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start > 1:
            if start < k:
                return None
            gains[order[start:end]] = gains[order[start:end]].mean()
    return gains


async def score_silver(
    rounds: Rounds, request: Request, call_id: str, depth: int, k: int, deadline: Deadline
) -> NDArray[np.float64] | ShadowOutcome:
    """Have the large stage score the first ``depth`` candidates anew; return gains (n,), or why there are none.

    Anew, although some were scored for the answer: with those scores the stable order would be judged by its
    own noise, and an identical release would seem to lose.
    """
    run = Run(request, call_id)
    scores = await rounds.score(run, _LARGE, range(depth), deadline, deadline.remaining_ms())
    if run.excluded:
        return ShadowOutcome.SILVER_EXCLUDED
    if not scores:
        return ShadowOutcome.SILVER_FAILED
    head = gains_from([scores[index] for index in range(depth)], k)
    if head is None:
        return ShadowOutcome.SILVER_TIED
    gains = np.zeros(len(request.candidates))
    gains[:depth] = head
    return gains
