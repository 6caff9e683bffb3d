"""The description of the public listener."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from starlette.routing import Route

from cascade.server.app import public_app
from cascade.testing.stages import ScriptedStage
from tests.server.releases import another, served
from tests.server.schemas import fits
from tests.server.sidecar import BODIES, LEVELS, ROUTES, release_of, sidecar

_COMMITTED: Final = Path(__file__).parents[2] / "docs" / "openapi.json"


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema["$ref"].rpartition("/")[2]
    found: dict[str, Any] = document["components"]["schemas"][name]
    return found


async def test_the_committed_document_is_what_is_served() -> None:
    """``docs/openapi.json`` and ``/openapi.json`` say the same."""
    told = await sidecar().public.get("/openapi.json")
    assert told.headers["content-type"] == "application/json"
    assert told.json() == orjson.loads(_COMMITTED.read_bytes())


async def test_every_route_is_described_and_nothing_else() -> None:
    """Paths and methods of the document are those of the application."""
    served = sidecar()
    document = (await served.public.get("/openapi.json")).json()
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    routes = [route for route in public_app(served.service).routes if isinstance(route, Route)]
    routed = {(route.path, method) for route in routes for method in (route.methods or set()) - {"HEAD"}}
    assert described == routed


@pytest.mark.parametrize(("dialect", "path"), [(d, p) for d, paths in ROUTES.items() for p in paths])
async def test_the_request_schema_has_the_fields_that_are_sent(dialect: str, path: str) -> None:
    """A plain request of each dialect has every field that its schema requires, and only fields that it knows."""
    document = (await sidecar().public.get("/openapi.json")).json()
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schemas = [_resolved(document, each) for each in content.get("anyOf", [content])]
    body = BODIES[dialect]("q", ["a"])
    needed = [each.get("required") or next(pair["required"] for pair in each["anyOf"]) for each in schemas]
    assert any(
        set(required) <= set(body) <= set(schema["properties"])
        for required, schema in zip(needed, schemas, strict=True)
    )


async def test_every_header_of_an_answer_is_described() -> None:
    """Each ``x-cascade-`` header that an answer can carry is in the document."""
    document = (await sidecar().public.get("/openapi.json")).json()
    described = set(document["paths"]["/rerank"]["post"]["responses"]["200"]["headers"])
    down = ScriptedStage(lambda q, t: 0.0, fails=RuntimeError("down"))
    sent = await sidecar(large=down).post("/rerank", {**BODIES["tei"]("q", ["", "a"]), "top_n": 1})
    levelled = release_of(levels=LEVELS)
    mended = await sidecar(large=ScriptedStage(lambda q, t: 0.0, repaired=1)).post("/rerank", BODIES["tei"]("q", ["a"]))
    worse = await sidecar(release=levelled, level="degraded-3").post("/rerank", BODIES["tei"]("q", ["a"]))
    tried = served()
    tried.service.traffic.split(await another(tried), 1.0)
    canary = await tried.post("/rerank", BODIES["tei"]("q", ["a"]))
    seen = {
        name for answer in (sent, mended, worse, canary) for name in answer.headers if name.startswith("x-cascade-")
    }
    assert seen == described


async def test_every_header_of_a_refusal_is_described() -> None:
    """A 503 of a degraded order carries the headers that the document names, and no other of ours."""
    document = (await sidecar().public.get("/openapi.json")).json()
    described = set(document["paths"]["/rerank"]["post"]["responses"]["503"]["headers"])
    headers = {"x-request-timeout-ms": "0", "x-cascade-fail-closed": "1"}
    levelled = release_of(levels=LEVELS)
    tried = sidecar(release=levelled, level="degraded-3")
    tried.service.traffic.split(await another(tried, levels=LEVELS), 1.0)
    refused = await tried.post("/rerank", BODIES["tei"]("q", ["a"]), headers)
    assert {name for name in refused.headers if name.startswith(("x-", "retry-"))} == described


def _check(document: dict[str, Any], content: dict[str, Any], value: Any) -> None:
    """Hold a value against the schema of an answer."""
    assert fits(value, content["application/json"]["schema"], document["components"]["schemas"]), value


@pytest.mark.parametrize("setting", ["vllm", "infinity"])
@pytest.mark.parametrize(("dialect", "path"), [(d, p) for d, paths in ROUTES.items() for p in paths])
async def test_answers_and_errors_keep_to_their_schemas(dialect: str, path: str, setting: str) -> None:
    """What a route answers, refuses and cannot answer in time is valid by the document of its setting."""
    served = sidecar(rerank_dialect=setting)
    document = (await served.public.get("/openapi.json")).json()
    responses = document["paths"][path]["post"]["responses"]
    body = BODIES[dialect]("q", ["a", "b"])
    for asked in ({}, {"return_documents": True}, {"return_input": True}, {"return_text": True}, {"top_n": 1}):
        answer = await served.post(path, {**body, **({} if dialect == "native" else asked)})
        _check(document, responses["200"]["content"], answer.json())
    _check(document, responses["4XX"]["content"], (await served.post(path, BODIES[dialect]("q", []))).json())
    late = {"x-request-timeout-ms": "0", "x-cascade-fail-closed": "1"}
    _check(document, responses["503"]["content"], (await served.post(path, body, late)).json())
    served.service.clock = None  # type: ignore[assignment] # nothing works without a clock
    _check(document, responses["500"]["content"], (await served.post(path, body)).json())


async def test_plain_errors_are_described_where_tei_answers() -> None:
    """TEI's errors of a request that could not be read are plain text, and only its routes say so."""
    document = (await sidecar().public.get("/openapi.json")).json()
    plain = {
        path
        for path, methods in document["paths"].items()
        if "text/plain" in methods.get("post", {}).get("responses", {}).get("4XX", {}).get("content", {})
    }
    assert plain == set(ROUTES["tei"])


async def test_every_schema_of_the_document_is_used() -> None:
    """No schema stands in the document that nothing points to."""
    text = (await sidecar().public.get("/openapi.json")).text
    for name in orjson.loads(text)["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text
