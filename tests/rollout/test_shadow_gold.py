"""Judged queries: a file that is checked whole, asked of both releases once, slowly, and never repeated in an error."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import orjson
import pytest

from cascade.errors import ConfigError, StageOverloaded
from cascade.rollout.shadow import GoldRun, Shadowing, parse_gold
from cascade.rollout.shadow.gold import GoldQueries
from cascade.testing.clock import run_virtual

from .shadows import ANIMALS, Pair, asked, scored_by

_CANARY = "SECRET-7f3a"


def _query(texts: str = "ab", gains: tuple[float, ...] = (0.0, 1.0), **changes: Any) -> dict[str, Any]:
    documents = [{"text": f"{each}x", "gain": gain} for each, gain in zip(texts, gains, strict=True)]
    return {"text": _CANARY, "documents": documents, **changes}


def _file(*queries: dict[str, Any], **changes: Any) -> bytes:
    return orjson.dumps({"format": "cascade-gold/1", "queries": list(queries) or [_query()], **changes})


def test_a_file_becomes_requests_with_gains() -> None:
    """Documents in first-stage order, with their channels where they have any; the head is ten long by default."""
    first = {"text": "a", "gain": 2, "scores": {"bm25": 1.5}}
    gold = parse_gold(_file({"text": "q", "documents": [first, {"text": "b", "gain": 0}]}))
    (query,) = gold.queries
    assert gold.k == 10
    assert query.request.query.reveal() == "q"
    assert [candidate.text.reveal() for candidate in query.request.candidates] == ["a", "b"]
    assert [dict(candidate.scores) for candidate in query.request.candidates] == [{"bm25": 1.5}, {}]
    assert np.array_equal(query.gains, [2.0, 0.0])
    assert _CANARY not in repr(parse_gold(_file()))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"{", "gold: no JSON"),
        (b"[]", "gold: file: "),
        (b"\xff", "gold: no JSON"),
        (_file(format="cascade-gold/2"), "gold: format: Input should be 'cascade-gold/1'"),
        (_file(k=0), "gold: k: "),
        (orjson.dumps({"format": "cascade-gold/1", "queries": []}), "gold: queries: "),
        (_file(**{_CANARY: 1}), "gold: ?: Extra inputs are not permitted"),
        (_file(_query(), _query(text="")), "gold: queries.1.text: String should have at least 1 character"),
        (_file(_query("a", (1.0,))), "gold: queries.0.documents: "),
        (_file(_query(gains=(0.0, 0.0))), "gold: queries.0: documents: none has a gain above 0"),
        (_file(_query(gains=(0.0, -1.0))), "gold: queries.0.documents.1.gain: Input should be greater than or equal"),
        (_file(_query(documents=[{"text": _CANARY, "gain": "1"}] * 2)), "gold: queries.0.documents.0.gain: "),
        (_file(_query(documents=[_CANARY, _CANARY])), "gold: queries.0.documents.0: "),
        (
            _file(_query(documents=[{"text": "a", "gain": 1, "scores": {_CANARY * 9: 1.0}}] * 2)),
            "gold: queries.0.documents.0.scores.?.?: ",
        ),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_by_place_and_rule(data: bytes, told: str) -> None:
    """What stands there is never repeated: it may be a query."""
    with pytest.raises(ConfigError) as refused:
        parse_gold(data)
    assert str(refused.value).startswith(told)
    assert _CANARY not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_the_first_of_several_faults_is_told() -> None:
    """Those behind it may only follow from it."""
    with pytest.raises(ConfigError, match=r"^gold: k: Input should be greater than or equal to 1$"):
        parse_gold(_file(_query(gains=(-1.0, -1.0)), k=0))


def test_a_file_is_bounded() -> None:
    """It is held in memory for as long as a candidate is tried."""
    with pytest.raises(ConfigError, match="gold: larger than 33554432 bytes"):
        parse_gold(b" " * (32 * 2**20 + 1))


def _gold(*orders: str) -> GoldQueries:
    """Return queries whose best document is the first letter of each, the others worth nothing."""
    return parse_gold(_file(*(_query(each, (1.0, *[0.0] * (len(each) - 1))) for each in orders), k=3))


class _Asked:
    """A run over judged queries between two releases that are arranged by ``pair``."""

    def __init__(self, pair: Pair, gold: GoldQueries, **changes: Any) -> None:
        self.pair, self.losses, self.at = pair, list[float](), list[float]()
        pair.has_shadow = False
        pair.open()
        self.run = GoldRun(
            gold,
            stable=lambda: pair.stable,
            candidate=lambda: pair.tried_pipeline,
            clock=asyncio.get_running_loop().time,
            paused=lambda: pair.is_paused,
            observe_gold=self._observe,
            count_fault=pair.faults.append,
            **{"salt": "sha256:candidate", "apart_s": 0.5, **changes},
        )

    def _observe(self, loss: float) -> None:
        self.losses.append(loss)
        self.at.append(asyncio.get_running_loop().time())


def _asked(pair: Pair, gold: GoldQueries, **changes: Any) -> _Asked:
    async def play() -> _Asked:
        asked = _Asked(pair, gold, **changes)
        await asked.run.run()
        return asked

    return run_virtual(play())


def test_the_loss_is_by_the_judgements() -> None:
    """The stable order has the only relevant document first, the candidate's has it third: 1 - 1/log2(4)."""
    asked = _asked(Pair(tried=scored_by("edcba")), _gold("abc"))
    assert asked.losses == [1 - 1 / math.log2(4)]
    assert asked.run.told() == {"queries": 1, "done": 1, "compared": 1, "left_out": {}}


def test_each_is_asked_once_and_one_at_a_time() -> None:
    """The pace is that of the pauses: no burst reaches a server."""
    pair = Pair(small=scored_by("abcde"), tried=scored_by("abcde"))
    asked = _asked(pair, _gold(*["abc"] * 4))
    assert asked.losses == [0.0] * 4
    assert asked.at == [0.5, 1.0, 1.5, 2.0]
    assert len(pair.tried.calls) == 4  # type: ignore[attr-defined]


def test_a_judged_query_is_no_traffic() -> None:
    """Neither decision is recorded, and no answer is offered to the shadow."""
    pair = Pair(tried=scored_by("edcba"))
    _asked(pair, _gold("abc"))
    assert (pair.recorded.decided, pair.shadows.decided, pair.outcomes) == ([], [], {})


def test_under_load_it_waits() -> None:
    """Nothing is asked, and nothing is lost."""

    async def play() -> _Asked:
        asked = _Asked(Pair(is_paused=True), _gold("abc"))
        task = asyncio.create_task(asked.run.run())
        await asyncio.sleep(60.25)
        assert asked.losses == []
        asked.pair.is_paused = False
        await task
        return asked

    assert run_virtual(play()).at == [60.5]


def test_what_a_stage_spoilt_is_asked_again_behind_the_others() -> None:
    """Here for good: after three times it is left out, and counted by why."""
    pair = Pair(tried=scored_by("abcde", fails=StageOverloaded))
    asked = _asked(pair, _gold("abc", "cba"))
    assert asked.losses == []
    assert asked.run.told() == {"queries": 2, "done": 2, "compared": 0, "left_out": {"candidate_degraded": 2}}
    assert len(pair.tried.calls) == 6  # type: ignore[attr-defined]
    failing = _asked(Pair(small=scored_by("abcde", fails=StageOverloaded)), _gold("abc"))
    assert failing.run.told()["left_out"] == {"stable_degraded": 1}


def test_a_fault_of_ours_is_counted_and_the_rest_asked() -> None:
    """A judged query that raises does not end the run."""

    async def play() -> _Asked:
        asked = _Asked(Pair(), _gold("abc", "abc"))
        healthy = asked.pair.tried_pipeline
        asked.pair.tried_pipeline = None  # type: ignore[assignment]
        task = asyncio.create_task(asked.run.run())
        await asyncio.sleep(0.6)
        asked.pair.tried_pipeline = healthy
        await task
        return asked

    asked = run_virtual(play())
    assert asked.losses == [0.0, 0.0]
    assert len(asked.pair.faults) == 1


def test_the_order_is_the_candidates_own_and_a_restart_goes_on_in_it() -> None:
    """Shuffled, since evidence is looked at along the way; what was done is not asked again."""
    letters = "abcdefghijklmnopqrst"
    gold = _gold(*[f"{each}z" for each in letters])

    def seen(salt: str, done: int = 0) -> list[str]:
        pair = Pair(tried=scored_by(letters + "z"), small=scored_by(letters + "z"))
        _asked(pair, gold, salt=salt, done=done)
        return [call[0] for call in pair.tried.calls]  # type: ignore[attr-defined]

    whole = seen("sha256:1")
    assert sorted(whole) == [f"{each}x" for each in letters]
    assert whole != sorted(whole)
    assert whole != seen("sha256:2")
    assert seen("sha256:1", done=15) == whole[15:]
    assert seen("sha256:1", done=99) == []


def test_what_runs_beside_a_candidate_is_one_thing_to_close() -> None:
    """It takes what the tap gives and asks judged queries; closed, it does neither, and leaves another's tap alone."""

    async def play() -> None:
        asked_ = _Asked(Pair(tried=scored_by("abcde", delay_ms=1e9)), _gold(*["abc"] * 9))
        pair = asked_.pair
        beside = Shadowing(pair.tap, pair.runner, asked_.run)
        await pair.answer(asked(ANIMALS))
        await asyncio.sleep(0.7)
        assert (pair.runner.in_flight, beside.gold) == (1, asked_.run)
        await beside.aclose()
        assert pair.tap.offer is None
        assert len(asyncio.all_tasks()) == 1
        first, second = Shadowing(pair.tap, pair.runner), Shadowing(pair.tap, pair.runner)
        theirs = pair.tap.offer
        first._offer = lambda *args: None
        await first.aclose()
        assert pair.tap.offer is theirs
        await second.aclose()

    run_virtual(play())
