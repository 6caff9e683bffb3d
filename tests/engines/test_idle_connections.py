"""Connections that have been idle for about as long as servers keep them."""

import asyncio

import pytest

from cascade.errors import StageError

from .pairs import QUERY, documents
from .rounds import open_stage, score
from .servers import Server

pytestmark = pytest.mark.engines

_SERVER_KEEPS_S = 5.0
"""How long uvicorn and llama.cpp keep an idle connection."""


@pytest.mark.parametrize(("name", "adapter"), [("llamacpp", "tei"), ("vllm", "vllm")], ids=["llamacpp", "vllm"])
async def test_no_round_is_lost_to_a_connection_that_the_server_drops(
    request: pytest.FixtureRequest, name: str, adapter: str
) -> None:
    """A round that starts just as the server drops its idle connections is scored over new ones."""
    server: Server = request.getfixturevalue(name)
    texts = documents(8)

    async def outcome_after(idle_s: float) -> str:
        async with open_stage(server, adapter, chunk_texts=1) as stage:
            await score(stage, QUERY, texts)
            await asyncio.sleep(idle_s)
            try:
                await score(stage, QUERY, texts)
            except StageError as error:
                return error.code
        return "scored"

    idles = [_SERVER_KEEPS_S - 0.015 + 0.002 * step for step in range(16)]
    assert await asyncio.gather(*map(outcome_after, idles)) == ["scored"] * len(idles)
