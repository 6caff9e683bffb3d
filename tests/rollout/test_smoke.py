"""What a smoke query tells of the release, and what it does not tell of its servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from cascade.decision import DegradedReason, RankedCandidate, Ranking, Round
from cascade.guard.own_calls import is_own_call
from cascade.policy.rollout_rules import SmokeQuery
from cascade.rollout.smoke import Smoked, smoke
from cascade.types import Request, StageName
from tests.telemetry.decisions import decision


class _Release:
    """Note whether requests are the process's own, and answer with the second document first, after rounds that failed."""

    def __init__(self, *failed: tuple[DegradedReason, str]) -> None:
        self.own: list[bool] = []
        self._decision = replace(
            decision(),
            degraded=tuple(reason for reason, _ in failed),
            rounds=tuple(Round(StageName.LARGE, "m", 2, 0, 0, 0, reason, code, 1.0) for reason, code in failed),
        )

    def deciding(self) -> _Release:
        return self

    async def rerank(self, request: Request) -> Ranking:
        self.own.append(is_own_call())
        return Ranking((RankedCandidate(1, None, 1.0, StageName.SMALL),), self._decision)


async def test_smoke_queries_say_nothing_of_how_large_a_call_is() -> None:
    """They are the operator's, and short; what follows them is traffic again."""
    release = _Release()
    told = await smoke(cast("Any", release), [SmokeQuery(query="q", documents=("a", "b"), first=0)])
    assert told == [Smoked("smoke query 0: document 1 came first, not document 0")]
    assert release.own == [True]
    assert not is_own_call()


@pytest.mark.parametrize(
    ("reason", "code", "is_away"),
    [
        (DegradedReason.STAGE_UNREACHABLE, "refused", True),
        (DegradedReason.STAGE_OVERLOADED, "status_429", True),
        (DegradedReason.BREAKER_OPEN, "breaker_open", True),
        (DegradedReason.STAGE_INVALID_ANSWER, "status_500", True),
        (DegradedReason.STAGE_INVALID_ANSWER, "wrong_count", False),
        (DegradedReason.STAGE_REFUSED, "no_route", False),
        (DegradedReason.STAGE_TIMEOUT, "deadline", False),
    ],
)
async def test_a_server_that_gives_no_answer_is_told_from_one_that_answers_wrong(
    reason: DegradedReason, code: str, is_away: bool
) -> None:
    """The stage and what happened are named; a time of the release's own that is too short is the release's doing."""
    release = _Release((reason, code))
    told = await smoke(cast("Any", release), [SmokeQuery(query="q", documents=("a", "b"))])
    assert told == [Smoked(f"smoke query 0: degraded: {reason}; large stage: {reason} ({code})", is_away)]


async def test_a_fault_beside_a_server_that_is_away_is_not_the_servers() -> None:
    """All of what spoilt an answer must be that a server gave none."""
    release = _Release((DegradedReason.STAGE_UNREACHABLE, "refused"), (DegradedReason.STAGE_REFUSED, "forbidden"))
    (told,) = await smoke(cast("Any", release), [SmokeQuery(query="q", documents=("a", "b"))])
    assert not told.is_away
