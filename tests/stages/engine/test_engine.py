"""The engine under threads: results come to whom they belong, whatever is cancelled, fails or ends beside them."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from itertools import chain

import pytest

from cascade.errors import StageInvalidAnswer, StageOverloaded, StageTimeout, StageUnreachable
from cascade.guard.deadline import Deadline
from cascade.stages.engine.batching import ONE_PAIR, Batching
from cascade.stages.engine.round import NotRun
from cascade.stages.engine.workers import Workers, worker_pool

from .arrange import SetClock, SumModel, deadline_in, engine_of, run_on, score_of, until

_BUDGET = Batching(200, 8)


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Give two threads."""
    with worker_pool(2) as threads:
        yield threads


@pytest.mark.parametrize("batching", [ONE_PAIR, _BUDGET])
async def test_results_come_in_the_order_of_the_texts(workers: Workers, batching: Batching) -> None:
    """Whatever was run first and with whom, each text gets its own score."""
    texts = ["lamp", "a", "bread and wind", "tide" * 20, "", "a"]
    assert await run_on(engine_of(SumModel(), workers, batching), texts) == [score_of("q", text) for text in texts]


async def test_no_text_is_no_work(workers: Workers) -> None:
    """A round without texts is done at once, and costs nothing."""
    model = SumModel()
    with engine_of(model, workers).round("q", [], deadline_in()) as round_:
        assert await round_.done() == []
    assert model.batches == []
    assert round_.cost().calls == 0


async def test_rounds_share_batches(workers: Workers) -> None:
    """Pairs of several requests that wait together are run in one call, and each round counts the call."""
    model = SumModel()
    model.gate.clear()
    with worker_pool(1) as one:
        engine = engine_of(model, one, _BUDGET)
        blocking = asyncio.create_task(run_on(engine, ["blocks"]))
        await asyncio.to_thread(model.entered.acquire)
        costs = []

        async def ask(query: str) -> list[float]:
            with engine.round(query, ["aa", "bb"], deadline_in()) as round_:
                scores = await round_.done()
            costs.append(round_.cost())
            return scores

        asked = [asyncio.create_task(ask(query)) for query in ("x", "y")]
        await until(lambda: engine.congestion(time.monotonic).waiting == 4)
        congestion = engine.congestion(time.monotonic)
        assert congestion.running == 1
        assert congestion.queue_ms is not None
        assert congestion.queue_ms > 0
        model.gate.set()
        assert await asyncio.gather(*asked) == [[score_of(q, t) for t in ("aa", "bb")] for q in ("x", "y")]
        await blocking
    assert sorted(map(sorted, model.batches)) == [["qblocks"], ["xaa", "xbb"], ["yaa", "ybb"]] or model.batches[1:] == [
        ["xaa", "xbb", "yaa", "ybb"]
    ]
    assert all(cost.calls >= 1 and cost.tokens == 6 for cost in costs)


async def test_work_of_a_waiter_that_has_gone_is_dropped(workers: Workers) -> None:
    """A cancelled round runs no further call, and the thread is free for others."""
    model = SumModel()
    model.gate.clear()
    with worker_pool(1) as one:
        engine = engine_of(model, one)
        task = asyncio.create_task(run_on(engine, [f"gone {number}" for number in range(50)]))
        await asyncio.to_thread(model.entered.acquire)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.congestion(time.monotonic).waiting == 0
        model.gate.set()
        assert await run_on(engine, ["here"]) == [score_of("q", "here")]
    assert len(model.batches) == 2


async def test_a_round_past_its_deadline_ends_as_a_timeout(workers: Workers) -> None:
    """What is past its deadline before a thread takes it up is not run, and its waiter is told."""
    model = SumModel()
    with pytest.raises(NotRun) as caught:
        await run_on(engine_of(model, workers), ["late"], deadline=deadline_in(-1))
    assert caught.value.kind is StageTimeout
    assert model.batches == []


@pytest.mark.parametrize("batching", [ONE_PAIR, _BUDGET])
async def test_a_model_that_raises_ends_the_rounds_of_that_call_only(workers: Workers, batching: Batching) -> None:
    """The fault names no text, others go on, and the threads work on."""
    faults: list[BaseException] = []
    engine = engine_of(SumModel(poison="!"), workers, batching, count_fault=faults.append)
    with pytest.raises(NotRun, match=r"^model_failed$") as caught:
        await run_on(engine, ["well", "poison!"])
    assert caught.value.kind is StageInvalidAnswer
    assert caught.value.__context__ is None
    for _ in range(5):
        assert await run_on(engine, ["well"]) == [score_of("q", "well")]
    assert [type(fault) for fault in faults] == [RuntimeError]


async def test_a_round_that_shared_a_call_that_failed_gets_its_scores() -> None:
    """What the model cannot run is one request's: the others of the call are run without it, and it is counted once."""
    faults: list[BaseException] = []
    model = SumModel(poison="!")
    model.gate.clear()
    with worker_pool(1) as one:
        engine = engine_of(model, one, _BUDGET, count_fault=faults.append)
        blocking = asyncio.create_task(run_on(engine, ["a text that is in no batch with others"]))
        await asyncio.to_thread(model.entered.acquire)
        deadline = deadline_in()
        asked = [asyncio.create_task(run_on(engine, [text], "q", deadline)) for text in ("aa", "b!", "cc")]
        await until(lambda: engine.congestion(time.monotonic).waiting == 3)
        model.gate.set()
        ended = await asyncio.gather(*asked, return_exceptions=True)
        await blocking
    assert ["qaa", "qb!", "qcc"] in [sorted(batch) for batch in model.batches]
    assert [ended[0], ended[2]] == [[score_of("q", "aa")], [score_of("q", "cc")]]
    assert isinstance(ended[1], NotRun)
    assert ended[1].code == "model_failed"
    assert [type(fault) for fault in faults] == [RuntimeError]


async def test_a_text_that_cannot_be_read_ends_its_round_only(workers: Workers) -> None:
    """What the tokenizer raises is a fault of that round."""
    engine = engine_of(SumModel(), workers)
    with pytest.raises(NotRun, match=r"^model_failed$"):
        await run_on(engine, ["unreadable"])
    assert await run_on(engine, ["well"]) == [score_of("q", "well")]


async def test_threads_outlive_what_is_no_exception() -> None:
    """A library that panics, or a call that ends the thread it runs in, costs one round and no thread."""

    class Panics(SumModel):
        def run(self, inputs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            if len(inputs[0]) > 5:
                raise SystemExit
            return super().run(inputs)

    with worker_pool(1) as one:
        engine = engine_of(Panics(), one)
        for _ in range(3):
            with pytest.raises(NotRun):
                await run_on(engine, ["a long text"])
        assert await run_on(engine, ["ok"]) == [score_of("q", "ok")]


async def test_a_thread_that_dies_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault outside of all calls ends a thread; the next work finds another in its place."""
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: died.append(args.exc_type))
    with worker_pool(1) as one:
        engine = engine_of(SumModel(), one)
        assert await run_on(engine, ["before"]) == [score_of("q", "before")]
        engine.close()

        def dies(units: object) -> None:
            raise OSError

        lane = one.lane(ONE_PAIR, dies)
        failing = engine_of(SumModel(), one)
        failing._lane = lane
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_on(failing, ["kills"]), 0.5)
        one.remove(lane)
        assert await run_on(engine_of(SumModel(), one), ["after"]) == [score_of("q", "after")]
    assert died == [OSError]


async def test_closing_ends_all_waiters(workers: Workers) -> None:
    """Whoever waits when a model is given back is told; afterwards nothing is taken."""
    model = SumModel()
    model.gate.clear()
    engine = engine_of(model, workers)
    tasks = [asyncio.create_task(run_on(engine, ["a", "b", "c"])) for _ in range(4)]
    await asyncio.to_thread(model.entered.acquire)
    engine.close()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    model.gate.set()
    assert all(isinstance(each, NotRun) and each.kind is StageUnreachable for each in ended)
    with pytest.raises(NotRun, match="closed"):
        await run_on(engine, ["later"])


async def test_closing_the_threads_ends_all_waiters() -> None:
    """The end of the process leaves nobody waiting, and no thread."""
    model = SumModel()
    model.gate.clear()
    workers = worker_pool(1)
    engine = engine_of(model, workers)
    task = asyncio.create_task(run_on(engine, ["a", "b", "c"]))
    await asyncio.to_thread(model.entered.acquire)
    closing = asyncio.create_task(asyncio.to_thread(workers.close))
    with pytest.raises(NotRun, match="closed"):
        await task
    model.gate.set()
    await closing
    assert not workers._running
    with pytest.raises(NotRun, match="closed"):
        await run_on(engine, ["later"])


async def test_more_than_the_bound_never_waits() -> None:
    """Over it a round is refused at once; one that finds nobody waiting, or has no deadline, is taken."""
    model = SumModel()
    model.gate.clear()
    with Workers(1, most_waiting=5) as one:
        engine = engine_of(model, one)
        large = asyncio.create_task(run_on(engine, ["x"] * 9))
        await asyncio.to_thread(model.entered.acquire)
        with pytest.raises(NotRun, match="queue_full") as caught:
            await run_on(engine, ["y"])
        assert caught.value.kind is StageOverloaded
        free = asyncio.create_task(run_on(engine, ["z"], deadline=Deadline(math.inf, time.monotonic)))
        await asyncio.sleep(0)
        model.gate.set()
        assert len(await large) == 9
        assert await free == [score_of("q", "z")]
        assert await run_on(engine, ["y"]) == [score_of("q", "y")]


async def test_the_best_window_is_the_score_of_a_text(workers: Workers) -> None:
    """A text in several windows is one result, the highest; windows beyond the first are counted, and so is what was cut."""
    model = SumModel()
    with engine_of(model, workers).round("q", ["a|zz|b", "c", "d~"], deadline_in()) as round_:
        assert await round_.done() == [score_of("q", "zz"), score_of("q", "c"), score_of("q", "d~")]
    cost = round_.cost()
    assert (cost.windows, cost.truncated, cost.calls, cost.tokens) == (2, 1, 5, 12)
    assert sorted(chain.from_iterable(model.batches)) == ["qa", "qb", "qc", "qd~", "qzz"]


async def test_the_cost_tells_padding_and_times(workers: Workers) -> None:
    """Padding is what a batch has beside its tokens; times are told, each at least nothing."""
    with engine_of(SumModel(), workers, _BUDGET).round("q", ["a", "aaaa"], deadline_in()) as round_:
        await round_.done()
    cost = round_.cost()
    assert not cost.tokens_estimated
    assert (cost.tokens, cost.calls, cost.padding) in {(7, 1, 3), (7, 2, 0)}
    assert [cost.server_ms, cost.room_ms] == [None, None]
    assert all(ms is not None and ms >= 0 for ms in (cost.queue_ms, cost.tokenize_ms, cost.compute_ms))


async def test_a_round_that_is_left_before_a_call_for_it_began_has_waited_until_then() -> None:
    """It stood in the queue for all of its time; of one that began, what it waits for afterwards is no queue."""
    clock, model = SetClock(), SumModel()
    model.gate.clear()
    with Workers(1, clock=clock) as one:
        engine = engine_of(model, one)
        with engine.round("q", ["a"], deadline_in()) as running:
            await asyncio.to_thread(model.entered.acquire)
            clock.advance(1.0)
            with engine.round("q", ["b"], deadline_in()) as waiting:
                clock.advance(2.0)
            clock.advance(4.0)
        clock.advance(8.0)
        model.gate.set()
    assert (waiting.cost().queue_ms, waiting.cost().calls) == (2000.0, 0)
    assert running.cost().queue_ms == 0.0


async def test_an_urgent_round_of_another_stage_goes_first() -> None:
    """Threads look at the queues of all stages: the deadline decides, not the stage."""
    order: list[str] = []

    class Named(SumModel):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        def run(self, inputs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            order.append(self._name)
            return super().run(inputs)

    with worker_pool(1) as one:
        first, second = Named("patient"), Named("hurried")
        patient, hurried = engine_of(first, one), engine_of(second, one)
        first.gate.clear()
        waits = asyncio.create_task(run_on(patient, ["a", "b", "c"], deadline=deadline_in(60)))
        await asyncio.to_thread(first.entered.acquire)
        goes = asyncio.create_task(run_on(hurried, ["d", "e"], deadline=deadline_in(30)))
        await until(lambda: hurried.congestion(time.monotonic).waiting == 2)
        first.gate.set()
        await asyncio.gather(waits, goes)
    assert order == ["patient", "hurried", "hurried", "patient", "patient"]
