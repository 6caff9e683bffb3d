"""A calibrated release played on virtual time: a candidate's text is its place, and stages score by place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cascade.calibration.artefact import FinalOrder, artefact_bytes, artefact_digest
from cascade.calibration.calibrated import Calibration
from cascade.decision import Ranking
from cascade.errors import StageError
from cascade.guard.deadline import Deadline
from cascade.guard.expected_ms import Fit
from cascade.guard.token_size import pair_tokens
from cascade.pipeline import Pipeline
from cascade.policy.release import parse_release
from cascade.testing.calibration import scripted_artefact, scripted_calibration
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Candidate, Request, StageName, StageScores
from tests.scenario import release_data

__all__ = ["CALIBRATION", "REORDERING", "CallByCall", "Escalated", "Query", "escalate", "rule"]

CALIBRATION: Final = scripted_calibration(("bm25",), channel_weight=0.5, second_round=True)
"""Reads one channel, and has a second round."""


def _reordering() -> Calibration:
    order = FinalOrder(large=0.05, features={"bm25.z": 1.0}, gain=0.02, low=0.01, high=0.03)
    artefact = scripted_artefact(("bm25",), channel_weight=0.5, second_round=True)
    artefact = artefact.model_copy(update={"final_order": order})
    return Calibration(artefact, artefact_digest(artefact_bytes(artefact)))


REORDERING: Final = _reordering()
"""The same with a fitted final order: a twentieth of the large score, and the z of the channel."""


@dataclass(slots=True)
class CallByCall(ScriptedStage):
    """Behave differently from call to call; the last of each list goes for all calls that follow."""

    delays_ms: Sequence[float] = (0.0,)
    failures: Sequence[type[StageError] | Exception | None] = (None,)

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        at = len(self.calls)
        self.delay_ms = self.delays_ms[min(at, len(self.delays_ms) - 1)]
        self.fails = self.failures[min(at, len(self.failures) - 1)]
        return await ScriptedStage.score(self, query, documents, deadline=deadline, call_id=call_id)


@dataclass(frozen=True)
class Query:
    """What each scorer says of each candidate, in first-stage order; None in a channel is missing, else left out."""

    small: Sequence[float | None]
    large: Sequence[float | None]
    bm25: Sequence[float | None]


@dataclass(frozen=True)
class Escalated:
    """What came of it; ``sent`` lists the places of each call of the large stage."""

    ranking: Ranking
    sent: list[list[int]]
    small_calls: int
    took_ms: float
    faults: list[BaseException] = field(default_factory=list)

    @property
    def order(self) -> list[int]:
        """Return the places answered, best first."""
        return [item.index for item in self.ranking.results]


def rule(calibration: Calibration | None = CALIBRATION, **fields: Any) -> dict[str, Any]:
    """Return a calibrated escalation as a release writes it."""
    digest = (calibration or CALIBRATION).sha256
    return {"kind": "calibrated", "calibration": digest, "k": 10, "price_per_pair": 0.01, **fields}


def _stage(scores: Sequence[float | None], behaviour: Mapping[str, Any]) -> CallByCall:
    def score(query: str, text: str) -> float:
        found = scores[int(text)]
        assert found is not None
        return found

    return CallByCall(score, refuses=lambda text: scores[int(text)] is None, **behaviour)


def escalate(
    query: Query,
    escalation: Mapping[str, Any],
    calibration: Calibration | None = CALIBRATION,
    *,
    small: Mapping[str, Any] | None = None,
    large: Mapping[str, Any] | None = None,
    budgets: Mapping[str, float] | None = None,
    request: Mapping[str, Any] | None = None,
    known_ms_a_pair: float | None = None,
) -> Escalated:
    """Answer one request; ``small`` and ``large`` say how the stages behave, call by call.

    ``known_ms_a_pair`` is how long the large stage took for each pair in ten rounds of eight before.
    """
    stages = {
        StageName.SMALL: _stage(query.small, small or {}),
        StageName.LARGE: _stage(query.large, large or {}),
    }
    data = release_data(escalation=dict(escalation))
    data["budgets"] |= budgets or {}
    candidates = tuple(
        Candidate(Text(str(place)), f"d{place}", {} if score is None else {"bm25": score})
        for place, score in enumerate(query.bm25)
    )
    faults: list[BaseException] = []

    async def answer() -> Escalated:
        loop = asyncio.get_running_loop()
        if known_ms_a_pair is not None:
            tokens = pair_tokens(Text("which"), [Text("1")] * 8, 512)
            for _ in range(10):
                stages[StageName.LARGE].expected.ended(tokens, 8 * known_ms_a_pair, Fit.FITS)
        pipeline = Pipeline(
            parse_release(data),
            stages,
            calibration=calibration,
            clock=loop.time,
            new_id=lambda: "id-1",
            hash_query=lambda text: "hash",
            count_fault=faults.append,
        )
        ranking = await pipeline.rerank(Request(Text("which"), candidates, **(request or {})))
        sent = [[int(text) for text in call] for call in stages[StageName.LARGE].calls]
        return Escalated(ranking, sent, len(stages[StageName.SMALL].calls), loop.time() * 1000, faults)

    return run_virtual(answer())
