"""The arithmetic of the overload benchmark: orders, qualities, loads, figures and aims."""

from __future__ import annotations

import orjson
import pytest

from cascade.policy.release import parse_release
from evals.bench.batching import LARGE, SMALL, Batches, scores_in
from evals.bench.generator import Sent
from evals.bench.overload_field import open_loop, verdict
from evals.bench.overload_figures import Cell, Checked, Decided, aims, cell, decided, mean_cell, table, written
from evals.bench.overload_release import LEVELS, orders, quality, release, request


def test_a_server_scores_most_in_full_batches() -> None:
    """A batch takes its own time and that of its pairs; the large server is what bounds the first level."""
    assert Batches(20.0, 1.5, 64).pairs_a_second == pytest.approx(64 / 0.116)
    assert LARGE.pairs_a_second / 20 < SMALL.pairs_a_second / 50


def test_documents_hold_what_servers_score_them() -> None:
    """The scores that the checking client reckons with are those that the servers read, no two of a request alike."""
    body, scores = request(3)
    texts = orjson.loads(body)["documents"]
    assert [scores_in(text) for text in texts] == [(small / 100, large / 100) for small, large in scores]
    assert len({small for small, _ in scores}) == len({large for _, large in scores}) == len(scores) == 50


def test_the_release_has_the_levels_that_are_reckoned_with() -> None:
    """Every level of the release is what its plan says."""
    parsed = parse_release(release("http://127.0.0.1:1", "http://127.0.0.1:2"))
    assert [level.name for level in parsed.levels] == list(LEVELS)


_SCORES = [(number % 7 * 10 + number % 3, -number) for number in range(50)]


def test_an_order_is_the_large_block_then_the_small_order_then_the_first_stage() -> None:
    """Eight of the small stage's best are reordered by the large one, and 20 only where the level says so."""
    (by_small,) = orders("degraded-2", "small", _SCORES, degraded=False)
    assert by_small == sorted(range(50), key=lambda index: -_SCORES[index][0])
    (by_large,) = orders("degraded-1", "large", _SCORES, degraded=False)
    assert by_large == sorted(by_small[:8]) + by_small[8:]
    (short,) = orders("degraded-3", "small", _SCORES, degraded=False)
    assert short[20:] == list(range(20, 50))
    assert sorted(short[:20]) == list(range(20))
    assert orders("normal", "retrieval", _SCORES, degraded=True) == [list(range(50))]


def test_a_large_block_of_first_stage_order_is_right_only_where_a_stage_failed() -> None:
    """Where the small stage gave nothing the large one scores the first of the list; an undegraded answer may not."""
    assert len(orders("normal", "large", _SCORES, degraded=False)) == 1
    assert sorted(range(20), key=lambda index: index) + list(range(20, 50)) in orders(
        "normal", "large", _SCORES, degraded=True
    )


def _body(order: list[int]) -> bytes:
    return orjson.dumps({"results": [{"index": index} for index in order]})


def test_a_wrong_order_and_a_lost_answer_are_told_apart() -> None:
    """An order that is not the one of its stage and level, a document twice, and a status other than 200."""
    headers = {"x-cascade-stage": "retrieval", "x-cascade-level": "degraded-4", "x-cascade-degraded": "load_level"}
    every = list(range(50))
    assert verdict(200, headers, _body(every), _SCORES) is None
    assert verdict(200, headers, _body(every[::-1]), _SCORES) == "order"
    assert verdict(200, headers, _body([0, *every[:49]]), _SCORES) == "order"
    assert verdict(503, headers, b"", _SCORES) == "lost"


@pytest.mark.parametrize(
    ("stage", "depth", "escalated", "worth"),
    [
        ("large", 50, 20, 1.0),
        ("large", 50, 8, 0.985),
        ("small", 50, 0, 0.93),
        ("small", 50, 20, 0.93),
        ("small", 20, 0, 0.90),
        ("retrieval", 50, 0, 0.80),
    ],
)
def test_an_answer_is_worth_what_its_work_was(stage: str, depth: int, escalated: int, worth: float) -> None:
    """What counts is the stage that answered and how far, whichever level decided; escalated in vain is worth nothing."""
    assert quality(stage, depth, escalated) == worth


def test_an_open_loop_sends_what_its_rate_says_at_most_every_half_second_a_client() -> None:
    """A client's slot is longer than the deadline, so that an answer in time holds up no later request."""
    arguments, requests = open_loop(100, 6)
    assert requests == 600
    assert arguments[arguments.index("-c") + 1] == "50"
    assert "--rps=2.0000" in arguments


def _line(**fields: object) -> bytes:
    told = {"outcome": "answered", "load_level": "normal", "stage": "large", "degraded": [], "depth": 50}
    told |= {"escalated": list(range(20)), "timestamp": "2026-11-30T01:00:01.000000Z", "total_ms": 250.0}
    return orjson.dumps(told | {"event": "rerank"} | fields) + b"\n"


def test_a_request_is_whole_where_it_had_all_that_its_level_plans() -> None:
    """A level's own reason does not count against it; another reason or another stage than the level's does."""
    lines = [
        _line(),
        _line(load_level="degraded-2", stage="small", degraded=["load_level"], escalated=[]),
        _line(stage="small", degraded=["stage_timeout"]),
        _line(load_level="degraded-3", stage="retrieval", degraded=["load_level"], escalated=[]),
        _line(outcome="rejected"),
        b'{"event":"serving"}\n',
        _line()[:40],
    ]
    found = decided(lines)
    assert [each.whole for each in found] == [True, True, False, False]
    assert [each.undegraded for each in found] == [True, False, False, False]
    assert [each.quality for each in found] == [1.0, 0.93, 0.93, 0.80]
    assert found[1].came - found[0].came == 0
    assert found[0].came % 1 == pytest.approx(0.75)


def _decided(came: float, *, whole: bool = True, worth: float = 1.0) -> Decided:
    return Decided(came, whole, whole, worth, "normal")


def test_figures_are_of_what_came_within_the_window() -> None:
    """What is late is taken off the goodput, since it cannot be joined with what the sidecar tells; lost is of the whole run."""
    found = cell(
        (100.0, 110.0),
        planned=5,
        requests=[
            _decided(101),
            _decided(102),
            _decided(103, whole=False, worth=0.9),
            _decided(104, worth=0.9),
            _decided(99),
        ],
        sent=[
            Sent(99_000_000, 200, 1),
            *(Sent(101_000_000 + number, 200, 100_000) for number in range(2)),
            Sent(105_000_000, 200, 300_001),
        ],
        checked=[Checked(106.0, 50.0, None), Checked(50.0, 1.0, "order")],
        switches=1,
    )
    assert found.late == 0.25
    assert found.goodput == 0.5
    assert found.quality_goodput == pytest.approx(0.95 * 0.75)
    assert found.gain_goodput == pytest.approx(0.75 * 0.75)
    assert (found.lost, found.wrong, found.sent, found.checked) == (1, 1, 4, 2)
    assert found.switches_per_min == 6
    assert found.p99_ms == pytest.approx(300.001)


def test_a_window_without_answers_is_an_error() -> None:
    """No figure is made of nothing."""
    with pytest.raises(RuntimeError, match="no request was answered"):
        cell((0.0, 1.0), planned=1, requests=[], sent=[], checked=[], switches=0)


def _cell(goodput: float, *, worth: float = 1.0, gain: float = 1.0, lost: int = 0, switches: float = 0.0) -> Cell:
    return Cell(goodput, worth, gain, 1.0, 0.0, lost, 0, 100.0, 200.0, switches, 500, 25)


def test_repetitions_are_joined_by_their_mean_and_what_is_lost_by_its_sum() -> None:
    """A request lost in one repetition is not averaged away."""
    mean = mean_cell([_cell(1.0, lost=1), _cell(0.9)])
    assert mean["goodput"] == pytest.approx(0.95)
    assert (mean["lost"], mean["sent"], mean["checked"]) == (1, 1000, 50)


def test_aims_compare_with_the_best_fixed_level_at_each_load() -> None:
    """Quality and gain are compared with the best level each; first-stage order has no gain to compare with."""
    cells = {
        "adaptive": {"4x": [_cell(0.98, worth=0.90, gain=0.5)], "hover": [_cell(1.0, switches=7.0)]},
        "fixed-normal": {"4x": [_cell(0.2, worth=0.5, gain=0.1)]},
        "fixed-degraded-3": {"4x": [_cell(1.0, worth=0.91, gain=0.6)]},
        "fixed-degraded-4": {"4x": [_cell(1.0, worth=0.80, gain=0.0)]},
    }
    told = "\n".join(aims(written(cells)))
    assert "MISSED goodput at 4x: 0.98 (aim >= 0.99)" in told
    assert "met    quality_goodput of the best fixed level at 4x: 0.989 (aim >= 0.95)" in told
    assert "MISSED gain_goodput of the best fixed level at 4x: 0.8333 (aim >= 0.95)" in told
    assert "MISSED switches a minute while hovering: 7 (aim <= 6)" in told
    assert "met    lost, all loads: 0 (aim <= 0)" in told


def test_the_table_shows_the_spread_of_repetitions() -> None:
    """The least and the greatest stand in brackets where there are several."""
    rows = table({"adaptive": {"4x": [_cell(1.0), _cell(0.9)]}}, ["4x"]).splitlines()
    assert len(rows) == 3
    assert "0.950 (0.900 to 1.000)" in rows[2]
    assert "0 of 50" in rows[2]
