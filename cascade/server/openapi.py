"""Describe the public listener in OpenAPI, from the models and routes that serve it."""

from __future__ import annotations

from typing import Any, Final

from pydantic.json_schema import models_json_schema

from cascade import __version__
from cascade.server.dialects.native import NativeAnswer, NativeError, NativeRequest
from cascade.server.dialects.tei import TeiRequest, TeiResult
from cascade.server.dialects.vllm import VllmRequest, VllmScoreRequest
from cascade.server.routes import RERANK_ROUTES
from cascade.types import Dialect

__all__ = ["openapi"]

_REQUESTS: Final = {
    Dialect.NATIVE: NativeRequest,
    Dialect.TEI: TeiRequest,
    Dialect.VLLM: VllmRequest,
    Dialect.VLLM_SCORE: VllmScoreRequest,
}
_PLAIN: Final = {
    "/livez": "Tell that the process runs",
    "/readyz": "Tell whether requests are accepted",
    "/health": "Tell the same to clients of TEI and vLLM",
    "/info": "Describe the model to clients of TEI",
    "/v1/models": "List the model to clients of vLLM",
    "/openapi.json": "Return this document",
}
_HEADERS: Final = {
    "x-cascade-decision-id": "The decision's id, in the log too",
    "x-cascade-release": "The release that decided",
    "x-cascade-stage": "What placed the first result: large, small or retrieval",
    "x-cascade-degraded": "Why the answer is not what the release planned; absent when it is",
    "x-cascade-excluded": "How many documents were left out of a stage; absent for none",
    "x-cascade-score": "rank where scores only tell the rank",
}
_DEADLINES: Final = {
    "x-request-timeout-ms": "Milliseconds until the answer must leave",
    "x-envoy-expected-rq-timeout-ms": "The same, as Envoy says it",
    "x-cascade-fail-closed": "1: answer 503 in place of a degraded order",
}


def openapi() -> dict[str, Any]:
    """Return the document."""
    pairs: list[Any] = [(model, "validation") for model in (*_REQUESTS.values(), NativeAnswer, NativeError, TeiResult)]
    _, schemas = models_json_schema(pairs, ref_template="#/components/schemas/{model}")
    paths: dict[str, Any] = {
        path: {"get": {"summary": summary, "responses": {"200": {"description": "OK"}}}}
        for path, summary in _PLAIN.items()
    }
    for path in ("/readyz", "/health"):
        paths[path]["get"]["responses"]["503"] = {"description": "Starting or stopping"}
    for route in RERANK_ROUTES:
        bodies = [{"$ref": f"#/components/schemas/{_REQUESTS[fmt.name].__name__}"} for fmt in route.formats]
        schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        paths[route.path] = {"post": _operation(route.summary, schema, native=route.path.startswith("/v1/cascade"))}
    return {
        "openapi": "3.1.0",
        "info": {"title": "cascade", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }


def _operation(summary: str, schema: dict[str, Any], *, native: bool) -> dict[str, Any]:
    answer = {"$ref": "#/components/schemas/NativeAnswer"} if native else {}
    error = {"$ref": "#/components/schemas/NativeError"} if native else {}
    headers = {name: {"description": text, "schema": {"type": "string"}} for name, text in _HEADERS.items()}
    return {
        "summary": summary,
        "parameters": [
            {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}
            for name, text in _DEADLINES.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "200": {
                "description": "The whole order",
                "headers": headers,
                "content": {"application/json": {"schema": answer}},
            },
            "4XX": {"description": "The request's fault", "content": {"application/json": {"schema": error}}},
            "503": {
                "description": "Degraded, and the caller asked for an error",
                "content": {"application/json": {"schema": error}},
            },
        },
    }
