"""``/score`` with a query for each document: groups of equal queries, and what their answers join to."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import orjson
import pytest

from cascade.errors import StageOverloaded
from cascade.telemetry.logs import configure_logging
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from cascade.types import StageName
from tests.server.sidecar import ROUTES, release_of, sidecar

_QUERIES = ["red fox", "blue bird", "red fox", "lone"]
_TEXTS = ["red fox", "bird", "fox", "lone wolf"]
_BODY = {"text_1": _QUERIES, "text_2": _TEXTS}


@pytest.mark.parametrize("path", ROUTES["vllm-score"])
async def test_documents_of_equal_queries_are_one_round(path: str) -> None:
    """Each query is one call of the small stage with all its documents; answers stand in input order."""
    served = sidecar()
    response = await served.post(path, _BODY)
    assert response.status_code == 200
    assert sorted(served.small.calls) == [["bird"], ["lone wolf"], ["red fox", "fox"]]
    data = response.json()["data"]
    assert [item["index"] for item in data] == [0, 1, 2, 3]
    assert data[0]["score"] > data[2]["score"]


async def test_a_query_with_one_document_goes_to_the_small_stage_alone() -> None:
    """There is nothing to order, so the large stage reads only the group that has two."""
    served = sidecar()
    response = await served.post("/score", _BODY)
    assert [sorted(texts) for texts in served.large.calls] == [["fox", "red fox"]]
    assert response.headers["x-cascade-stage"] == "small"
    assert "x-cascade-degraded" not in response.headers


async def test_a_query_with_one_document_goes_to_the_large_stage_where_the_small_one_fails() -> None:
    """A score is better than none."""
    served = sidecar(ScriptedStage(overlap, fails=StageOverloaded))
    response = await served.post("/score", _BODY)
    assert len(served.large.calls) == 3
    assert response.headers["x-cascade-stage"] == "large"
    assert response.headers["x-cascade-degraded"] == "stage_overloaded"


async def test_one_pair_is_a_request_like_any_other() -> None:
    """One query with one document, however it is written, is scored by both stages."""
    for query in ("red fox", ["red fox"]):
        served = sidecar()
        await served.post("/score", {"text_1": query, "text_2": ["fox"]})
        assert (served.small.calls, served.large.calls) == ([["fox"]], [["fox"]])


async def test_equal_queries_are_one_request() -> None:
    """A client that repeats the query for each document gets what one query gets."""
    repeated = await sidecar().post("/score", {"text_1": ["red fox"] * 3, "text_2": _TEXTS[:3]})
    plain = await sidecar().post("/score", {"text_1": "red fox", "text_2": _TEXTS[:3]})
    assert repeated.json()["data"] == plain.json()["data"]


def test_groups_run_at_once_within_one_deadline() -> None:
    """Ten groups take the time of one."""

    async def ask() -> float:
        slow = ScriptedStage(overlap, delay_ms=100)
        served = sidecar(slow, slow)
        began = served.service.clock()
        response = await served.post("/score", {"text_1": [f"q{n}" for n in range(10)], "text_2": ["a"] * 10})
        assert "x-cascade-degraded" not in response.headers
        return served.service.clock() - began

    assert run_virtual(ask()) == pytest.approx(0.1)


class _FailsSome(ScriptedStage):
    async def score(self, query: Any, documents: Any, **rest: Any) -> Any:
        if query.reveal() == "lone":
            raise StageOverloaded("scripted", "scripted", elapsed_ms=0.0, budget_ms=0.0)
        return await ScriptedStage.score(self, query, documents, **rest)


async def test_headers_and_the_line_tell_of_all_groups() -> None:
    """One decision is told: the first one's id, every reason, the weakest stage, sums of documents and rounds."""
    log = io.BytesIO()
    configure_logging("info", log)
    served = sidecar(_FailsSome(overlap), _FailsSome(overlap))
    response = await served.post("/score", {**_BODY, "text_2": ["red fox", "bird", "", "lone wolf"]})
    (line,) = map(orjson.loads, log.getvalue().splitlines())
    assert response.headers["x-cascade-decision-id"] == line["decision_id"] == "decision-1"
    assert response.headers["x-cascade-degraded"] == "stage_overloaded"
    assert response.headers["x-cascade-excluded"] == "1"
    assert response.headers["x-cascade-stage"] == line["stage"] == "retrieval"
    assert response.headers["x-cascade-score"] == "rank"
    assert (line["candidates"], line["depth"], line["top_n"]) == (4, 4, 4)
    assert sorted(line["escalated"]) == [0, 2, 3]
    assert [each["stage"] for each in line["rounds"]] == ["small", "large", "small", "small", "large"]
    assert (await served.metrics())['cascade_requests_total{dialect="vllm-score",stage="retrieval"}'] == 1


async def test_b9_one_group_that_is_refused_refuses_the_request() -> None:
    """Fail-closed holds for the whole answer; the 503 tells every group's reasons."""
    served = sidecar(_FailsSome(overlap), _FailsSome(overlap))
    response = await served.post("/score", _BODY, {"x-cascade-fail-closed": "1"})
    assert response.status_code == 503
    assert response.headers["x-cascade-decision-id"] == "decision-1"
    assert response.headers["x-cascade-degraded"] == "stage_overloaded"


async def test_a8_a_fault_of_ours_in_a_group_is_not_hidden() -> None:
    """An exception outside of the pipeline's own boundary is a 500, as for any request."""
    served = sidecar()

    def no_id() -> str:
        raise RuntimeError("canary")

    served.service.traffic.stable.pipeline._new_id = no_id
    assert (await served.post("/score", _BODY)).status_code == 500


async def test_c1_a_client_that_goes_away_cancels_every_group() -> None:
    """All groups' calls end with the request."""
    stage = ScriptedStage(overlap, delay_ms=600_000)
    served = sidecar(
        stage, release=release_of(budgets={"total_ms": 6e5, "small_ms": 6e5, "large_ms": 6e5, "reserve_ms": 1.0})
    )
    asking = asyncio.create_task(served.post("/score", _BODY))
    for _ in range(50):  # turns of the loop, in which the stage is called
        await asyncio.sleep(0)
    assert len(stage.calls) == 3
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert stage.cancelled == 3


class _Room:
    """A stage with room for 140 of 200 texts, by the share that may be busy; nothing of it is ever in flight."""

    in_flight, limit, oldest_wait_ms = 0, 200, 0.0


def test_a_level_above_decides_as_many_queries_of_a_body_as_it_has_room_for() -> None:
    """Of sixty queries with five pairs each for the large stage it has room for 28: a body fills no more than requests do."""

    async def play() -> None:
        levels = [{"name": "normal"}, {"name": "small-only", "escalation": "none"}]
        release = release_of(depth=10, escalation={"kind": "static", "top_m": 5}, levels=levels)
        slow = ScriptedStage(overlap, delay_ms=20)
        served = sidecar(slow, ScriptedStage(overlap, delay_ms=20), release=release)
        stepping = served.service.traffic.stable.stepping
        for name in StageName:
            if name is not StageName.RETRIEVAL:
                stepping.pressure.watch_stage(name, _Room())
        stepping.pin("small-only")
        stepping.pin(None)
        queries = [f"query {number}" for number in range(60) for _ in range(10)]
        response = await served.post("/score", {"text_1": queries, "text_2": [f"text {n}" for n in range(600)]})
        assert response.status_code == 200
        assert sum(map(len, served.large.calls)) == 28 * 5
        assert response.headers["x-cascade-level"] == "small-only"
        assert response.headers["x-cascade-stage"] == "small"

    run_virtual(play())
