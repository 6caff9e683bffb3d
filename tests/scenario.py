"""One request with everything around it: written out or drawn, and played on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from cascade.decision import Ranking
from cascade.errors import (
    StageBreakerOpen,
    StageError,
    StageInvalidAnswer,
    StageOverloaded,
    StageRefused,
    StageTimeout,
    StageTooLate,
    StageUnreachable,
)
from cascade.pipeline import Pipeline
from cascade.policy.release import Release, parse_release
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Candidate, Request, ScoreSpace, StageName

__all__ = [
    "STAGE_ERRORS",
    "Played",
    "Scenario",
    "Script",
    "expected_order",
    "play",
    "release_data",
    "scenarios",
]

STAGE_ERRORS: tuple[type[StageError], ...] = (
    StageTimeout,
    StageUnreachable,
    StageOverloaded,
    StageRefused,
    StageInvalidAnswer,
    StageBreakerOpen,
    StageTooLate,
)
_TEXTS = ("ant", "bee", "cat", "dog", "eel", "fox", "", " \t")


def release_data(**changes: Any) -> dict[str, Any]:
    """Return a small valid release as plain data, with the top-level keys of ``changes`` put in."""
    server = {"adapter": "tei", "url": "http://stage.example", "model": "m", "engine": "tei/1.9"}
    data: dict[str, Any] = {
        "release": "r1",
        "stages": {"small": dict(server), "large": dict(server)},
        "depth": 50,
        "escalation": {"kind": "static", "top_m": 20},
        "budgets": {"total_ms": 100, "small_ms": 40, "large_ms": 60, "reserve_ms": 10},
    }
    return data | changes


@dataclass(frozen=True)
class Script:
    """How one stage behaves. A text without a score of its own gets 0."""

    scores: Mapping[str, float] = field(default_factory=dict)
    delay_ms: float = 0.0
    fails: type[StageError] | Exception | None = None
    refused: frozenset[str] = frozenset()
    space: ScoreSpace = ScoreSpace.LOGIT

    def stage(self) -> ScriptedStage:
        """Return a stage that keeps to the script."""
        return ScriptedStage(
            lambda query, text: self.scores.get(text, 0.0),
            delay_ms=self.delay_ms,
            fails=self.fails,
            refuses=lambda text: text in self.refused,
            space=self.space,
        )

    def scores_of(self, texts: Sequence[str], indices: Sequence[int]) -> dict[int, float]:
        """Return what the stage scores of ``indices``: neither blank nor refused documents."""
        kept = [i for i in indices if texts[i].strip() and texts[i] not in self.refused]
        return {i: self.scores.get(texts[i], 0.0) for i in kept}


@dataclass(frozen=True)
class Scenario:
    """A request, a release and two stages; a stage that is None is not in the release."""

    texts: tuple[str, ...]
    small: Script | None = Script()
    large: Script | None = Script()
    depth: int = 50
    top_m: int = 20
    max_candidates: int = 200
    total_ms: float = 100.0
    small_ms: float = 40.0
    large_ms: float = 60.0
    reserve_ms: float = 10.0
    deadline_ms: float | None = None
    top_n: int | None = None
    fail_closed: bool = False
    fallback: str = "original-order"
    query: str = "which animal"

    @property
    def asked_ms(self) -> float:
        """Return the deadline that holds: the caller's, else the release's."""
        return self.total_ms if self.deadline_ms is None else self.deadline_ms

    def release(self) -> Release:
        """Return the release of this scenario."""
        data = release_data()
        for name, script in (("small", self.small), ("large", self.large)):
            if script is None:
                del data["stages"][name]
        data["depth"] = self.depth
        data["escalation"] = {"kind": "static", "top_m": self.top_m} if self.large is not None else "none"
        data["budgets"] = {
            "total_ms": self.total_ms,
            "small_ms": self.small_ms,
            "large_ms": self.large_ms,
            "reserve_ms": self.reserve_ms,
        }
        data["limits"] = {"max_candidates": self.max_candidates}
        data["fallback"] = self.fallback
        return parse_release(data)

    def request(self) -> Request:
        """Return the request of this scenario; candidate ``i`` has id ``d<i>``."""
        return Request(
            query=Text(self.query),
            candidates=tuple(Candidate(Text(text), f"d{i}") for i, text in enumerate(self.texts)),
            top_n=self.top_n,
            deadline_ms=self.deadline_ms,
            fail_closed=self.fail_closed,
        )


@dataclass(frozen=True)
class Played:
    """What came of a scenario. ``took_ms`` is virtual; ``left_behind`` counts tasks that outlived the answer."""

    ranking: Ranking
    took_ms: float
    stages: Mapping[StageName, ScriptedStage]
    faults: Sequence[BaseException]
    left_behind: int

    @property
    def order(self) -> list[int]:
        """Return the indices answered, best first."""
        return [item.index for item in self.ranking.results]


def play(
    scenario: Scenario,
    *,
    stages: Mapping[StageName, ScriptedStage] | None = None,
    waited_ms: float = 0.0,
    hash_query: Callable[[str], str] = lambda query: "hash",
) -> Played:
    """Answer the scenario's request; ``waited_ms`` passed between its arrival and the pipeline.

    ``stages`` stand in for the scripted ones. Raises what the pipeline raises.
    """
    scripts = {StageName.SMALL: scenario.small, StageName.LARGE: scenario.large}
    used = stages or {name: script.stage() for name, script in scripts.items() if script is not None}
    faults: list[BaseException] = []

    async def answer() -> Played:
        loop = asyncio.get_running_loop()
        pipeline = Pipeline(
            scenario.release(),
            used,
            clock=loop.time,
            new_id=lambda: "id-1",
            hash_query=hash_query,
            count_fault=faults.append,
        )
        arrived = loop.time()
        await asyncio.sleep(waited_ms / 1000)
        ranking = await pipeline.rerank(scenario.request(), arrived=arrived if waited_ms else None)
        took_ms = (loop.time() - arrived) * 1000
        return Played(ranking, took_ms, used, faults, len(asyncio.all_tasks()) - 1)

    return run_virtual(answer())


def _spaced_scores(space: ScoreSpace) -> st.SearchStrategy[float]:
    """Draw few different scores, so that ties are common. All are multiples of 1/16: sums of them are exact."""
    match space:
        case ScoreSpace.LOGIT:
            return st.integers(-80, 80).map(lambda number: number / 4)
        case ScoreSpace.PROBABILITY | ScoreSpace.RANK:
            return st.integers(0, 16).map(lambda number: number / 16)
        case ScoreSpace.COSINE:
            return st.integers(-16, 16).map(lambda number: number / 16)


@st.composite
def _scripts(draw: st.DrawFn, delays: st.SearchStrategy[float], *, healthy: bool) -> Script:
    space = draw(st.sampled_from([space for space in ScoreSpace if space is not ScoreSpace.RANK]))
    failures = st.sampled_from((None, None, *STAGE_ERRORS, ValueError("a fault"), KeyError("a fault")))
    return Script(
        scores=draw(st.dictionaries(st.sampled_from(_TEXTS), _spaced_scores(space))),
        delay_ms=0.0 if healthy else draw(delays),
        fails=None if healthy else draw(failures),
        refused=draw(st.frozensets(st.sampled_from(_TEXTS), max_size=3)),
        space=space,
    )


@st.composite
def scenarios(draw: st.DrawFn, *, healthy: bool = False, whole: bool = False) -> Scenario:
    """Draw a scenario. ``healthy``: stages answer at once; ``whole``: the answer is not cut to a ``top_n``.

    Budgets are whole milliseconds and delays are not, so that no two things happen at the same moment.
    """
    texts = tuple(draw(st.lists(st.sampled_from(_TEXTS), min_size=1, max_size=14)))
    small_delays = st.integers(0, 120).map(lambda number: number + 0.25)
    large_delays = st.integers(0, 120).map(lambda number: number + 0.5)
    total_ms = draw(st.integers(21, 150))
    return Scenario(
        texts=texts,
        small=draw(st.none() | _scripts(small_delays, healthy=healthy)),
        large=draw(st.none() | _scripts(large_delays, healthy=healthy)),
        depth=draw(st.integers(0, 16)),
        top_m=draw(st.integers(0, 16)),
        max_candidates=draw(st.integers(1, 16)),
        total_ms=total_ms,
        small_ms=draw(st.integers(1, 120)),
        large_ms=draw(st.integers(1, 120)),
        reserve_ms=2 * draw(st.integers(0, 10)),
        deadline_ms=None if healthy else draw(st.none() | st.integers(0, 150)),
        top_n=None if whole else draw(st.none() | st.integers(1, 16)),
    )


def expected_order(scenario: Scenario, small: Mapping[int, float], large: Mapping[int, float]) -> list[int]:
    """Return the order that the scores of two rounds make, from the words of the contract alone."""

    def place(index: int) -> tuple[int, float]:
        if index in large:
            return 0, -large[index]
        return (1, -small[index]) if index in small else (2, 0.0)

    return sorted(range(len(scenario.texts)), key=place)[: scenario.top_n]
