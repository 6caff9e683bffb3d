"""The threads and their lock: what they hold on to, and what becomes of them."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from pathlib import Path

import pytest

from cascade.errors import StageOverloaded
from cascade.stages.engine.round import NotRun
from cascade.stages.engine.workers import worker_pool
from cascade.stages.onnx import OnnxReranker
from tests.stages.onnx_arrange import onnx_spec, reranker

from .arrange import SumModel, deadline_in, engine_of, run_on, score_of, until


def test_a_round_is_left_where_it_is_collected_as_garbage() -> None:
    """That may happen in a thread that has the lock: one of an event loop that was closed under it."""
    with worker_pool(1) as one:
        model = SumModel()
        model.gate.clear()
        engine = engine_of(model, one)

        async def waits() -> None:
            with engine.round("q", ["a", "b"], deadline_in()) as round_:
                await round_.done()

        loop = asyncio.new_event_loop()
        task = loop.create_task(waits())
        loop.call_exception_handler = lambda context: None  # type: ignore[method-assign]  # it is pending, as is wanted
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        collected = weakref.ref(task)
        del task
        model.gate.set()
        for _ in range(2):
            model.entered.acquire(timeout=30)

        def collects() -> None:
            for _ in range(10_000):
                with one.lock:
                    gc.collect()
                if collected() is None:
                    return
                time.sleep(0.001)

        collecting = threading.Thread(target=collects, daemon=True)
        collecting.start()
        collecting.join(30)
        assert not collecting.is_alive()
        assert collected() is None


async def test_a_system_that_gives_no_thread_costs_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, and counts as waiting no more; the next one finds a thread."""

    def refuses(self: threading.Thread) -> None:
        raise RuntimeError

    with worker_pool(2) as two:
        engine = engine_of(SumModel(), two)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuses)
            with pytest.raises(NotRun, match="no_thread") as caught:
                await run_on(engine, ["a"])
        assert caught.value.kind is StageOverloaded
        assert engine.congestion(time.monotonic).waiting == 0
        assert await run_on(engine, ["a"]) == [score_of("q", "a")]


async def test_a_thread_that_waits_keeps_no_model_that_was_given_back() -> None:
    """Memory of a stage that is closed is free, also where no other work comes."""
    with worker_pool(1) as one:
        model = SumModel()
        engine = engine_of(model, one)
        await run_on(engine, ["a"])
        kept = weakref.ref(model)
        engine.close()
        del engine, model
        await until(lambda: gc.collect() >= 0 and kept() is None)


async def test_a_stage_whose_loading_was_given_up_leaves_nothing_behind(
    cross_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that loads goes on by itself; what it has made then is held by nobody."""
    made = []
    loading, goes_on = threading.Event(), threading.Event()
    load = OnnxReranker._load

    def slowly(self: OnnxReranker) -> object:
        loading.set()
        goes_on.wait(30)
        engine = load(self)
        made.append(weakref.ref(engine))
        return engine

    monkeypatch.setattr(OnnxReranker, "_load", slowly)
    with worker_pool(1) as one:
        stage = reranker(onnx_spec(cross_encoder), one)
        starting = asyncio.create_task(stage.start())
        await asyncio.to_thread(loading.wait)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await stage.aclose()
        goes_on.set()
        await until(lambda: bool(made) and gc.collect() >= 0 and made[0]() is None)
