"""A pinned load level, over HTTP."""

from __future__ import annotations

import pytest

from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from tests.server.sidecar import BODIES, LEVELS, ROUTES, release_of, sidecar

_ALL = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths]
_TEXTS = ["one", "two query", "query"]


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_a_level_above_normal_is_told_in_every_dialect(dialect: str, path: str) -> None:
    """The header names it, and the reason says that the answer was come by otherwise."""
    served = sidecar(release=release_of(levels=LEVELS), level="degraded-1")
    answer = await served.post(path, BODIES[dialect]("query", _TEXTS))
    assert answer.status_code == 200
    assert answer.headers["x-cascade-level"] == "degraded-1"
    assert answer.headers["x-cascade-degraded"] == "load_level"
    assert answer.headers["x-cascade-stage"] == "small"
    assert (len(served.small.calls), len(served.large.calls)) == (1, 0)


@pytest.mark.parametrize("level", [None, "normal"])
@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_the_first_level_is_told_in_no_dialect(dialect: str, path: str, level: str | None) -> None:
    """As if there were no levels."""
    served = sidecar(release=release_of(levels=LEVELS), level=level)
    answer = await served.post(path, BODIES[dialect]("query", _TEXTS))
    assert "x-cascade-level" not in answer.headers
    assert "x-cascade-degraded" not in answer.headers
    assert answer.headers["x-cascade-stage"] == "large"


async def test_a_level_that_changes_nothing_for_a_request_is_no_degradation() -> None:
    """Two candidates are all scored at a depth of two; the level is named all the same."""
    levels = [{"name": "normal"}, {"name": "shallow", "depth": 2}]
    served = sidecar(release=release_of(levels=levels), level="shallow")
    answer = await served.post("/rerank", BODIES["tei"]("query", _TEXTS[:2]))
    assert answer.headers["x-cascade-level"] == "shallow"
    assert "x-cascade-degraded" not in answer.headers
    answer = await served.post("/rerank", BODIES["tei"]("query", _TEXTS))
    assert answer.headers["x-cascade-degraded"] == "load_level"
    assert served.small.calls[-1] == _TEXTS[:2]


async def test_without_stages_the_answer_is_first_stage_order_and_no_stage_is_asked() -> None:
    """What clients are told of the model stays what it was, and so does what they may ask."""
    served = sidecar(release=release_of(levels=LEVELS), level="degraded-3")
    answer = await served.post("/rerank", BODIES["tei"]("query", _TEXTS))
    assert [item["index"] for item in answer.json()] == [0, 1, 2]
    assert answer.headers["x-cascade-stage"] == "retrieval"
    assert answer.headers["x-cascade-score"] == "rank"
    assert (served.small.calls, served.large.calls) == ([], [])
    usual = sidecar(release=release_of(levels=LEVELS))
    assert (await served.public.get("/info")).json() == (await usual.public.get("/info")).json()


async def test_an_instruction_is_not_refused_for_what_load_did() -> None:
    """The stages that would take it are not asked; the caller may say it all the same."""
    stages = [ScriptedStage(overlap, takes_instruction=True) for _ in range(2)]
    served = sidecar(*stages, release=release_of(levels=LEVELS), level="degraded-3")
    body = {**BODIES["native"]("query", _TEXTS), "instruction": "prefer verbs"}
    assert (await served.post("/v1/cascade/rerank", body)).status_code == 200


async def test_explain_and_status_and_the_gauge_name_the_level() -> None:
    """An operator sees which of which is served, a caller which decided."""
    served = sidecar(release=release_of(levels=LEVELS), level="degraded-2")
    body = {**BODIES["native"]("query", _TEXTS), "explain": True}
    told = (await served.post("/v1/cascade/rerank", body)).json()
    assert (told["explain"]["load_level"], told["explain"]["depth"]) == ("degraded-2", 2)
    assert told["degraded"] == ["load_level"]
    status = (await served.admin.get("/status")).json()
    assert (status["level"], status["levels"]) == ("degraded-2", [level["name"] for level in LEVELS])
    assert set(status["stages"]) == {"small", "large"}
    assert (status["stepping"]["why"], status["stepping"]["pinned"]) == ("pinned", True)
    metrics = await served.metrics()
    assert metrics["cascade_level"] == 2
    assert metrics['cascade_degraded_total{reason="load_level"}'] == 1


async def test_a_caller_that_wants_no_degraded_answer_gets_an_error_with_the_level() -> None:
    """Fail-closed holds for what load did, as for anything else."""
    served = sidecar(release=release_of(levels=LEVELS), level="degraded-1")
    answer = await served.post("/rerank", BODIES["tei"]("query", _TEXTS), {"x-cascade-fail-closed": "1"})
    assert answer.status_code == 503
    assert answer.headers["x-cascade-level"] == "degraded-1"
    assert answer.headers["x-cascade-degraded"] == "load_level"
