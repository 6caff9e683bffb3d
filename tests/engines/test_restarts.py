"""Servers that are killed and come back: a stage that was built once goes through it."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pytest

from cascade.errors import StageError, StageUnreachable
from cascade.stages.base import Stage

from .pairs import BATCHES_DIFFER, QUERY, documents
from .rounds import open_stage, score
from .servers import Server, infinity_server, llamacpp_server, vllm_server

pytestmark = pytest.mark.engines

_FEW = documents(9)
_MANY = [text * 4 for text in documents(200)]


class Run(Protocol):
    """Run a server, on a given port or any."""

    def __call__(self, logs: Path, *, port: int | None = None) -> AbstractContextManager[Server]:
        """Yield the server once it is healthy."""
        ...


async def _failure(stage: Stage, texts: list[str], *, soon: Callable[[], None] = lambda: None) -> StageError:
    """Return how a round fails when ``soon`` is done to the server a moment after its start."""
    round_ = asyncio.create_task(score(stage, QUERY, texts))
    await asyncio.sleep(0.05)
    soon()
    with pytest.raises(StageError) as caught:
        await round_
    return caught.value


@pytest.mark.parametrize(
    ("adapter", "run"),
    [("infinity", infinity_server), ("llamacpp", llamacpp_server), ("vllm", vllm_server)],
    ids=["infinity", "llamacpp", "vllm"],
)
async def test_a_killed_server_fails_rounds_at_once_and_is_used_again_when_it_is_back(
    logs: Path, adapter: str, run: Run
) -> None:
    """The round under way and the next ones fail as unreachable; with the server back, scores are what they were."""
    with run(logs) as server:
        async with open_stage(server, adapter, chunk_texts=4, max_in_flight_texts=4) as stage:
            before = await score(stage, QUERY, _FEW)
            under_way = await _failure(stage, _MANY, soon=lambda: os.killpg(server.pid, signal.SIGKILL))
            away = await _failure(stage, _FEW)
            with run(logs, port=urlsplit(server.base_url).port):
                after = await score(stage, QUERY, _FEW)
    assert isinstance(under_way, StageUnreachable)
    assert isinstance(away, StageUnreachable)
    assert after.scores == pytest.approx(before.scores, abs=BATCHES_DIFFER)
