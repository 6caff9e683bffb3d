"""Starts of which nobody heard the end are counted, until one settles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cascade.rollout.unsettled import UnsettledStarts
from cascade.testing.clock import run_virtual
from tests.rollout.desk_fakes import inline

_ONE, _OTHER = (f"sha256:{digit * 64}" for digit in "12")


def _counted(folder: Path) -> tuple[int, int]:
    starts = UnsettledStarts(folder)
    return starts.count(_ONE), starts.count(_OTHER)


def test_each_start_that_does_not_settle_counts_once_for_what_it_served_last(tmp_path: Path) -> None:
    """One that goes on to another release, as the first could not be served, says nothing of the first."""
    for _ in range(2):
        UnsettledStarts(tmp_path).begin(_ONE)
    starts = UnsettledStarts(tmp_path)
    starts.begin(_ONE)
    starts.begin(_OTHER)
    assert _counted(tmp_path) == (2, 1)


def test_a_start_that_settles_forgets_them_all(tmp_path: Path) -> None:
    """That of another release too: something serves."""
    UnsettledStarts(tmp_path).begin(_ONE)
    starts = UnsettledStarts(tmp_path)
    starts.begin(_OTHER)
    starts.settle()
    assert _counted(tmp_path) == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_start_settles_after_its_time_and_not_before(tmp_path: Path) -> None:
    """One whose process ends before has to settle by itself."""

    async def play() -> list[tuple[int, int]]:
        seen = []
        starts = UnsettledStarts(tmp_path)
        starts.begin(_ONE)
        for seconds in (59.0, 61.0):
            async with starts.settling(asyncio.Event(), off_loop=inline):
                await asyncio.sleep(seconds)
            seen.append(_counted(tmp_path))
        return seen

    assert run_virtual(play()) == [(1, 0), (0, 0)]


def test_a_disk_that_does_not_answer_holds_nothing_up(tmp_path: Path) -> None:
    """What a start left is cleared away off the loop: requests are answered there."""

    async def play() -> bool:
        asked = asyncio.Event()

        async def hung(work: Callable[[], Any], /) -> Any:
            asked.set()
            await asyncio.Event().wait()

        async with UnsettledStarts(tmp_path).settling(asyncio.Event(), off_loop=hung):
            await asyncio.sleep(61.0)
            return asked.is_set()

    assert run_virtual(play())


def test_a_start_that_is_told_to_stop_has_settled(tmp_path: Path) -> None:
    """However long its end takes: whoever told it may kill it meanwhile, as an orchestrator does."""

    async def play() -> list[tuple[int, int]]:
        stopping = asyncio.Event()
        starts = UnsettledStarts(tmp_path)
        starts.begin(_ONE)
        async with starts.settling(stopping, off_loop=inline):
            await asyncio.sleep(1)
            before = _counted(tmp_path)
            stopping.set()
            await asyncio.sleep(1)
            return [before, _counted(tmp_path)]

    assert run_virtual(play()) == [(1, 0), (0, 0)]


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"sha256:1": 3, "x": 4}', f'{{"{_ONE}": "3"}}'.encode()])
def test_counts_that_cannot_be_read_are_none(tmp_path: Path, content: bytes) -> None:
    """And are written anew."""
    (tmp_path / "starts.json").write_bytes(content)
    assert _counted(tmp_path) == (0, 0)
    UnsettledStarts(tmp_path).begin(_ONE)
    assert _counted(tmp_path) == (1, 0)


def test_where_nothing_can_be_kept_nothing_is_counted(tmp_path: Path) -> None:
    """The start goes on."""
    starts = UnsettledStarts(tmp_path / "none")
    starts.begin(_ONE)
    starts.settle()
    assert starts.count(_ONE) == 0
