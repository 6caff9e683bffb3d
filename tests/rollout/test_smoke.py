"""What a smoke query tells of the release, and what it does not tell of its servers."""

from __future__ import annotations

from typing import Any, cast

from cascade.guard.own_calls import is_own_call
from cascade.policy.rollout_rules import SmokeQuery
from cascade.rollout.smoke import smoke
from cascade.types import RankedCandidate, Ranking, Request, StageName
from tests.telemetry.decisions import decision


class _Release:
    """Note whether requests are the process's own, and answer with the second document first."""

    def __init__(self) -> None:
        self.own: list[bool] = []

    def deciding(self) -> _Release:
        return self

    async def rerank(self, request: Request) -> Ranking:
        self.own.append(is_own_call())
        return Ranking((RankedCandidate(1, None, 1.0, StageName.SMALL),), decision())


async def test_smoke_queries_say_nothing_of_how_large_a_call_is() -> None:
    """They are the operator's, and short; what follows them is traffic again."""
    release = _Release()
    told = await smoke(cast("Any", release), [SmokeQuery(query="q", documents=("a", "b"), first=0)])
    assert told == ["smoke query 0: document 1 came first, not document 0"]
    assert release.own == [True]
    assert not is_own_call()
