"""The soak's own arithmetic: which calls meet which fault, what is spoiled, and what is found wrong."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from evals.soak.answers import Answer, spoiled
from evals.soak.clients import Seen
from evals.soak.faults import ON_THE_WIRE, Deck, Fault, FaultKind
from evals.soak.process import Held, Insides, Stall, growth_mb
from evals.soak.requests import Asked, Judged, draw_request, judge, score_by
from evals.soak.verdict import Run, wrong_with

_SALTS = ("small", "large")
_SPOILED = [kind for kind in FaultKind if kind not in ON_THE_WIRE and not kind.startswith("leave")]
_SCORES = orjson.dumps([{"index": index, "score": 0.5} for index in range(4)])


def _deal(seed: str, calls: int) -> list[Fault | None]:
    deck = Deck(seed, share=0.25)
    return [deck.deal() for _ in range(calls)]


def test_the_same_seed_deals_the_same_faults_and_another_one_others() -> None:
    """What a call meets follows from the seed and its number alone."""
    assert _deal("1", 3000) == _deal("1", 3000) != _deal("2", 3000)


def test_every_kind_is_dealt_equally_often_beside_episodes_of_one_kind() -> None:
    """Without episodes the rarest kind is dealt once less than the commonest at most; with them 16 calls in a row fail."""
    deck = Deck("1", share=0.25, episode_calls=0)
    dealt = Counter(fault.kind for _ in range(4000) if (fault := deck.deal()) is not None)
    assert max(dealt.values()) - min(dealt.values()) <= 1
    assert len(dealt) == len(FaultKind) - 2
    kinds = "".join("." if fault is None else "x" for fault in _deal("1", 3000))
    assert kinds.count("x" * 16) >= 5


@pytest.mark.parametrize("kind", _SPOILED)
def test_what_is_done_to_an_answer_changes_it_in_every_form(kind: FaultKind) -> None:
    """No form of a fault leaves a whole answer as it was."""
    whole = Answer(200, _SCORES)
    changed = [spoiled(Fault(kind, variant, 0.5), whole, b"text") for variant in range(100)]
    assert whole not in changed


@pytest.mark.parametrize("kind", [FaultKind.TOO_FEW, FaultKind.TOO_MANY, FaultKind.TWICE, FaultKind.BAD_INDEX])
def test_scores_of_an_answer_with_a_bad_item_are_those_of_others(kind: FaultKind) -> None:
    """An order by any of them is wrong, so that one which was counted, or kept, is found."""
    whole = Answer(200, orjson.dumps([{"index": index, "score": float(index)} for index in range(4)]))
    items = orjson.loads(spoiled(Fault(kind, 1, 0.6), whole, b"text").body)
    right = {item["index"] for item in items if isinstance(item["index"], int) and item["score"] == item["index"]}
    assert right == set()
    assert len(items) >= 2


def _asked() -> Asked:
    drawn = random.Random(1)  # noqa: S311 - no secret
    return replace(draw_request(drawn), dialect="tei", texts=("d1 a", "", "d2 b", "d3 c"), top_n=None)


def _answer(order: Sequence[int], scores: Sequence[float] = (0.9, 0.8, 0.7, 0.6)) -> bytes:
    return orjson.dumps([{"index": index, "score": score} for index, score in zip(order, scores, strict=False)])


def _found(body: bytes, status: int = 200, stage: str = "small", degraded: str = "stage_timeout") -> tuple[str, ...]:
    headers = {"x-cascade-stage": stage, "x-cascade-degraded": degraded, "x-cascade-excluded": "1"}
    return judge(_asked(), status, headers, body, servers=_SALTS).breaches


def test_an_order_by_a_stage_s_scores_is_right_and_any_other_is_found() -> None:
    """What answers, its order and the reason must agree."""
    asked, score = _asked(), score_by("small")
    right = [*sorted((0, 2, 3), key=lambda index: -score(asked.query, asked.texts[index])), 1]
    assert _found(_answer(right)) == ()
    assert _found(_answer([0, 1, 2, 3]), stage="retrieval") == ()
    assert _found(_answer([*reversed(right[:3]), 1])) == ("not an order of stage small",)
    assert _found(_answer(right), degraded="") == ("not an order of stage small, and not degraded",)
    assert _found(_answer([0, 1, 2, 3]), stage="retrieval", degraded="") != ()


@pytest.mark.parametrize(
    ("body", "breach"),
    [
        (_answer([0, 0, 2, 3]), "not each once"),
        (_answer([0, 1, 2, 4]), "not each once"),
        (_answer([0, 1, 2]), "3 of 4 places"),
        (_answer([0, 1, 2, 3], (0.1, 0.2, 0.3, 0.4)), "scores that rise"),
        (b"nothing", "not an answer: JSONDecodeError"),
        (b'[{"score": 1}]', "not an answer: KeyError"),
    ],
)
def test_an_answer_that_is_not_whole_is_found(body: bytes, breach: str) -> None:
    """Each breach of invariant 1 has a name."""
    assert breach in _found(body, stage="retrieval")


def test_an_error_is_right_only_for_who_asked_for_one() -> None:
    """503 is a breach unless the request was fail-closed, and any other status always."""
    assert _found(b"{}", status=503) == ("status 503",)
    closed = replace(_asked(), fail_closed=True)
    assert judge(closed, 503, {"x-cascade-degraded": "stage_timeout"}, b"{}", servers=_SALTS).breaches == ()
    assert judge(closed, 500, {"x-cascade-degraded": "stage_timeout"}, b"{}", servers=_SALTS).breaches == (
        "status 500",
    )


def _run(**changes: object) -> Run:
    run = Run(began="", load_before=(0.0, 0.0, 0.0))
    held, inside = Held(0.0, 80.0, 19, 6, 7), Insides(8, 400, {}, [])
    guards = {"in_flight_texts": 0, "in_flight_tokens": 0, "waiting_calls": 0, "breaker": "closed"}
    run.before, run.end = (held, inside), (held, inside)
    run.status = {
        "admission": {"held": 0, "seats": {"short": 0}, "waiting": {"short": 0}},
        "stages": {"small": {"guards": guards}},
    }
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def _seen(over_ms: float) -> Seen:
    return Seen(Judged("large", (), "id"), 10.0, 10.4, over_ms)


def test_a_late_answer_is_found_unless_no_core_was_free() -> None:
    """Lateness counts beyond the slack, our own lag and what the sidecar waited for a core; what it computed is no excuse."""
    run = _run()
    assert wrong_with(run, slack_ms=50) == []
    run.soak.seen = [_seen(49.0), _seen(90.0)]
    run.soak.lags = [Stall(9.99, 45.0, 0.0)]
    assert wrong_with(run, slack_ms=50) == []
    run.soak.lags = [Stall(10.5, 45.0, 0.0)]
    assert wrong_with(run, slack_ms=50) == ["under faults: 1 late"]
    held, inside = run.end or pytest.fail("a run has an end")
    run.end = held, replace(inside, stalls=[Stall(10.1, 60.0, 5.0)])
    assert wrong_with(run, slack_ms=50) == []
    run.end = held, replace(inside, stalls=[Stall(10.1, 60.0, 55.0)])
    assert wrong_with(run, slack_ms=50) == ["under faults: 1 late"]


def test_what_is_left_behind_is_found() -> None:
    """More descriptors, tasks or memory than before, a place that is still taken, and text anywhere are each told."""
    held = Held(600.0, 99.0, 25, 12, 7)
    run = _run(
        end=(held, Insides(30, 400, {}, [])),
        leaks={"log": 2},
        held=[replace(held, rss_mb=80.0 + second / 10) for second in range(200)],
        metrics='cascade_internal_faults_total{exception="KeyError"} 3.0',
    )
    run.status["admission"]["seats"]["short"] = 1
    run.status["stages"]["small"]["guards"] |= {"in_flight_texts": 4, "breaker": "open"}
    assert wrong_with(run, slack_ms=50) == [
        "text in log, 2 times",
        "3 internal faults; 0 lines of the log tell of them",
        "25 descriptors at the end, 19 before",
        "12 sockets at the end, 6 before",
        "30 tasks at the end, 8 before",
        "memory grew by 12.0 MB",
        "1 requests held, seated or waiting at the end",
        "small: 4 in flight or waiting at the end",
        "small: breaker open at the end",
    ]


def test_a_soak_of_kept_scores_in_which_none_was_answered_is_found() -> None:
    """It would judge nothing of them."""
    counted = 'cascade_cache_lookups_total{{arm="stable",outcome="{}",stage="small"}} 7.0'
    assert wrong_with(_run(cached=True, metrics=counted.format("hit")), slack_ms=50) == []
    assert wrong_with(_run(cached=True, metrics=counted.format("miss")), slack_ms=50) == [
        "no score came from the cache"
    ]
    assert wrong_with(_run(metrics=counted.format("miss")), slack_ms=50) == []


def test_an_order_by_the_scores_of_another_query_is_found() -> None:
    """Else a score that was kept for one and answered for another would pass."""
    asked, score = _asked(), score_by("small")
    another = sorted((0, 2, 3), key=lambda index: -score("0", asked.texts[index]))
    assert another != sorted((0, 2, 3), key=lambda index: -score(asked.query, asked.texts[index]))
    assert _found(_answer([*another, 1])) == ("not an order of stage small",)


def test_memory_is_compared_after_it_has_warmed_up() -> None:
    """The first fifth does not count, nor does one sample that is high."""
    held = Held(0.0, 50.0, 1, 1, 1)
    samples = [replace(held, rss_mb=mb) for mb in (*[50.0] * 20, *[80.0] * 79, 120.0)]
    assert growth_mb(samples) == 0.0
