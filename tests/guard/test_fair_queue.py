"""Start-time fair queueing over flows, earliest deadline first within one."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from cascade.guard.fair_queue import FairQueue, Rank

_FLOWS = st.sampled_from(("a", "b", "c", None))
_RANKS = st.builds(Rank, st.integers(0, 3), st.integers(0, 20).map(float))


def test_nothing_waits_in_a_new_queue() -> None:
    """It is empty, and nobody gives way in it."""
    queue: FairQueue[str] = FairQueue()
    assert (len(queue), queue.pop(), queue.outranked("a", Rank(0, 1.0), 1.0)) == (0, None, None)


@given(st.lists(_RANKS, min_size=1, max_size=30))
def test_within_a_flow_the_lower_class_is_first_then_the_earlier_deadline_then_who_came_first(
    ranks: list[Rank],
) -> None:
    """The order out is the order by class, deadline and arrival."""
    queue: FairQueue[int] = FairQueue()
    for number, rank in enumerate(ranks):
        queue.push(number, "a", rank, weight=1.0, cost=1.0)
    out = [queue.pop() for _ in ranks]
    assert out == sorted(range(len(ranks)), key=lambda number: (ranks[number], number))


@given(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from((0.5, 1.0, 2.0, 5.0)), min_size=2),
    st.data(),
    st.integers(1, 60),
)
def test_flows_that_always_wait_get_their_weights_share(
    weights: dict[str, float], data: st.DataObject, served: int
) -> None:
    """Costs served by weight differ between two flows by no more than one largest cost of each, by its weight."""
    queue: FairQueue[tuple[str, float]] = FairQueue()
    costs = {name: data.draw(st.lists(st.integers(1, 9), min_size=60, max_size=60)) for name in weights}
    for name, weight in weights.items():
        for place, cost in enumerate(costs[name]):
            queue.push((name, cost), name, Rank(0, float(place)), weight=weight, cost=cost)
    got: dict[str, float] = defaultdict(float)
    for _ in range(served):
        taken = queue.pop()
        assert taken is not None
        got[taken[0]] += taken[1]
    shares = {name: got[name] / weight for name, weight in weights.items()}
    dearest = {name: max(costs[name]) / weight for name, weight in weights.items()}
    for one, share in shares.items():
        for other, least in shares.items():
            assert share - least <= dearest[one] + dearest[other] + 1e-9


def test_a_flow_that_comes_back_gets_nothing_for_the_time_it_was_away() -> None:
    """After ten of a were served, b does not get ten in a row; and a that paused cannot come in ahead of its turn."""
    queue: FairQueue[str] = FairQueue()
    for place in range(20):
        queue.push("a", "a", Rank(0, float(place)), weight=1.0, cost=1.0)
    for _ in range(10):
        queue.pop()
    for place in range(10):
        queue.push("b", "b", Rank(0, float(place)), weight=1.0, cost=1.0)
    first = [queue.pop() for _ in range(8)]
    assert first.count("b") == 4
    queue = FairQueue()
    queue.push("b", "b", Rank(0, 0.0), weight=1.0, cost=1.0)
    queue.push("b", "b", Rank(0, 1.0), weight=1.0, cost=1.0)
    turns = []
    for place in range(4):  # a has one at a time, and comes again as soon as it was served
        queue.push("a", "a", Rank(0, float(place)), weight=1.0, cost=1.0)
        turns.append(queue.pop())
    assert turns.count("b") == 2


@given(st.lists(st.tuples(_FLOWS, _RANKS, st.sampled_from(("push", "pop", "remove"))), max_size=60))
def test_nothing_is_lost_or_handed_out_twice(steps: list[tuple[str | None, Rank, str]]) -> None:
    """Whatever was pushed comes out once, unless it was removed; the length says how much is left."""
    queue: FairQueue[int] = FairQueue()
    inside: dict[int, tuple[str | None, tuple[int, float, int]]] = {}
    for number, (flow, rank, step) in enumerate(steps):
        if step == "push":
            inside[number] = (flow, queue.push(number, flow, rank, weight=1.0 + (flow == "a"), cost=1.0 + number % 3))
        elif step == "remove" and inside:
            queue.remove(*inside.pop(next(iter(inside))))
        elif step == "pop":
            taken = queue.pop()
            assert (taken is None) == (not inside)
            if taken is not None:
                del inside[taken]
        assert len(queue) == len(inside)
    rest = [queue.pop() for _ in range(len(inside))]
    assert sorted(number for number in rest if number is not None) == sorted(inside)
    assert queue.pop() is None


def test_who_gives_way_is_the_worst_of_the_flow_that_has_most_for_its_weight() -> None:
    """A newcomer of a smaller flow takes a place of the fuller one; of the fullest one, only where it is better."""
    queue: FairQueue[str] = FairQueue()
    for name, rank in (("a1", Rank(0, 5.0)), ("a2", Rank(1, 1.0)), ("a3", Rank(0, 9.0))):
        queue.push(name, "a", rank, weight=1.0, cost=1.0)
    queue.push("b1", "b", Rank(3, 3.0), weight=1.0, cost=1.0)
    assert queue.outranked("b", Rank(9, 99.0), 1.0) == "a2"
    assert queue.outranked("a", Rank(0, 1.0), 1.0) == "a2"
    assert queue.outranked("a", Rank(1, 2.0), 1.0) is None
    assert queue.outranked("b", Rank(0, 1.0), 0.1) == "b1"  # for a tenth of the weight two are as many as twenty
    assert queue.outranked("c", Rank(0, 1.0), 0.1) is None
