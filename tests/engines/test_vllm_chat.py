"""vLLM with a tiny model that writes rubbish, as a listwise stage: what becomes of its orders, and its prefix cache."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade.errors import StageInvalidAnswer, StageTimeout
from cascade.policy.stage_specs import ChatStage
from cascade.stages.base import Stage
from cascade.stages.build import build_stage
from cascade.stages.congestion import read_load
from cascade.stages.engine.workers import worker_pool
from cascade.stages.upstream import Reply
from cascade.types import StageName
from evals.prefix_cache import PrefixCounters, measured, read_counters

from .pairs import QUERY, documents
from .rounds import AMPLE_MS, score
from .servers import Server
from .sidecar import release_of, sidecar

pytestmark = pytest.mark.engines

_COUNT = 20


@asynccontextmanager
async def _ordering(server: Server, **fields: Any) -> AsyncIterator[Stage]:
    """Give the started listwise stage of a server; passages are short enough for a model whose tokens are bytes."""
    declared = {"adapter": "chat", "url": server.base_url, "model": server.model, "engine": f"vllm/{server.version}"}
    spec = ChatStage.model_validate(
        {**declared, "max_length": 4096, "passage_tokens": 24, "answer_tokens": 256, **fields}
    )
    with worker_pool(1) as pool:
        stage = build_stage(StageName.LARGE, spec, budget_ms=AMPLE_MS, clock=time.monotonic, pool=pool, environment={})
        try:
            await stage.start()
            yield stage
        finally:
            await stage.aclose()


async def test_the_server_tells_what_it_is(vllm_chat: Server) -> None:
    """Its version and the room of its prompts, by the routes of its score API."""
    async with _ordering(vllm_chat) as stage:
        assert stage.observed is not None
        assert (stage.observed.version, stage.observed.max_length) == (vllm_chat.version, 4096)
        assert stage.unusable is None


@pytest.mark.parametrize("form", ["regex", "json-schema"])
async def test_rubbish_in_the_form_of_an_order_is_mended_into_a_permutation(vllm_chat: Server, form: str) -> None:
    """Held to the form, a random model names numbers twice and leaves others out: each document has one place all the same."""
    async with _ordering(vllm_chat, form=form) as stage:
        scored = await score(stage, QUERY, documents(_COUNT))
    assert sorted(value or 0.0 for value in scored.scores) == pytest.approx([(n + 1) / _COUNT for n in range(_COUNT)])
    assert scored.cost.repaired > 0
    assert (scored.cost.calls, scored.cost.tokens_estimated) == (1, False)
    assert scored.cost.tokens > 500


async def test_the_same_list_is_answered_with_the_same_order(vllm_chat: Server) -> None:
    """Temperature 0 and a seed: asked again, and asked with its prompt in the prefix cache."""
    async with _ordering(vllm_chat, form="regex") as stage:
        first, second, third = [await score(stage, QUERY, documents(_COUNT)) for _ in range(3)]
    assert first.scores == second.scores == third.scores


async def test_rubbish_is_refused_where_the_release_wants_whole_orders(vllm_chat: Server) -> None:
    """Held to the form it is a list with doubles; in plain text it is no order at all, under either rule."""
    async with _ordering(vllm_chat, form="regex", broken_order="refuse") as stage:
        with pytest.raises(StageInvalidAnswer, match="duplicate_index"):
            await score(stage, QUERY, documents(_COUNT))
    for rule in ("repair", "refuse"):
        async with _ordering(vllm_chat, broken_order=rule) as stage:
            with pytest.raises(StageInvalidAnswer, match=r"no_order|cut_order|not_bare"):
                await score(stage, QUERY, documents(_COUNT))


async def test_d9_a_prompt_beyond_the_servers_limit_is_cut_once_by_what_the_server_says(vllm_chat: Server) -> None:
    """Here a token is a byte, so the estimate is far too low: the server's own words lead to a prompt that fits."""
    async with _ordering(vllm_chat, form="regex", passage_tokens=64) as stage:
        scored = await score(stage, QUERY, [text * 40 for text in documents(_COUNT)])
    assert None not in scored.scores
    assert (scored.cost.calls, scored.cost.truncated) == (2, _COUNT)


async def test_what_is_cancelled_leaves_the_server(vllm_chat: Server) -> None:
    """A deadline ends the generation over there too."""
    async with _ordering(vllm_chat, form="regex") as stage, httpx.AsyncClient(trust_env=False) as client:
        await score(stage, QUERY, documents(_COUNT))
        with pytest.raises(StageTimeout):
            await score(stage, QUERY, documents(_COUNT), deadline_ms=60)
        async with asyncio.timeout(30):
            while await _running(client, vllm_chat):  # noqa: ASYNC110 - another process's counter
                await asyncio.sleep(0.05)


async def _running(client: httpx.AsyncClient, server: Server) -> float:
    answer = await client.get(f"{server.base_url}/metrics")
    told = read_load(Reply(200, {}, answer.content), 0.0)
    assert told is not None
    assert told.running is not None
    return told.running + (told.waiting or 0.0)


async def test_prefix_hits_are_counted_before_and_after(vllm_chat: Server) -> None:
    """A list that comes again is found nearly whole, one whose head changed hardly: by counters and by answers alike."""
    async with _ordering(vllm_chat, form="regex") as stage, httpx.AsyncClient(trust_env=False) as client:

        async def counters() -> PrefixCounters:
            await asyncio.sleep(0.2)  # they are written beside the answers
            found = read_counters((await client.get(f"{vllm_chat.base_url}/metrics")).text)
            assert found is not None
            return found

        told = await measured(stage, counters, queries=2, passages=_COUNT)
    again, last, first = (
        told[name] for name in ("the same lists again", "last passages changed", "first passages changed")
    )
    assert again["share found"] > 0.8
    assert again["found"] > last["found"] > first["found"]
    assert all(phase["found"] == phase["found, as answers tell"] for phase in told.values())


@pytest.mark.parametrize("rule", ["repair", "refuse"])
def test_the_sidecar_answers_whole_whatever_the_model_writes(
    tmp_path: Path, llamacpp: Server, vllm_chat: Server, rule: str
) -> None:
    """Mended, the large stage's order stands and says so; refused, the small order stands and is marked."""
    release = release_of("listwise", llamacpp, vllm_chat, adapter="chat", top_m=10)
    large = {"form": "regex", "broken_order": rule, "passage_tokens": 24, "max_length": 4096, "answer_tokens": 256}
    release["stages"]["large"] |= large
    texts = documents(31)
    with sidecar(tmp_path, release) as serving:
        reply = serving.post("/v1/rerank", {"query": QUERY, "documents": texts})
        small = serving.post("/v1/cascade/rerank", {"query": QUERY, "candidates": [{"text": text} for text in texts]})
        log = serving.log.read_text(encoding="utf-8")
    ranked = reply.json()["results"]
    assert reply.status_code == 200
    assert sorted(item["index"] for item in ranked) == list(range(31))
    assert sorted(item["index"] for item in small.json()["results"]) == list(range(31))
    assert "panda" not in log
    if rule == "repair":
        assert reply.headers["x-cascade-stage"] == "large"
        assert reply.headers["x-cascade-score"] == "rank"
        assert int(reply.headers["x-cascade-repaired"]) > 0
    else:
        assert reply.headers["x-cascade-stage"] == "small"
        assert reply.headers["x-cascade-degraded"] == "stage_invalid_answer"
