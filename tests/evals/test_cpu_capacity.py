"""The capacity bench of embedded stages: its search, its cost, its releases and its requests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
from aiohttp import web

from cascade.policy.release import OnnxStage, parse_release
from cascade.tokens import PAIR_OVERHEAD_TOKENS
from cascade.tuning.lengths import LengthSamples
from cascade.tuning.texts import Words
from evals.bench.cpu_capacity import main, release_of
from evals.bench.cpu_rate import (
    Probed,
    breakeven_rate,
    confirmed,
    cost_of_1000,
    highest_rate,
    requests_of_probe,
)
from evals.bench.cpu_requests import Bodies, Target, mixed_lengths, probed

_WORDS = Words(("water", "light", "house", "road"), (1, 1, 1, 1))


def _searched(true_rate: float, low: float, high: float, steps: int = 6) -> tuple[float | None, list[float]]:
    """Search for a rate that holds up to ``true_rate``; return what was found and the rates that were probed."""

    async def probe(rate: float) -> Probed:
        return Probed(rate, 1, 1, 0, 0, 0, 1.0, 1.0, holds=rate <= true_rate)

    found, probes = asyncio.run(highest_rate(probe, low, high, steps))
    return found, [each.rate for each in probes]


def test_the_highest_rate_is_found_from_above() -> None:
    """Within the ratio of the ends to the power of 2^-steps, never above what holds; the low end is not probed."""
    found, rates = _searched(3.0, 1.0, 10.0)
    assert found is not None
    assert 3.0 * 10.0 ** (-1 / 64) <= found <= 3.0
    assert rates[0] == 10.0
    assert 1.0 not in rates


def test_a_high_end_that_holds_is_raised() -> None:
    """The search goes on above it."""
    found, rates = _searched(30.0, 1.0, 10.0)
    assert rates[:4] == [10.0, 15.0, 22.5, 33.75]
    assert found is not None
    assert 29.0 < found <= 30.0


def test_where_nothing_holds_there_is_no_rate() -> None:
    """The low end is probed last, and counts where it holds."""
    found, rates = _searched(0.5, 1.0, 10.0, 3)
    assert (found, rates[-1]) == (None, 1.0)
    found, rates = _searched(1.0, 1.0, 10.0, 3)
    assert (found, rates[-1]) == (1.0, 1.0)
    with pytest.raises(ValueError, match="the low one below"):
        _searched(1.0, 2.0, 2.0)


def test_a_search_ends_where_every_rate_holds() -> None:
    """Else it would go on for ever."""
    with pytest.raises(ValueError, match="every rate holds"):
        _searched(math.inf, 1.0, 10.0)


def test_a_rate_is_told_once_it_held_again() -> None:
    """Lowered by a twentieth each time; where it never does there is none."""

    def found(true_rate: float) -> tuple[float | None, int]:
        async def probe(rate: float) -> Probed:
            return Probed(rate, 1, 1, 0, 0, 0, 1.0, 1.0, holds=rate <= true_rate)

        rate, probes = asyncio.run(confirmed(probe, 10.0, 3))
        return rate, len(probes)

    assert found(10.0) == (10.0, 1)
    lowered, probes = found(9.6)
    assert lowered == pytest.approx(9.5)
    assert probes == 2
    assert found(1.0) == (None, 3)


def test_a_probe_is_long_enough_to_see_a_queue_grow() -> None:
    """As many as asked for, or as come in its time; but 20, and those of five deadlines, at the least."""
    sizes = [requests_of_probe(rate, most=100, seconds=60.0, deadline_ms=3000.0) for rate in (0.1, 1.0, 2.0, 40.0)]
    assert sizes == [20, 60, 100, 600]


def test_cost_is_that_of_a_machine_kept_busy() -> None:
    """At 3.6 an hour and one query a second, a thousand cost one; twice the price needs twice the rate."""
    assert cost_of_1000(3.6, 1.0) == pytest.approx(1.0)
    assert cost_of_1000(0.36, 2.0) == pytest.approx(0.05)
    assert breakeven_rate(0.1, 1.5, 0.8) == pytest.approx(12.0)


def test_releases_are_the_packaged_one_without_levels() -> None:
    """The large stage alone scores every candidate; the cascade is as it ships. Both may use the whole deadline."""
    large, cascade = (parse_release(release_of(target, 1000)) for target in ("large", "cascade"))
    assert large.stages.small is None
    assert isinstance(large.stages.large, OnnxStage)
    assert large.levels == cascade.levels == ()
    assert cascade.stages.small is not None
    assert (large.budgets.total_ms, cascade.budgets.large_ms) == (1000, 1000)


def _bodies(known_share: float = 0.0, candidates: int = 4) -> Bodies:
    return Bodies(_WORDS, mixed_lengths(1), candidates=candidates, deadline_ms=500, known_share=known_share, seed=1)


def test_bodies_are_requests_of_the_native_route() -> None:
    """As many candidates as asked for, of the lengths asked for; no text comes twice unless it is known."""
    bodies = _bodies()
    read = [orjson.loads(next(bodies)) for _ in range(20)]
    assert {len(body["candidates"]) for body in read} == {4}
    assert {body["deadline_ms"] for body in read} == {500}
    texts = [candidate["text"] for body in read for candidate in body["candidates"]]
    assert len(set(texts)) == len(texts)
    assert max(len(text.split()) for text in texts) <= 400
    known = _bodies(1.0)
    again = [candidate["text"] for _ in range(200) for candidate in orjson.loads(next(known))["candidates"]]
    assert len(set(again)) <= 500 < len(again)


def test_bodies_are_as_long_as_a_users_pairs() -> None:
    """A file of lengths beyond those of the bench's own is not cut to them."""
    lengths = LengthSamples("mine", ((5, 508),))
    bodies = Bodies(_WORDS, lengths, candidates=1, deadline_ms=500, known_share=0.0, seed=1)
    (candidate,) = orjson.loads(next(bodies))["candidates"]
    assert len(candidate["text"].split()) == 508 - 5 - PAIR_OVERHEAD_TOKENS


@asynccontextmanager
async def _answering(*, degraded_every: int = 0, status: int = 200, wait_s: float = 0.0) -> AsyncIterator[str]:
    """Answer on the loopback, each ``degraded_every``-th with the header of a degraded answer."""
    came = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal came
        came += 1
        number = came
        await request.read()
        await asyncio.sleep(wait_s)
        degraded = bool(degraded_every) and number % degraded_every == 0
        return web.Response(status=status, headers={"x-cascade-degraded": "stage_timeout"} if degraded else {})

    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def test_answers_in_time_and_undegraded_are_good() -> None:
    """All of them, where nothing goes wrong."""
    async with _answering() as url:
        found = await probed(Target(url, 60_000), _bodies(), 2000.0, 30, 1)
    assert (found.requests, found.good, found.holds) == (30, 30, True)


async def test_degraded_and_failed_answers_end_a_probe() -> None:
    """One in a hundred may be bad; at the second of 100 no more are sent, and it does not hold."""
    async with _answering(degraded_every=150) as url:
        found = await probed(Target(url, 60_000), _bodies(0.0, 1), 2000.0, 200, 1)
    assert (found.degraded, found.requests, found.holds) == (1, 200, True)
    async with _answering(degraded_every=1) as url:
        found = await probed(Target(url, 60_000), _bodies(0.0, 1), 100.0, 200, 1)
    assert not found.holds
    assert found.good == 0
    assert 3 <= found.degraded < 200
    async with _answering(status=503) as url:
        assert (await probed(Target(url, 60_000), _bodies(), 2000.0, 5, 1)).failed >= 1


async def test_a_late_answer_is_late_whatever_it_holds() -> None:
    """Time counts from when a request was due."""
    async with _answering(wait_s=0.05) as url:
        found = await probed(Target(url, 1), _bodies(), 2000.0, 3, 1)
    assert found.late >= 1
    assert not found.holds


def test_a_file_that_cannot_be_written_is_told_before_hours_of_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder is not there."""
    with pytest.raises(SystemExit):
        main(["--json", "/no/such/file.json"])
    assert "--json: its folder is not there" in capsys.readouterr().err
