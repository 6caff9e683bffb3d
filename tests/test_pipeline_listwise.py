"""A large stage that orders the small stage's best: what it is shown, what becomes of its order, and of its silence."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.decision import Action, DegradedReason, Ranking
from cascade.errors import ConfigError, StageInvalidAnswer
from cascade.pipeline import Pipeline
from cascade.policy.release import Release, parse_release
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Candidate, Request, ScoreSpace, StageName, StageScores
from tests.scenario import release_data

CHAT = {"adapter": "chat", "url": "http://chat.test", "model": "m", "engine": "vllm/0.32"}


@dataclass(slots=True)
class OrderingStage(ScriptedStage):
    """Order a list by a function, as a listwise stage does."""

    space: ScoreSpace = ScoreSpace.RANK
    is_listwise: bool = True

    async def score(self, *args: Any, **fields: Any) -> StageScores:
        scored = await ScriptedStage.score(self, *args, **fields)
        there = [place for place, score in enumerate(scored.scores) if score is not None]
        best_first = sorted(there, key=lambda place: -(scored.scores[place] or 0.0))
        ranks = {place: (len(there) - rank) / len(there) for rank, place in enumerate(best_first)}
        return replace(scored, scores=tuple(ranks.get(place) for place in range(len(scored.scores))))


def _release(top_m: int = 3, **changes: Any) -> Release:
    data = release_data(escalation={"kind": "static", "top_m": top_m}, **changes)
    data["stages"]["large"] = dict(CHAT)
    return parse_release(data)


def _rank(
    texts: list[str], small: Mapping[str, float], large: Mapping[str, float], top_m: int = 3, **stage: Any
) -> tuple[Ranking, OrderingStage]:
    """Rerank texts with scripted stages; return the answer and the large stage."""
    orders = OrderingStage(lambda query, text: large[text], **stage)

    async def play() -> Ranking:
        numbers = itertools.count()
        pipeline = Pipeline(
            _release(top_m),
            {StageName.SMALL: ScriptedStage(lambda query, text: small[text]), StageName.LARGE: orders},
            clock=asyncio.get_running_loop().time,
            new_id=lambda: f"d{next(numbers)}",
            hash_query=lambda query: "0" * 16,
            count_fault=lambda error: pytest.fail(repr(error)),
        )
        return await pipeline.rerank(Request(Text("q"), tuple(Candidate(Text(text)) for text in texts)))

    return run_virtual(play()), orders


SMALL = {"a": 1.0, "b": 4.0, "c": 2.0, "d": 3.0, "e": 0.0}
LARGE = {"a": 9.0, "b": 1.0, "c": 2.0, "d": 3.0, "e": 9.0}


def test_the_best_of_the_small_order_are_shown_best_first_in_one_call() -> None:
    """The order that a model is shown matters to it: it is the small stage's, not the first stage's."""
    ranking, large = _rank(list("abcde"), SMALL, LARGE)
    assert large.calls == [["b", "d", "c"]]
    assert [item.index for item in ranking.results] == [3, 2, 1, 0, 4]
    assert [item.stage for item in ranking.results] == [StageName.LARGE] * 3 + [StageName.SMALL] * 2
    assert ranking.decision.action is Action.STATIC


def test_scores_of_an_order_tell_the_rank_and_say_so() -> None:
    """(n - rank) / n over the whole answer: the small stage's scores would be scores of what stands below."""
    ranking, _ = _rank(list("abcde"), SMALL, LARGE)
    assert [item.score for item in ranking.results] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    assert ranking.decision.ranks_only
    assert ranking.decision.degraded == ()


def test_without_its_order_the_small_order_stands_with_its_scores_and_says_so() -> None:
    """A refused order falls back whole, and is marked."""
    ranking, _ = _rank(list("abcde"), SMALL, LARGE, fails=StageInvalidAnswer)
    assert [item.index for item in ranking.results] == [1, 3, 2, 0, 4]
    assert {item.stage for item in ranking.results} == {StageName.SMALL}
    assert ranking.decision.degraded == (DegradedReason.STAGE_INVALID_ANSWER,)
    assert not ranking.decision.ranks_only
    assert ranking.results[0].score == pytest.approx(0.982, abs=1e-3)


def test_what_was_mended_is_in_the_decision() -> None:
    """In the round's cost, and the answer is no less whole for it."""
    ranking, _ = _rank(list("abcde"), SMALL, LARGE, repaired=2)
    (small, large) = ranking.decision.rounds
    assert small.cost is not None
    assert large.cost is not None
    assert (small.cost.repaired, large.cost.repaired) == (0, 2)
    assert sorted(item.index for item in ranking.results) == list(range(5))


@given(
    texts=st.lists(st.sampled_from("abcde "), min_size=1, max_size=5),
    top_m=st.integers(1, 7),
    refuses=st.sampled_from("abcde"),
)
def test_every_answer_is_a_permutation_and_one_list_is_sent_where_there_is_one(
    texts: list[str], top_m: int, refuses: str
) -> None:
    """Doubled texts, blank ones, refused ones, more asked for than there are: each index once, in one call at most."""
    ranking, large = _rank(texts, SMALL, LARGE, top_m, refuses=lambda text: text == refuses)
    assert sorted(item.index for item in ranking.results) == list(range(len(texts)))
    there = len(texts) - texts.count(" ")
    assert len(large.calls) == (min(top_m, there or len(texts)) > 1)
    scores = [item.score for item in ranking.results]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)


@pytest.mark.parametrize(("texts", "top_m"), [(["a"], 3), (["a", "b"], 1), (["a", " ", " "], 3)])
def test_one_text_is_no_list_and_is_not_sent(texts: list[str], top_m: int) -> None:
    """Its order is known, so no generation is paid for; and the small stage's scores stand, which say more than a rank."""
    ranking, large = _rank(texts, SMALL, LARGE, top_m)
    assert large.calls == []
    assert {item.stage for item in ranking.results} <= {StageName.SMALL, StageName.RETRIEVAL}
    assert (ranking.decision.action, ranking.decision.escalated) == (Action.NONE, ())
    assert (ranking.decision.degraded, ranking.decision.ranks_only) == ((), False)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"stages": {"small": CHAT}, "escalation": "none"}, "only the large stage may"),
        ({"mode": "observe"}, "mode observe records scores"),
        (
            {"escalation": {"kind": "static-fused", "calibration": f"sha256:{'0' * 64}", "top_m": 5}},
            "calibrated on large",
        ),
        (
            {"escalation": {"kind": "calibrated", "calibration": f"sha256:{'0' * 64}", "price_per_pair": 0.1}},
            "calibrated on large",
        ),
    ],
)
def test_a_release_that_wants_scores_of_an_order_is_refused(changes: dict[str, Any], rule: str) -> None:
    """Calibration, observation and a small stage all read scores, and there are none."""
    data = release_data(**changes)
    if "large" in data["stages"]:
        data["stages"]["large"] = dict(CHAT)
    with pytest.raises(ConfigError, match=rule):
        parse_release(data)


def test_a_level_of_a_release_is_held_to_the_same() -> None:
    """A level may leave the order out, and may not calibrate it."""
    server = release_data()["stages"]["small"]
    fused = {"kind": "static-fused", "calibration": f"sha256:{'0' * 64}", "top_m": 5}
    both = {"small": server, "large": dict(CHAT)}
    parse_release(release_data(stages=both, levels=[{"name": "normal"}, {"name": "less", "escalation": "none"}]))
    with pytest.raises(ConfigError, match="level less"):
        parse_release(release_data(stages=both, levels=[{"name": "normal"}, {"name": "less", "escalation": fused}]))


def test_a_stage_that_scores_pairs_gives_no_ranks() -> None:
    """What is no order is not declared as one."""
    data = release_data()
    data["stages"]["large"]["score_space"] = "rank"
    with pytest.raises(ConfigError, match="rank is what a stage gives that orders whole lists"):
        parse_release(data)
