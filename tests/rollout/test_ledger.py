"""What is told of a rollout's end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, TypeVar

from cascade.rollout.history import Happened
from cascade.rollout.ledger import Ledger
from cascade.telemetry.metrics import Metrics

from .desk_fakes import FakeKeeps

Result = TypeVar("Result")


def test_each_end_of_a_rollout_is_counted_once_by_what_came_of_it() -> None:
    """Steps between are none; one that another release replaced was aborted."""
    metrics = Metrics()
    ledger = Ledger(ended=metrics.arms.rolled_out)
    for what in Happened:
        ledger.note(what, "r2", "sha256:0")
    counted = {
        outcome: metrics.registry.get_sample_value("cascade_rollouts_total", {"outcome": outcome})
        for outcome in ("completed", "rolled_back", "aborted", "refused")
    }
    assert counted == {"completed": 1, "rolled_back": 1, "aborted": 2, "refused": 1}


class _SlowOnce:
    """Work in threads, of which the first waits until it is let go; who waits for one cannot end it."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may_go = asyncio.Event()
        self.threads: list[asyncio.Future[Any]] = []

    async def __call__(self, work: Callable[[], Result], /) -> Result:
        thread = asyncio.ensure_future(self._done(work, waits=not self.threads))
        self.threads.append(thread)
        return await asyncio.shield(thread)

    async def _done(self, work: Callable[[], Result], *, waits: bool) -> Result:
        self.began.set()
        if waits:
            await self.may_go.wait()
        return work()


async def test_a_write_that_nobody_waits_for_any_more_lands_before_the_next() -> None:
    """The process stops while one is under way: what it wrote last is what is kept."""
    keeps, disk = FakeKeeps(), _SlowOnce()
    ledger = Ledger(keeps=keeps, off_loop=disk)
    ledger.set(seen="old")
    first = asyncio.create_task(ledger.save())
    await disk.began.wait()
    first.cancel()
    await asyncio.wait([first])
    ledger.set(seen="new")
    last = asyncio.create_task(ledger.save())
    for _ in range(5):
        await asyncio.sleep(0)
    disk.may_go.set()
    await last
    await asyncio.gather(*disk.threads)
    kept = keeps.read()
    assert kept is not None
    assert (first.cancelled(), kept.seen, keeps.writes) == (True, "new", 2)


async def test_that_the_state_cannot_be_kept_is_told_until_it_is() -> None:
    """Each try, by what came of it, and why the last one failed; what is kept already is no try."""
    tries: list[bool] = []
    keeps = FakeKeeps(fails=OSError(errno.ENOSPC, "No space left on device"))
    ledger = Ledger(keeps=keeps, kept=tries.append)
    await ledger.save()
    await ledger.save()
    assert (tries, ledger.fault) == ([False, False], "No space left on device")
    keeps.fails = None
    await ledger.save()
    await ledger.save()
    assert (tries, ledger.fault) == ([False, False, True], None)
