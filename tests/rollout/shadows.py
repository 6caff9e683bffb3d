"""A stable release, a candidate, and a shadow between them, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cascade.decision import Ranking
from cascade.pipeline import Pipeline
from cascade.pipeline.tap import Tap
from cascade.policy.release import parse_release
from cascade.policy.rollout_rules import ShadowRules
from cascade.rollout.shadow import ShadowOutcome, ShadowRunner
from cascade.stages.base import Stage
from cascade.telemetry.records import Assignment
from cascade.testing.stages import ScriptedStage, fingerprint
from cascade.text import Text
from cascade.types import Arm, Candidate, Request, StageName
from tests.recorded import Kept
from tests.scenario import release_data

__all__ = ["ANIMALS", "Pair", "asked", "scored_by"]

ANIMALS = ("ant", "bee", "cat", "dog", "eel")


def asked(texts: Sequence[str] = ANIMALS, **changes: Any) -> Request:
    """Return a request for texts, with the fields of ``changes``."""
    return Request(Text("which animal"), tuple(Candidate(Text(text)) for text in texts), **changes)


def scored_by(order: str, model: str = "scripted", **changes: Any) -> ScriptedStage:
    """Return a stage that orders texts by their first letter as ``order`` has them, best first."""
    return ScriptedStage(lambda query, text: -float(order.index(text[0])), fingerprint=fingerprint(model), **changes)


def _stages(small: Stage | None, large: Stage | None) -> dict[StageName, Stage]:
    named = {StageName.SMALL: small, StageName.LARGE: large}
    return {name: stage for name, stage in named.items() if stage is not None}


@dataclass
class Pair:
    """A stable and a candidate release of one stage or two each, and the runner between them.

    ``small`` and ``large`` are the stable release's stages, ``tried`` the candidate's small one; it has no large one.
    ``rules`` are changes of ``ShadowRules``; by default every request is in the sample. ``assigned`` is how requests
    come to the stable release.
    """

    small: Stage = field(default_factory=lambda: scored_by("abcde", "small"))
    large: Stage | None = None
    tried: Stage = field(default_factory=lambda: scored_by("abcde", "tried"))
    rules: Mapping[str, Any] = field(default_factory=dict)
    top_m: int = 2
    candidate: Mapping[str, Any] = field(default_factory=dict)
    assigned: Assignment = field(default_factory=Assignment)
    is_paused: bool = False
    has_shadow: bool = True
    losses: list[float] = field(default_factory=list)
    outcomes: Counter[ShadowOutcome] = field(default_factory=Counter)
    faults: list[BaseException] = field(default_factory=list)
    recorded: Kept = field(default_factory=Kept)
    shadows: Kept = field(default_factory=Kept)
    observe: Callable[[float], None] | None = None

    def open(self) -> None:
        """Build both pipelines and the runner on the running loop."""
        ids = itertools.count()
        self.tap = Tap()
        escalation = "none" if self.large is None else {"kind": "static", "top_m": self.top_m}
        self.stable = self._pipeline(
            {"escalation": escalation}, _stages(self.small, self.large), self.recorded, Arm.STABLE, ids, tap=self.tap
        )
        tried = {"release": "r2", "escalation": "none", **self.candidate}
        self.tried_pipeline = self._pipeline(tried, _stages(self.tried, None), self.shadows, Arm.CANARY, ids)
        self.runner = ShadowRunner(
            ShadowRules(**{"share": 1.0, **self.rules}),
            stable=lambda: self.stable,
            candidate=lambda: self.tried_pipeline,
            salt="sha256:candidate",
            clock=asyncio.get_running_loop().time,
            paused=lambda: self.is_paused,
            observe_pair=self.observe or self.losses.append,
            count=lambda outcome: self.outcomes.update([outcome]),
            count_fault=self.faults.append,
        )
        if self.has_shadow:
            self.tap.offer = self.runner.offer

    def _pipeline(
        self,
        changes: Mapping[str, Any],
        stages: Mapping[StageName, Stage],
        kept: Kept,
        arm: Arm,
        ids: itertools.count[int],
        tap: Tap | None = None,
    ) -> Pipeline:
        data = release_data(**changes)
        data["stages"] = {str(name): data["stages"][name] for name in stages}
        return Pipeline(
            parse_release(data),
            stages,
            clock=asyncio.get_running_loop().time,
            new_id=lambda: f"id-{next(ids)}",
            hash_query=lambda query: "ab12" * 4,
            count_fault=self.faults.append,
            recorder=kept,
            arm=arm,
            tap=tap,
        )

    async def answer(self, request: Request | None = None) -> Ranking:
        """Have the stable release answer."""
        return await self.stable.rerank(request or asked(), assigned=self.assigned)

    async def settled(self, seconds: float = 10.0) -> None:
        """Let time pass in which all that was taken ends."""
        await asyncio.sleep(seconds)
        assert (self.runner.in_flight, self.runner.waiting, self.runner.held_bytes) == (0, 0, 0)
