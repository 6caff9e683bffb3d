"""What a release does by another one's record, against the pipeline that serves it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from cascade.replay.logged.deciding import Taken, is_faithful, taken
from cascade.replay.record_lines import DecisionLine, Lines
from cascade.types import StageName
from tests.escalated import REORDERING, rule
from tests.replay.served import Query, Serving, Traffic, made_queries, serving_of, traffic

_HISTORY: Final = {"classes": {"identifier": 0.9, "other": 0.1}}
_BY_HISTORY: Final = {
    "kind": "signals",
    "default": 12,
    "rules": [{"when": [{"signal": "history.difficulty", "above": 0.5}], "depth": 4}],
}
_BY_QUERY: Final = {
    "kind": "signals",
    "default": 12,
    "rules": [
        {"when": [{"signal": "query.identifiers", "at_least": 1}], "depth": 5},
        {"when": [{"signal": "bm25.gap", "above": 0.2}, {"signal": "query.tokens", "above": 10}], "depth": 7},
    ],
}
_DIRECT: Final = {"when": [{"query_class": ["identifier"]}], "top_m": 4}


def _without(stage: str) -> dict[str, Any]:
    stages = dict(serving_of("x").data["stages"])
    del stages[stage]
    return stages


def _calibrated(name: str, **fields: Any) -> Serving:
    return serving_of(name, calibration=REORDERING, depth=12, escalation=rule(REORDERING, chunk=2, **fields))


_RELEASES: Final = (
    serving_of("static-3", depth=12, escalation={"kind": "static", "top_m": 3}),
    serving_of("static-5", depth=12, escalation={"kind": "static", "top_m": 5}),
    serving_of("shallow", depth=5, escalation={"kind": "static", "top_m": 5}),
    serving_of("by-query", depth=_BY_QUERY, escalation={"kind": "static", "top_m": 5}),
    serving_of("by-history", depth=_BY_HISTORY, history=_HISTORY, escalation={"kind": "static", "top_m": 4}),
    serving_of("nothing", depth=0, escalation="none", stages={}),
    serving_of("all", depth=12, escalation={"kind": "static", "top_m": 12}),
    serving_of("without-large", depth=12, escalation="none", stages=_without("large")),
    serving_of("without-small", depth=12, escalation={"kind": "static", "top_m": 4}, stages=_without("small")),
    serving_of("observe", mode="observe", depth=3, escalation="none"),
    serving_of("observe-6", mode="observe", depth=3, escalation="none", limits={"max_candidates": 6}),
    _calibrated("one-round", price_per_pair=0.01, rounds=1),
    _calibrated("two-rounds", price_per_pair=0.01, rounds=2),
    _calibrated("dear", price_per_pair=0.05, rounds=2),
    _calibrated("fitted-order", price_per_pair=0.01, rounds=2, final_order="fitted"),
    _calibrated("direct", price_per_pair=0.01, rounds=2, direct=_DIRECT),
)
_TOP_N: Final = 4


def _queries() -> list[Query]:
    """Return queries of which some have candidates that a stage refuses."""
    found = made_queries(12)
    for at in (1, 3):
        small, large = found[at].small.copy(), found[at].large.copy()
        small[2] = large[4] = large[np.argmax(found[at].small)] = np.nan
        found[at] = replace(found[at], small=small, large=large)
    return found


_QUERIES: Final = _queries()


def _lines(served: Traffic, folder: Path) -> list[DecisionLine]:
    return list(Lines([served.write(folder / "records")]))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[DecisionLine], list[tuple[int, ...]]]]:
    """Give the records and the answers of every release to every query."""
    found = []
    for serving in _RELEASES:
        served = traffic(_QUERIES, [serving], assign=lambda query: 0)
        found.append((_lines(served, tmp_path_factory.mktemp("r")), [order for _, _, order in served.served.values()]))
    return found


def _observed(serving: Serving) -> bool:
    return serving.release.mode == "observe"


def test_every_release_decides_by_its_own_records_as_it_did(everything: list[Any]) -> None:
    """Depth, what was sent and the order answered are those of the pipeline, of refused candidates too."""
    for serving, (lines, orders) in zip(_RELEASES, everything, strict=True):
        for line, order in zip(lines, orders, strict=True):
            own = taken(serving.decider, line, observed=_observed(serving))
            assert own is not None
            assert is_faithful(own, line), serving.release.release
            assert (own.order, own.whole) == (order, True), serving.release.release


def test_actions_are_the_same_by_a_record_where_they_were_the_same(everything: list[Any]) -> None:
    """Whether another release takes the logged action is known from the record alone, and so propensities are exact."""
    own = [
        [taken(serving.decider, line, observed=_observed(serving)) for line in lines]
        for serving, (lines, _) in zip(_RELEASES, everything, strict=True)
    ]
    same = 0
    for logging, (lines, _) in enumerate(everything):
        for other, serving in enumerate(_RELEASES):
            for at, line in enumerate(lines):
                mine, theirs = own[logging][at], own[other][at]
                by_record = taken(serving.decider, line, observed=_observed(_RELEASES[logging]))
                assert by_record is not None
                assert mine is not None
                assert theirs is not None
                told = by_record.is_same(mine, _TOP_N)
                assert told == mine.is_same(theirs, _TOP_N), (logging, other, at)
                same += told
    assert len(_QUERIES) * len(_RELEASES) < same < 5 * len(_QUERIES) * len(_RELEASES)


def test_what_a_record_says_of_another_action_is_true_and_never_too_much(everything: list[Any]) -> None:
    """What is known whole is what the release does; of what is not, the part that is known is a part of it."""
    unknown = 0
    for logging, (lines, _) in enumerate(everything):
        for serving, (_, orders) in zip(_RELEASES, everything, strict=True):
            for at, line in enumerate(lines):
                done = taken(serving.decider, line, observed=_observed(_RELEASES[logging]))
                assert done is not None
                if done.order is None:
                    unknown += 1
                else:
                    assert done.order == orders[at]
    assert unknown > 100


def test_full_information_tells_what_every_release_does(everything: list[Any]) -> None:
    """By records of mode observe every answer is known."""
    observe = next(at for at, each in enumerate(_RELEASES) if each.release.release == "observe")
    for serving, (_, orders) in zip(_RELEASES, everything, strict=True):
        done = [taken(serving.decider, line, observed=True) for line in everything[observe][0]]
        assert [each.order for each in done if each is not None] == orders


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({}, True),
        ({"depth": 11}, False),
        ({"escalated": (0, 1)}, False),
        ({"rank_changes_at_5": 77}, False),
    ],
)
def test_a_record_of_something_else_is_not_faithful(everything: list[Any], fields: dict[str, Any], held: bool) -> None:
    """Another depth, other candidates sent, or another head answered are seen."""
    line = everything[0][0][0]
    own = taken(_RELEASES[0].decider, line, observed=False)
    assert own is not None
    assert is_faithful(own, line.model_copy(update=fields)) is held
    assert not is_faithful(replace(own, order=None), line)


def test_small_scores_that_failed_beside_an_answer_leave_actions_untold(tmp_path: Path) -> None:
    """They are not there by accident; deeper ones would not have been there anyway."""
    (observing,) = (each for each in _RELEASES if each.release.release == "observe-6")
    slow = traffic(
        _QUERIES[:1], [observing], behaves=lambda query, stage: {"delay_ms": 500.0 * (stage is StageName.SMALL)}
    )
    (line,) = _lines(slow, tmp_path)
    assert line.beside == "stage_timeout"
    shallow, deep = (serving_of("x", depth=depth).decider for depth in (6, 12))
    assert taken(shallow, line, observed=True) is None
    assert taken(deep, line, observed=True) == Taken(12, small=True, sent=frozenset(), whole=False, order=None)


@pytest.mark.parametrize(
    "depth",
    [
        {"kind": "skip"},
        {"kind": "signals", "default": 12, "rules": [{"when": [{"script": ["latin"]}], "depth": 4}]},
        {"kind": "signals", "default": 12, "rules": [{"when": [{"signal": "bm25.wig", "above": 0}], "depth": 4}]},
    ],
    ids=["documents", "script", "query"],
)
def test_rules_that_read_a_text_cannot_be_told(everything: list[Any], depth: Any) -> None:
    """No record holds a text; what its own release's rules read of one is kept as a signal."""
    reading = serving_of("reading", depth=depth).decider
    line = everything[0][0][0]
    assert taken(reading, line, observed=False) is None
    kept = line.model_copy(update={"signals": {"head.duplicate": 0.1, "bm25.wig": None, "query.script": None}})
    done = taken(reading, kept, observed=False)
    assert done is not None
    assert done.depth in {0, 12}


def _taken(sent: set[int], *, whole: bool, depth: int = 12) -> Taken:
    return Taken(depth, small=True, sent=frozenset(sent), whole=whole, order=None)


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        (_taken({1}, whole=False), _taken({2}, whole=False), True),
        (_taken({1}, whole=False), _taken({2}, whole=False, depth=5), False),
        (_taken({1, 2}, whole=True), _taken({1, 2}, whole=True), True),
        (_taken({1, 2}, whole=True), _taken({1, 3}, whole=True), False),
        (_taken({1, 2}, whole=True), _taken({1}, whole=False), True),
        (_taken({1, 2}, whole=True), _taken({3}, whole=False), False),
        (replace(_taken({1}, whole=True), order=(1, 0)), replace(_taken({1}, whole=True), order=(1, 0)), False),
    ],
)
def test_two_actions_may_be_one_only_where_nothing_speaks_against(one: Taken, other: Taken, may: bool) -> None:
    """Of what is known to its end nothing is open."""
    assert one.may_be_same(other) is may
    assert other.may_be_same(one) is may


def test_actions_that_send_the_same_and_answer_otherwise_are_two() -> None:
    """As with another final order; what nobody was answered with does not count."""
    one = Taken(4, small=True, sent=frozenset({0, 1}), whole=True, order=(0, 1, 2, 3))
    other = replace(one, order=(0, 1, 3, 2))
    assert not one.is_same(other, 4)
    assert not one.is_same(other, 3)
    assert one.is_same(other, 2)
