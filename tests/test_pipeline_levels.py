"""A pipeline at a load level."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.decision import DegradedReason, Level, Ranking
from cascade.pipeline import Pipeline
from cascade.policy.levels import at_level
from cascade.policy.release import Release, parse_release
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Candidate, Request, StageName
from tests.scenario import release_data

_LEVELS: Final[list[dict[str, Any]]] = [
    {"name": "normal"},
    {"name": "fewer", "escalation": {"kind": "static", "top_m": 2}},
    {"name": "small", "escalation": "none"},
    {"name": "shallow", "depth": 3, "escalation": "none"},
    {"name": "nothing", "stages": "none"},
]
_RELEASE: Final = parse_release(release_data(levels=_LEVELS, depth=10, escalation={"kind": "static", "top_m": 5}))


def _answered(release: Release, scores: Mapping[StageName, list[float]], level: str | None, fails: bool) -> Ranking:
    def scorer(values: list[float]) -> Any:
        return lambda _, text: values[int(text)]

    async def answer() -> Ranking:
        stages = {
            name: ScriptedStage(scorer(values), delay_ms=60.0 if fails and name is StageName.LARGE else 0.0)
            for name, values in scores.items()
        }
        pipeline = Pipeline(
            release,
            stages,
            level=level,
            clock=asyncio.get_running_loop().time,
            new_id=lambda: "id",
            hash_query=lambda _: "hash",
            count_fault=lambda _: None,
        )
        candidates = tuple(Candidate(Text(str(number))) for number in range(len(scores[StageName.SMALL])))
        return await pipeline.rerank(Request(Text("query"), candidates))

    return run_virtual(answer())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(-8, 8), st.integers(-8, 8)), min_size=1, max_size=12),
    st.sampled_from([level["name"] for level in _LEVELS]),
    st.booleans(),
)
def test_a_level_answers_as_the_release_that_it_is(pairs: list[tuple[int, int]], name: str, fails: bool) -> None:
    """Order, scores, rounds and reasons are those of the whole release; the level and its own reason come on top."""
    scores = {
        StageName.SMALL: [float(small) for small, _ in pairs],
        StageName.LARGE: [float(large) for _, large in pairs],
    }
    whole = at_level(_RELEASE, name)
    asked = {StageName.SMALL: whole.stages.small, StageName.LARGE: whole.stages.large}
    at = _answered(_RELEASE, scores, name, fails)
    alone = _answered(whole, scores, None, fails)
    assert at.results == alone.results
    assert at.decision.rounds == alone.decision.rounds
    assert all(asked[item.stage] is not None for item in at.decision.rounds)
    assert at.decision.level == Level(name, [level["name"] for level in _LEVELS].index(name))
    expected = list(alone.decision.degraded)
    reasons = [each for each in at.decision.degraded if each is not DegradedReason.LOAD_LEVEL]
    assert reasons == expected
    assert (name == "normal") <= (DegradedReason.LOAD_LEVEL not in at.decision.degraded)
    if at.decision.rounds != _answered(_RELEASE, scores, None, fails).decision.rounds:
        assert DegradedReason.LOAD_LEVEL in at.decision.degraded


def test_a_pipeline_without_a_level_is_at_the_first() -> None:
    """And says so in its decisions."""
    ranking = _answered(_RELEASE, {StageName.SMALL: [1.0, 2.0], StageName.LARGE: [2.0, 1.0]}, None, False)
    assert ranking.decision.level == Level("normal", 0)
    assert ranking.decision.degraded == ()
