"""A candidate beside the answers: it changes none of them, is bounded, and tells by how much it is worse."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from cascade.decision import Ranking
from cascade.errors import StageOverloaded, StageUnreachable
from cascade.guard.events import Guarded
from cascade.rollout.shadow.sampling import is_shadowed
from cascade.telemetry.records import Assignment
from cascade.testing.clock import run_virtual
from cascade.types import Arm, BreakerState, Request, StageName
from tests.cache.arrange import arranged
from tests.recorded import Kept

from .shadows import ANIMALS, Pair, asked, scored_by

_K = {1: 1.0, 2: 1 / math.log2(3), 3: 0.5, 4: 1 / math.log2(5), 5: 1 / math.log2(6)}


def _dcg(ranks: list[int]) -> float:
    """Return the DCG of silver gains: the document of large rank r gains 1 / r."""
    return sum(_K[place] / rank for place, rank in enumerate(ranks, 1))


def _played(pair: Pair, *requests: Any) -> list[Ranking]:
    """Answer requests one after another, and let what was taken end."""

    async def play() -> list[Ranking]:
        pair.open()
        answers = [await pair.answer(request) for request in requests or (asked(),)]
        await pair.settled()
        return answers

    return run_virtual(play())


def test_a_pair_is_judged_by_the_stable_large_stage_over_the_whole_depth() -> None:
    """The stable order is b a | c d e, the candidate's e d c b a, the large one b a c d e: worked out by hand."""
    large = scored_by("bacde", "large")
    pair = Pair(large=large, tried=scored_by("edcba", "tried"))
    _played(pair)
    ideal = _dcg([1, 2, 3, 4, 5])
    assert pair.losses == [pytest.approx((ideal - _dcg([5, 4, 3, 1, 2])) / ideal)]
    assert pair.outcomes == {"compared": 1}
    assert large.calls[0] == ["ant", "bee"]
    assert [text for call in large.calls[1:] for text in call] == list(ANIMALS)


def test_the_judge_scores_anew_what_is_kept_of_the_answer() -> None:
    """By kept scores the stable order would be judged by its own noise: each call of this stage turns two documents around."""
    turns = itertools.count()
    large = scored_by("abcde")
    large.score_of = lambda query, text: -float(("abcde", "bacde")[(next(turns) // 5) % 2].index(text[0]))
    kept = arranged(large)
    pair = Pair(large=kept.stage, top_m=5, tried=scored_by("bacde", "tried"))
    _played(pair)
    assert [text for call in large.calls for text in call] == [*ANIMALS, *ANIMALS]
    ideal = _dcg([1, 2, 3, 4, 5])
    assert pair.losses == [pytest.approx((_dcg([2, 1, 3, 4, 5]) - ideal) / ideal)]


def test_an_identical_release_loses_nothing() -> None:
    """The same stages in the same order: 0, to the bit."""
    pair = Pair(large=scored_by("edcba"), top_m=0, tried=scored_by("abcde"))
    _played(pair)
    assert pair.losses == [0.0]


def test_a_better_release_has_a_negative_loss() -> None:
    """Below zero is better, so that a mean over pairs can settle at nought."""
    pair = Pair(large=scored_by("edcba"), top_m=0, tried=scored_by("edcba"))
    _played(pair)
    ideal = _dcg([1, 2, 3, 4, 5])
    assert pair.losses == [pytest.approx((_dcg([5, 4, 3, 2, 1]) - ideal) / ideal)]


def test_what_the_caller_saw_is_what_counts() -> None:
    """A caller who asked for one document: nDCG@1 of the orders, 1 - 1/5."""
    pair = Pair(large=scored_by("abcde"), top_m=0, tried=scored_by("edcba"))
    _played(pair, asked(top_n=1))
    assert pair.losses == [pytest.approx(1 - 1 / 5)]


def test_h4_the_shadow_is_of_the_candidate_and_tagged_so() -> None:
    """Its decision names the candidate's release, its model and its arm, and the decision that it shadows."""
    pair = Pair(large=scored_by("abcde"), rules={"share": 0.999999}, assigned=Assignment(0.75))
    (answer,) = _played(pair)
    (shadow,) = pair.shadows.decided
    (stable,) = pair.recorded.decided
    assert answer.decision.arm is stable.decision.arm is Arm.STABLE
    assert (shadow.decision.arm, shadow.decision.release) == (Arm.SHADOW, "r2")
    assert [item.model for item in shadow.decision.rounds] == ["tried"]
    assert shadow.decision.id == f"{answer.decision.id}-shadow"
    assert shadow.assigned.of == answer.decision.id == stable.decision.id
    assert (stable.assigned.probability, shadow.assigned.probability) == (0.75, 0.75 * 0.999999)
    assert shadow.request.query == asked().query


def test_h4_the_shadow_has_time_of_its_own_and_no_error_to_give() -> None:
    """The caller's deadline, and a candidate that answers with errors, are none of its business."""
    pair = Pair(
        large=scored_by("abcde"),
        tried=scored_by("abcde", delay_ms=400.0),
        candidate={"fallback": "error"},
        rules={"max_ms": 1000.0},
    )
    _played(pair, asked(deadline_ms=80.0, fail_closed=True))
    (shadow,) = pair.shadows.decided
    assert (shadow.decision.degraded, shadow.decision.deadline_ms) == ((), 1000.0)
    assert pair.outcomes == {"compared": 1}


@pytest.mark.parametrize("delay_ms", [0.0, 1e9])
def test_answers_are_the_same_with_a_shadow_as_without(delay_ms: float) -> None:
    """Byte for byte, their times too, also where the candidate's stage hangs for ever."""
    requests = [asked(ANIMALS[: 2 + number % 4], top_n=1 + number % 3) for number in range(20)]
    large = scored_by("cabde", delay_ms=7.5)
    without = _played(Pair(large=large, small=scored_by("edcba", delay_ms=3.5), has_shadow=False), *requests)
    pair = Pair(
        large=scored_by("cabde", delay_ms=7.5),
        small=scored_by("edcba", delay_ms=3.5),
        tried=scored_by("abcde", delay_ms=delay_ms),
    )
    assert _played(pair, *requests) == without
    assert pair.outcomes.total() == 20


def test_a_candidate_that_hangs_costs_its_slots_and_no_more() -> None:
    """Two are under way for a second each, three wait, the rest is dropped; nothing is made up of them."""
    pair = Pair(tried=scored_by("abcde", delay_ms=1e9), rules={"in_flight": 2, "queue": 3, "max_ms": 1000.0})
    _played(pair, *[asked() for _ in range(10)])
    assert pair.outcomes == {"candidate_degraded": 5, "queue_full": 5}
    assert pair.losses == []


def test_a_burst_stays_within_the_bounds() -> None:
    """At no moment are more under way or waiting, or more bytes held, than the rules say; each of the sample is counted."""
    request = asked([letter * 5000 for letter in "abcde"])
    rules = {"in_flight": 3, "queue": 50, "max_bytes": 10 * 27_000, "max_ms": 5000.0}
    pair = Pair(large=scored_by("abcde"), tried=scored_by("abcde", delay_ms=100.0), rules=rules)
    seen: list[tuple[int, int, int]] = []

    async def play() -> None:
        pair.open()
        for _ in range(40):
            await pair.answer(request)
            await asyncio.sleep(0)
            seen.append((pair.runner.in_flight, pair.runner.waiting, pair.runner.held_bytes))
        await pair.settled()

    run_virtual(play())
    assert max(in_flight for in_flight, _, _ in seen) == 3
    assert max(held for _, _, held in seen) <= 270_000
    assert max(waiting for _, waiting, _ in seen) == 7
    assert pair.outcomes == {"compared": 10, "bytes_full": 30}


def test_wide_characters_count_with_the_memory_that_they_take() -> None:
    """An emoji in a text makes every character of it four bytes."""
    pair = Pair(rules={"max_bytes": 30_000})
    _played(pair, asked(["a" * 20_000]), asked(["a" * 20_000 + "\N{SLOTH}"]))
    assert pair.outcomes == {"no_large_stage": 1, "bytes_full": 1}


def test_nothing_begins_under_load() -> None:
    """It is the first thing to go: what comes is dropped, and so is what waits and what is between two stages."""
    tried = scored_by("abcde", delay_ms=100.0)
    pair = Pair(large=scored_by("abcde"), tried=tried, rules={"in_flight": 1})

    async def play() -> None:
        pair.open()
        await pair.answer()
        await pair.answer()
        await asyncio.sleep(0.05)
        pair.is_paused = True
        await pair.answer()
        await pair.settled()

    run_virtual(play())
    assert pair.outcomes == {"paused": 3}
    assert len(tried.calls) == 2  # the five documents of the first, part by part
    assert pair.losses == []


def test_closing_cancels_everything_within_a_turn() -> None:
    """What hangs is cancelled, what waits is let go, what comes is not taken, and no task is left."""
    tried = scored_by("abcde", delay_ms=1e9)
    pair = Pair(tried=tried, rules={"in_flight": 2})

    async def play() -> float:
        pair.open()
        for _ in range(5):
            await pair.answer()
        await asyncio.sleep(0.001)
        began = asyncio.get_running_loop().time()
        await pair.answer()  # its offer is looked at after the close began
        await pair.runner.aclose()
        await pair.answer()
        assert (pair.runner.in_flight, pair.runner.waiting, pair.runner.held_bytes) == (0, 0, 0)
        assert len(asyncio.all_tasks()) == 1
        return asyncio.get_running_loop().time() - began

    assert run_virtual(play()) == 0.0
    assert tried.cancelled == 1  # the other waited for its turn at the stage
    assert pair.outcomes == {"closed": 6}


@pytest.mark.parametrize("share", [0.05, 0.4])
def test_the_sample_has_the_share_that_is_asked_for(share: float) -> None:
    """Within three standard errors, of ten thousand decisions; another candidate has another sample."""
    ids = [f"{number:032x}" for number in range(10_000)]
    one, other = ({each for each in ids if is_shadowed(each, salt, share)} for salt in ("sha256:1", "sha256:2"))
    error = math.sqrt(share * (1 - share) / len(ids))
    assert abs(len(one) / len(ids) - share) < 3 * error
    assert abs(len(one & other) / len(ids) - share**2) < 3 * math.sqrt(share**2 * (1 - share**2) / len(ids))


def test_a_share_of_nought_takes_none_and_of_one_takes_all() -> None:
    """Zero is a share like another."""
    ids = [f"{number:032x}" for number in range(1000)]
    assert not any(is_shadowed(each, "s", 0.0) for each in ids)
    assert all(is_shadowed(each, "s", 1.0) for each in ids)
    pair = Pair(rules={"share": 0.0})
    _played(pair)
    assert pair.outcomes == {}


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "no_large_stage"),
        ({"large": scored_by("abcde", is_listwise=True)}, "no_large_stage"),
        ({"small": scored_by("abcde", fails=StageOverloaded)}, "stable_degraded"),
        ({"large": scored_by("abcde"), "tried": scored_by("abcde", fails=StageUnreachable)}, "candidate_degraded"),
        ({"large": scored_by("abcde"), "tried": scored_by("abcde", fails=ValueError("x"))}, "candidate_degraded"),
        ({"large": scored_by("abcde", fails=StageOverloaded), "top_m": 0}, "silver_failed"),
        ({"large": scored_by("abcde", refuses=lambda text: text == "eel"), "top_m": 0}, "silver_excluded"),
        ({"large": scored_by("edcba"), "top_m": 0}, "compared"),
    ],
)
def test_a_loss_that_is_not_known_is_left_out_and_counted(changes: dict[str, Any], outcome: str) -> None:
    """Each of the sample is counted once, by why it tells nothing."""
    pair = Pair(**changes)
    _played(pair)
    assert pair.outcomes == {outcome: 1}
    assert len(pair.losses) == (outcome == "compared")


def test_scores_that_tie_at_the_head_are_left_out() -> None:
    """Two copies of one document score alike."""
    pair = Pair(large=scored_by("abcde"), top_m=0)
    _played(pair, asked(["ant", "bee", "ant"]))
    assert (pair.outcomes, pair.losses) == ({"silver_tied": 1}, [])


def test_silver_that_takes_too_long_is_given_up() -> None:
    """The time of a pair is one for both: what the candidate leaves of it."""
    pair = Pair(large=scored_by("abcde", delay_ms=900.0), top_m=0, rules={"max_ms": 1000.0})
    _played(pair)
    assert (pair.outcomes, pair.losses) == ({"timed_out": 1}, [])


def test_what_waits_for_its_turn_ends_with_its_time() -> None:
    """Rounds of one kind wait for each other at a stage inside the sidecar, no longer than they have."""
    large = scored_by("abcde", delay_ms=400.0)
    pair = Pair(large=large, top_m=0, rules={"max_ms": 1000.0})
    _played(pair, asked(), asked())
    assert pair.outcomes == {"compared": 1, "timed_out": 1}


def test_a_fault_of_ours_ends_the_pair_and_nothing_else() -> None:
    """Who is told of a loss may fail: it is counted, and the next pair goes on."""

    def fails(loss: float) -> None:
        raise ValueError("who listens")

    pair = Pair(large=scored_by("abcde"), observe=fails)
    answers = _played(pair, asked(), asked())
    assert len(answers) == 2
    assert pair.outcomes == {"fault": 2}
    assert [str(fault) for fault in pair.faults] == ["who listens"] * 2


def test_an_offer_that_fails_costs_no_answer() -> None:
    """It stands before the answer leaves, and is a boundary of its own."""
    pair = Pair()

    async def play() -> Ranking:
        pair.open()

        def fails(request: Request, ranking: Ranking, assigned: Assignment) -> None:
            raise ValueError("offer")

        pair.tap.offer = fails
        return await pair.answer()

    assert run_virtual(play()).results
    assert [str(fault) for fault in pair.faults] == ["offer"]


def test_a_candidate_in_mode_observe_is_recorded_without_anything_beside_it() -> None:
    """Nobody waits for it already; a round of its small stage beside it would be beside what is beside."""
    both = {StageName.SMALL: scored_by("abcde"), StageName.LARGE: scored_by("edcba", "large-2")}
    pair = Pair(large=scored_by("abcde"))

    async def play() -> None:
        pair.open()
        data = {"mode": "observe", "release": "r2"}
        pair.tried_pipeline = pair._pipeline(data, both, pair.shadows, Arm.CANARY, iter(()))  # type: ignore[arg-type]
        await pair.answer()
        await pair.settled()

    run_virtual(play())
    (shadow,) = pair.shadows.decided
    assert (shadow.beside, shadow.dropped, shadow.decision.arm) == (None, False, Arm.SHADOW)
    assert both[StageName.SMALL].calls == []
    assert pair.outcomes == {"compared": 1}


@pytest.mark.parametrize("state", [BreakerState.OPEN, BreakerState.HALF_OPEN])
def test_a_server_that_is_left_alone_is_not_asked_beside(state: BreakerState) -> None:
    """Its few trial rounds are for requests that somebody waits for."""
    tried = scored_by("abcde", guarded=Guarded(state, 64, 1000, 0, 0, 0))
    pair = Pair(large=scored_by("abcde"), tried=tried)
    _played(pair)
    assert pair.outcomes == {"candidate_degraded": 1}
    assert tried.calls == []


def test_both_decisions_are_in_the_records_or_neither() -> None:
    """The sample of the records is by query: a query that is not kept is not kept of the shadow either."""
    pair = Pair(recorded=Kept(sampled=False), shadows=Kept(sampled=False))
    _played(pair)
    assert (pair.recorded.decided, pair.shadows.decided) == ([], [])


def test_a_request_keeps_its_first_stage_scores_and_instruction() -> None:
    """The candidate decides by all that the stable release had to decide by."""
    pair = Pair()
    request = asked()
    channels = tuple(replace(each, scores={"bm25": 1.0}) for each in request.candidates)
    _played(pair, replace(request, candidates=channels))
    (shadow,) = pair.shadows.decided
    assert shadow.request.candidates == channels
