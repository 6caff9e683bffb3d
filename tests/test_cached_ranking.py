"""With a cache every ranking is what it is without one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.cache.stage import CachedStage
from cascade.decision import Ranking
from cascade.errors import StageInvalidAnswer
from cascade.pipeline import Pipeline
from cascade.policy.release import parse_release
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Arm, Candidate, Request, StageName
from tests.cache.arrange import RefusesAlone, cache_of, spec_of
from tests.scenario import release_data

_DOCUMENTS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "", " \t")
_QUERIES = ("first", "second")
_STAGES = (StageName.SMALL, StageName.LARGE)

_requests = st.builds(
    lambda query, texts, tenant, top_n: Request(
        Text(query), tuple(Candidate(Text(text)) for text in texts), tenant=tenant, top_n=top_n
    ),
    st.sampled_from(_QUERIES),
    st.lists(st.sampled_from(_DOCUMENTS), min_size=1, max_size=8),
    st.sampled_from((None, "acme")),
    st.none() | st.integers(1, 8),
)
_faults = st.sampled_from((None, None, None, "small", "large"))
_scores = st.dictionaries(
    st.tuples(st.sampled_from(_QUERIES), st.sampled_from(_DOCUMENTS)), st.floats(-5, 5), min_size=4
)


def _stages(scores: Mapping[tuple[str, str], float], refused: str, *, listwise: bool) -> dict[StageName, ScriptedStage]:
    def score_of(sign: float) -> ScriptedStage:
        return RefusesAlone(
            lambda query, text: sign * scores.get((query, text), float(len(text))),
            refuses=lambda text: text == refused,
            is_listwise=listwise,
        )

    made = {StageName.SMALL: score_of(1.0), StageName.LARGE: score_of(-1.0)}
    return {name: replace(stage, fingerprint=replace(stage.fingerprint, model=name)) for name, stage in made.items()}


async def _answers(
    requests: Sequence[tuple[Request, str | None]],
    stages: Mapping[StageName, ScriptedStage],
    *,
    cached: bool,
    together: bool = False,
) -> list[Ranking]:
    """Answer requests in turn, or all at once, each with the stage failing that stands beside it."""
    cache = cache_of()
    asked = {
        name: CachedStage(stage, spec_of(model=name), cache, name, Arm.STABLE) if cached else stage
        for name, stage in stages.items()
    }
    release = parse_release(release_data(depth=6, escalation={"kind": "static", "top_m": 4}))
    pipeline = Pipeline(
        release,
        asked,
        clock=asyncio.get_running_loop().time,
        new_id=lambda: "id",
        hash_query=lambda query: "hash",
        count_fault=_raise,
    )
    if together:
        return list(await asyncio.gather(*(pipeline.rerank(request) for request, _ in requests)))
    told = []
    for request, failing in requests:
        for name, stage in stages.items():
            stage.fails = StageInvalidAnswer if name == failing else None
        told.append(await pipeline.rerank(request))
    return told


def _raise(error: BaseException) -> None:
    raise error


def _results(rankings: Sequence[Ranking]) -> list[object]:
    """Return what callers see: the order, the scores, the stage of each place, and what was excluded."""
    return [(ranking.results, ranking.decision.excluded) for ranking in rankings]


@settings(deadline=None, max_examples=100)
@given(st.lists(_requests, min_size=1, max_size=6), _scores, st.sampled_from(("ant", "none")), st.booleans())
def test_inv2_a_ranking_with_a_cache_is_the_ranking_without(
    requests: list[Request], scores: dict[tuple[str, str], float], refused: str, listwise: bool
) -> None:
    """Whatever was asked before, in whatever order, listwise or not: the same orders, scores and exclusions."""
    pairs = [(request, None) for request in requests]
    plain = run_virtual(_answers(pairs, _stages(scores, refused, listwise=listwise), cached=False))
    kept = _stages(scores, refused, listwise=listwise)
    assert _results(run_virtual(_answers(pairs, kept, cached=True))) == _results(plain)
    together = run_virtual(_answers(pairs, kept, cached=True, together=True))
    assert _results(together) == _results(plain)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(_requests, _faults), min_size=2, max_size=8), _scores)
def test_inv2_a_stage_that_fails_leaves_a_ranking_without_it_or_the_whole_one(
    requests: list[tuple[Request, str | None]], scores: dict[tuple[str, str], float]
) -> None:
    """Where all of a round is kept the answer is that of a healthy stage, else that of a failing one: never part of it."""
    failing = _results(run_virtual(_answers(requests, _stages(scores, "none", listwise=False), cached=False)))
    well = [(request, None) for request, _ in requests]
    healthy = _results(run_virtual(_answers(well, _stages(scores, "none", listwise=False), cached=False)))
    told = run_virtual(_answers(requests, _stages(scores, "none", listwise=False), cached=True))
    for ranking, result, without, whole in zip(told, _results(told), failing, healthy, strict=True):
        if ranking.decision.degraded:
            assert result == without
        else:
            assert result == whole


@settings(deadline=None, max_examples=50)
@given(st.lists(_requests, min_size=1, max_size=5), _scores)
def test_a_request_that_comes_again_costs_nothing(
    requests: list[Request], scores: dict[tuple[str, str], float]
) -> None:
    """Whatever else was asked in between, what was scored is not sent again."""
    stages = _stages(scores, "none", listwise=False)
    told = run_virtual(_answers([(request, None) for request in requests * 2], stages, cached=True))
    for ranking in told[len(requests) :]:
        for item in ranking.decision.rounds:
            assert item.cost is not None
            assert item.left == item.pairs == 0
            assert item.cost.cached == item.scored
            assert not (item.scored and item.cost.tokens)
