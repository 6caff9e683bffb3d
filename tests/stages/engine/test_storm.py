"""Results under a storm of cancellations, late rounds and faults."""

from __future__ import annotations

import asyncio
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.stages.engine.batching import ONE_PAIR, Batching
from cascade.stages.engine.round import NotRun
from cascade.stages.engine.workers import worker_pool

from .arrange import SumModel, deadline_in, engine_of, run_on, score_of

_round = st.tuples(
    st.lists(st.text("abcdefgh|", max_size=24), max_size=8),
    st.sampled_from(["stays", "stays", "cancelled", "hurried", "poisoned"]),
    st.integers(0, 3),  # turns of the loop before it is cancelled, or waited for
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(_round, min_size=1, max_size=12),
    st.sampled_from([ONE_PAIR, Batching(64, 4), Batching(100, 8, 2.0)]),
    st.integers(1, 3),
)
def test_nothing_is_lost_or_mixed_up_in_a_storm(
    rounds: list[tuple[list[str], str, int]], batching: Batching, threads: int
) -> None:
    """Rounds come and are cancelled, run late or fail: who stays gets its own scores."""

    async def storm() -> None:
        with worker_pool(threads) as workers:
            engine = engine_of(SumModel(poison="!"), workers, batching)

            async def one(number: int, texts: list[str], fate: str, turns: int) -> list[float] | str:
                query = f"{number} "
                asked = [*texts, "!"] if fate == "poisoned" else texts
                deadline = deadline_in(0.0005 if fate == "hurried" else 60)
                task = asyncio.create_task(run_on(engine, asked, query, deadline))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if fate == "cancelled":
                    task.cancel()
                try:
                    return await task
                except asyncio.CancelledError:
                    return "cancelled"
                except NotRun as fault:
                    return fault.code

            told = await asyncio.wait_for(
                asyncio.gather(*(one(number, *each) for number, each in enumerate(rounds))), 30
            )
            for number, ((texts, fate, _), said) in enumerate(zip(rounds, told, strict=True)):
                if isinstance(said, list):
                    query = f"{number} "
                    asked = [*texts, "!"] if fate == "poisoned" else texts
                    assert said == [max(score_of(query, part) for part in text.split("|")) for text in asked]
                    assert fate != "poisoned"
                else:
                    allowed = {
                        "stays": set(),
                        "cancelled": {"cancelled"},
                        "hurried": {"deadline", "no_time"},
                        "poisoned": {"model_failed"},
                    }
                    assert said in allowed[fate]
            congestion = engine.congestion(time.monotonic)
            assert congestion.waiting == 0
            assert not engine._lane.rounds

    asyncio.run(storm())
