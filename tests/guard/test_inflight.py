"""The limit on texts in flight: its bound, its order, and nothing lost to cancellation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.guard.inflight import TextLimiter
from cascade.testing.clock import run_virtual


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(10):
        await asyncio.sleep(0)


@dataclass
class Crowd:
    """Holders of one limiter, each of which stays until it is let go. Lists hold positions in order of arrival."""

    limiter: TextLimiter
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)
    gates: list[asyncio.Event] = field(default_factory=list)
    entered: list[int] = field(default_factory=list)
    inside: dict[int, int] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    most_inside: int = 0

    def arrive(self, texts: int) -> None:
        """Begin a hold."""
        self.texts.append(texts)
        self.gates.append(asyncio.Event())
        self.tasks.append(asyncio.create_task(self._stay(len(self.tasks))))

    def leave(self, who: int) -> None:
        """Let a holder go, now or as soon as it has entered."""
        self.gates[who].set()

    def cancel(self, who: int) -> None:
        """Cancel a holder, wherever it is."""
        if self.tasks[who].cancel():
            self.cancelled.add(who)

    def waiting(self) -> list[int]:
        """Return who waits for room."""
        return [who for who in range(len(self.tasks)) if who not in self.entered and not self.tasks[who].done()]

    async def disperse(self) -> None:
        """Let everyone go, and wait until all have gone."""
        for gate in self.gates:
            gate.set()
        async with asyncio.timeout(1):  # of virtual time: who waits for nothing would wait for ever
            ended_by = await asyncio.gather(*self.tasks, return_exceptions=True)
        for ended in ended_by:
            assert ended is None or isinstance(ended, asyncio.CancelledError)

    async def _stay(self, who: int) -> None:
        async with self.limiter.hold(self.texts[who]):
            self.entered.append(who)
            self.inside[who] = min(self.texts[who], self.limiter.limit)
            self.most_inside = max(self.most_inside, sum(self.inside.values()))
            try:
                await self.gates[who].wait()
            finally:
                del self.inside[who]


ARRIVE = st.tuples(st.just("arrive"), st.integers(0, 9))
LEAVE = st.tuples(st.just("leave"), st.integers(0, 30))
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 30))
STEP = st.tuples(st.just("step"), st.integers(1, 3))
LIMIT = st.tuples(st.just("limit"), st.integers(1, 8))


async def act(crowd: Crowd, steps: list[tuple[str, int]], *, settled: bool) -> None:
    """Play ``steps``; with ``settled`` everything comes to rest after each, else several happen at one instant."""
    for action, number in steps:
        match action:
            case "arrive":
                crowd.arrive(number)
            case "leave" if crowd.tasks:
                crowd.leave(number % len(crowd.tasks))
            case "cancel" if crowd.tasks:
                crowd.cancel(number % len(crowd.tasks))
            case "limit":
                crowd.limiter.limit = number
            case "step":
                for _ in range(number):
                    await asyncio.sleep(0)
            case _:
                pass
        if settled:
            await settle()


@given(limit=st.integers(1, 8), steps=st.lists(ARRIVE | LEAVE | CANCEL | STEP, max_size=40))
def test_the_limit_holds_and_nothing_is_lost_however_holders_come_go_and_are_cancelled(
    limit: int, steps: list[tuple[str, int]]
) -> None:
    """Cancelling at any instant neither exceeds the limit, nor keeps room, nor forgets who waits."""

    async def play() -> Crowd:
        crowd = Crowd(TextLimiter(limit))
        await act(crowd, steps, settled=False)
        await settle()
        if waiting := crowd.waiting():
            assert sum(crowd.inside.values()) + min(crowd.texts[waiting[0]], limit) > limit
        assert crowd.limiter.in_flight == sum(crowd.inside.values())
        await crowd.disperse()
        async with asyncio.timeout(1), crowd.limiter.hold(limit):
            assert crowd.limiter.in_flight == limit
        return crowd

    crowd = run_virtual(play())
    assert crowd.most_inside <= limit
    assert crowd.limiter.in_flight == 0
    assert set(range(len(crowd.tasks))) - set(crowd.entered) <= crowd.cancelled


@given(limit=st.integers(1, 8), steps=st.lists(ARRIVE | LEAVE | CANCEL, max_size=40))
def test_room_is_given_in_order_of_arrival(limit: int, steps: list[tuple[str, int]]) -> None:
    """Nobody overtakes, however small: a large hold is not starved by small ones."""

    async def play() -> Crowd:
        crowd = Crowd(TextLimiter(limit))
        await act(crowd, steps, settled=True)
        await crowd.disperse()
        return crowd

    crowd = run_virtual(play())
    assert crowd.entered == sorted(crowd.entered)


@given(steps=st.lists(ARRIVE | LEAVE | CANCEL | STEP | LIMIT, max_size=40))
def test_a_limit_that_changes_under_way_strands_nobody(steps: list[tuple[str, int]]) -> None:
    """Who waits is held to the new limit, so a limit learned late neither blocks a queue nor loses room."""

    async def play() -> Crowd:
        crowd = Crowd(TextLimiter(8))
        await act(crowd, steps, settled=False)
        await settle()
        limit = crowd.limiter.limit
        if waiting := crowd.waiting():
            assert crowd.limiter.in_flight + min(crowd.texts[waiting[0]], limit) > limit
        await crowd.disperse()
        return crowd

    crowd = run_virtual(play())
    assert crowd.limiter.in_flight == 0
    assert set(range(len(crowd.tasks))) - set(crowd.entered) <= crowd.cancelled


def test_a_hold_of_more_than_the_limit_passes_alone() -> None:
    """A round larger than the limit is not refused: it waits until nothing else is in flight."""

    async def play() -> None:
        crowd = Crowd(TextLimiter(4))
        crowd.arrive(1)
        crowd.arrive(50)
        crowd.arrive(1)
        await settle()
        assert crowd.entered == [0]
        crowd.leave(0)
        await settle()
        assert crowd.entered == [0, 1]
        crowd.leave(1)
        await settle()
        assert crowd.entered == [0, 1, 2]
        await crowd.disperse()

    run_virtual(play())


def test_cancelling_the_first_in_line_lets_the_next_pass_at_once() -> None:
    """A cancelled waiter does not keep others waiting who would fit."""

    async def play() -> None:
        crowd = Crowd(TextLimiter(4))
        for texts in (3, 4, 1):
            crowd.arrive(texts)
        await settle()
        assert crowd.entered == [0]
        crowd.cancel(1)
        await settle()
        assert crowd.entered == [0, 2]
        await crowd.disperse()

    run_virtual(play())


def test_room_granted_in_the_instant_of_cancellation_is_given_back() -> None:
    """A waiter that is cancelled between its grant and its turn does not take the room with it."""

    async def play() -> None:
        crowd = Crowd(TextLimiter(2))
        crowd.arrive(2)
        crowd.arrive(2)
        await settle()
        crowd.leave(0)
        await asyncio.sleep(0)  # the first holder wakes up and gives its room to the second
        crowd.cancel(1)
        await settle()
        assert crowd.entered == [0]
        assert crowd.limiter.in_flight == 0

    run_virtual(play())


def test_room_given_back_while_the_next_in_line_is_being_cancelled_goes_to_the_one_behind() -> None:
    """A waiter that is cancelled but has not run since is neither given room nor in the way."""

    async def play() -> None:
        crowd = Crowd(TextLimiter(2))
        for _ in range(3):
            crowd.arrive(2)
        await settle()
        crowd.leave(0)  # wakes before the second hears that it is cancelled
        crowd.cancel(1)
        await settle()
        assert crowd.entered == [0, 2]
        assert crowd.limiter.in_flight == 2
        await crowd.disperse()

    run_virtual(play())


def test_a_limit_that_is_raised_lets_those_pass_who_fit_now() -> None:
    """Nobody waits for the next departure once there is room."""

    async def play() -> None:
        crowd = Crowd(TextLimiter(2))
        for _ in range(4):
            crowd.arrive(2)
        await settle()
        assert crowd.entered == [0]
        crowd.limiter.limit = 6
        await settle()
        assert crowd.entered == [0, 1, 2]
        await crowd.disperse()

    run_virtual(play())


def test_a_limit_that_is_lowered_leaves_who_is_inside_and_holds_for_who_comes() -> None:
    """What is in flight is not taken back; the next passes when what remains fits the new limit."""

    async def play() -> None:
        crowd = Crowd(TextLimiter(6))
        for _ in range(4):
            crowd.arrive(2)
        await settle()
        crowd.limiter.limit = 2
        for leaving in (0, 1):
            crowd.leave(leaving)
            await settle()
            assert crowd.entered == [0, 1, 2]
        crowd.leave(2)
        await settle()
        assert crowd.entered == [0, 1, 2, 3]
        await crowd.disperse()

    run_virtual(play())


def test_an_error_inside_a_hold_gives_the_room_back() -> None:
    """A call that fails is no longer in flight."""

    async def play() -> None:
        limiter = TextLimiter(3)
        with pytest.raises(RuntimeError, match="failed"):
            async with limiter.hold(2):
                raise RuntimeError("failed")
        assert limiter.in_flight == 0

    run_virtual(play())


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    """No limit may stop everything, neither at first nor later."""
    with pytest.raises(ValueError, match="at least one"):
        TextLimiter(limit)
    limiter = TextLimiter(1)
    with pytest.raises(ValueError, match="at least one"):
        limiter.limit = limit
    assert limiter.limit == 1


def test_c2_tokens_are_bounded_beside_texts() -> None:
    """Two short calls pass together, and two long ones one after the other, though there is room for their texts."""

    async def play(tokens: int) -> int:
        crowd = 0
        most = 0
        limiter = TextLimiter(10, 1000)

        async def call() -> None:
            nonlocal crowd, most
            async with limiter.hold(2, tokens):
                crowd += 1
                most = max(most, crowd)
                await asyncio.sleep(1)
                crowd -= 1

        await asyncio.gather(call(), call())
        assert (limiter.in_flight, limiter.tokens_in_flight, limiter.waiting) == (0, 0, 0)
        return most

    assert run_virtual(play(500)) == 2
    assert run_virtual(play(501)) == 1


def test_a_call_of_more_tokens_than_the_limit_passes_alone() -> None:
    """It waits until nothing else is in flight, and is not stranded."""

    async def play() -> None:
        limiter = TextLimiter(10, 100)
        async with limiter.hold(1, 1):
            late = asyncio.create_task(_held(limiter, 1, 5000))
            await settle()
            assert (late.done(), limiter.waiting, limiter.has_room(1, 1)) == (False, 1, False)
        await settle()
        assert late.done()
        assert limiter.has_room(10, 100)

    run_virtual(play())


def test_limits_that_are_raised_let_in_who_waits() -> None:
    """Texts and tokens alike; a limit of nothing is refused."""

    async def play() -> None:
        limiter = TextLimiter(10, 100)
        async with limiter.hold(1, 100):
            late = asyncio.create_task(_held(limiter, 1, 100))
            await settle()
            limiter.set_limits(10, 199)
            await settle()
            assert not late.done()
            limiter.set_limits(10, 200)
            await settle()
            assert late.done()
        with pytest.raises(ValueError, match="at least one text and one token"):
            limiter.set_limits(10, 0)
        assert (limiter.limit, limiter.token_limit) == (10, 200)

    run_virtual(play())


async def _held(limiter: TextLimiter, texts: int, tokens: int) -> None:
    async with limiter.hold(texts, tokens):
        pass
