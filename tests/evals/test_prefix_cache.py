"""The prefix cache, counted before and after at a server that keeps blocks as vLLM does."""

from __future__ import annotations

import pytest

from cascade.testing.chat import FakeChat
from evals.prefix_cache import PrefixCounters, measured, read_counters
from tests.contract.chat import ordering


@pytest.mark.parametrize("name", ["vllm:prefix_cache", "vllm:gpu_prefix_cache"])
def test_the_counters_of_every_engine_are_added_up(name: str) -> None:
    """Whatever vLLM calls them: tokens looked up and tokens found."""
    text = "".join(
        f"# TYPE {name}_{what} counter\n"
        f'{name}_{what}_total{{engine="0"}} {value}.0\n{name}_{what}_total{{engine="1"}} 5.0\n'
        f'{name}_{what}_created{{engine="0"}} 1.7e9\n'
        for what, value in (("queries", 100), ("hits", 40))
    )
    assert read_counters(text) == PrefixCounters(105, 45)
    assert read_counters("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1.0\n") is None


def test_a_counter_that_is_told_by_both_its_names_counts_once() -> None:
    """As of a version that renames it."""
    text = "".join(
        f"# TYPE vllm:{name}_{what} counter\nvllm:{name}_{what}_total {value}.0\n"
        for name in ("gpu_prefix_cache", "prefix_cache")
        for what, value in (("queries", 100), ("hits", 40))
    )
    assert read_counters(text) == PrefixCounters(100, 40)


async def test_lists_that_begin_alike_are_found_as_far_as_they_do() -> None:
    """The same lists again are found whole; changed at their end in part; changed at their head hardly at all."""
    server = FakeChat(caches=True)

    async def counters() -> PrefixCounters:
        return read_counters(server.metrics or "") or PrefixCounters(0, 0)

    async with ordering(server) as stage:
        told = await measured(stage, counters, queries=3, passages=10)
    share = {name: phase["share found"] for name, phase in told.items()}
    assert share["the same lists again"] > 0.95
    assert share["the same lists again"] > share["last passages changed"] > 0.4
    assert share["last passages changed"] > share["first passages changed"] >= share["new queries"] > 0.0
    assert all(phase["found"] == phase["found, as answers tell"] for phase in told.values())
    assert {phase["mended"] for phase in told.values()} == {0}
