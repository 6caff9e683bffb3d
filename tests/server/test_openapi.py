"""The description of the public listener."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from starlette.routing import Route

from cascade.server.app import public_app
from cascade.testing.stages import ScriptedStage
from tests.server.sidecar import BODIES, ROUTES, sidecar

_COMMITTED: Final = Path(__file__).parents[2] / "docs" / "openapi.json"


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema["$ref"].rpartition("/")[2]
    found: dict[str, Any] = document["components"]["schemas"][name]
    return found


async def test_the_committed_document_is_what_is_served() -> None:
    """``docs/openapi.json`` and ``/openapi.json`` say the same."""
    served = await sidecar().public.get("/openapi.json")
    assert served.headers["content-type"] == "application/json"
    assert served.json() == orjson.loads(_COMMITTED.read_bytes())


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
    assert any(set(schema["required"]) <= set(body) <= set(schema["properties"]) for schema in schemas)


async def test_every_header_of_an_answer_is_described() -> None:
    """Each ``x-cascade-`` header that an answer can carry is in the document."""
    document = (await sidecar().public.get("/openapi.json")).json()
    described = set(document["paths"]["/rerank"]["post"]["responses"]["200"]["headers"])
    down = ScriptedStage(lambda q, t: 0.0, fails=RuntimeError("down"))
    sent = await sidecar(large=down).post("/rerank", BODIES["tei"]("q", ["", "a"]))
    worse = await sidecar(down, down).post("/rerank", BODIES["tei"]("q", ["a"]))
    seen = {name for answer in (sent, worse) for name in answer.headers if name.startswith("x-cascade-")}
    assert seen == described
