"""Describe the public listener in OpenAPI, from the models and routes that serve it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cascade import __version__
from cascade.server.dialects.infinity import InfinityAnswer, InfinityError, InfinityRequest, InfinityRequestFault
from cascade.server.dialects.native import NativeAnswer, NativeError, NativeRequest
from cascade.server.dialects.nested_errors import NestedError
from cascade.server.dialects.tei import TeiAnswer, TeiError, TeiRequest
from cascade.server.dialects.vllm import VllmAnswer, VllmRequest
from cascade.server.dialects.vllm_score import SPELLINGS, VllmScoreAnswer, VllmScoreRequest
from cascade.server.routes import HEALTH_PATHS, RerankRoute, rerank_routes
from cascade.server.service import RerankDialect
from cascade.types import Dialect

__all__ = ["openapi"]


@dataclass(frozen=True, slots=True)
class _Models:
    """What a dialect takes and answers. ``plain`` tells that some of its errors are plain text."""

    request: type[BaseModel]
    answer: type[BaseModel]
    errors: tuple[type[BaseModel], ...]
    plain: bool = False


class PlainError(BaseModel):
    """What 404, 405 and 500 look like."""

    error: str
    message: str
    detail: str


_MODELS: Final = {
    Dialect.NATIVE: _Models(NativeRequest, NativeAnswer, (NativeError,)),
    Dialect.TEI: _Models(TeiRequest, TeiAnswer, (TeiError,), plain=True),
    Dialect.VLLM: _Models(VllmRequest, VllmAnswer, (NestedError,)),
    Dialect.VLLM_SCORE: _Models(VllmScoreRequest, VllmScoreAnswer, (NestedError,)),
    Dialect.INFINITY: _Models(InfinityRequest, InfinityAnswer, (InfinityRequestFault, InfinityError)),
}
_HEALTH: Final = {
    "/readyz": "Tell whether requests are accepted",
    "/health": "Tell the same to clients of TEI and vLLM",
    "/ping": "Tell the same to clients of TEI",
    "/": "Tell the same to clients of TEI",
}
_PLAIN: Final = {
    "/livez": "Tell that the process runs",
    "/info": "Describe the model to clients of TEI",
    "/v1/models": "List the model to clients of vLLM",
    "/openapi.json": "Return this document",
}
_HEADERS: Final = {
    "x-cascade-decision-id": "The decision's id, in the log too",
    "x-cascade-release": "The release that decided",
    "x-cascade-stage": "What placed the first result: large, small or retrieval",
    "x-cascade-degraded": "Why the answer is not what the release planned; absent when it is",
    "x-cascade-level": "The load level that decided; absent at the first, which is the release as it stands",
    "x-cascade-arm": "canary where a release that is being rolled out decided; absent else",
    "x-cascade-excluded": "How many documents were left out of a stage; absent for none",
    "x-cascade-score": "rank where scores only tell the rank",
    "x-cascade-repaired": "How much had to be mended of the large stage's order; absent for nothing",
    "x-cascade-ignored": "Fields of the request that do nothing here; absent for none",
}
_REFUSED_HEADERS: Final = {
    "retry-after": "Seconds until it is worth asking again",
    "x-cascade-decision-id": "The decision's id, in the log too; absent while the stages start",
    "x-cascade-release": "The release that decided; absent while the stages start",
    "x-cascade-degraded": "Why the order would have been degraded; absent while the stages start",
    "x-cascade-level": "The load level that decided; absent at the first and while the stages start",
    "x-cascade-arm": "canary where a release that is being rolled out decided; absent else",
}
_PARAMETERS: Final = {
    "x-request-timeout-ms": ("Milliseconds until the answer must leave", {"type": "integer", "minimum": 0}),
    "x-envoy-expected-rq-timeout-ms": ("The same, as Envoy says it", {"type": "integer", "minimum": 0}),
    "x-cascade-fail-closed": (
        "1: answer 503 in place of a degraded order",
        {"type": "string", "enum": ["1", "true", "0", "false"]},
    ),
    "x-cascade-unit": (
        "The caller's stable id of a user or session: one release of a rollout decides all its requests; never logged",
        {"type": "string"},
    ),
    "x-request-id": (
        "The caller's id of the request, for the log",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    ),
}
_KEY: Final = "key"
_SECURITY: Final[list[dict[str, list[str]]]] = [{}, {_KEY: []}]
"""A key, or none where the sidecar asks for none."""
_GUARDED: Final = ("/info", "/v1/models")
_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}


def openapi(rerank_dialect: RerankDialect = "vllm") -> dict[str, Any]:
    """Return the document."""
    routes = rerank_routes(rerank_dialect)
    spoken = [_MODELS[name] for name in dict.fromkeys(fmt.name for route in routes for fmt in route.formats)]
    pairs: list[Any] = [(each.request, "validation") for each in spoken]
    pairs += [(model, "serialization") for each in spoken for model in (each.answer, *each.errors)]
    pairs.append((PlainError, "serialization"))
    _, schemas = models_json_schema(list(dict.fromkeys(pairs)), ref_template="#/components/schemas/{model}")
    _add_spellings(schemas["$defs"]["VllmScoreRequest"])
    paths: dict[str, Any] = {path: {"get": _get(summary)} for path, summary in _PLAIN.items()}
    for path in _GUARDED:
        paths[path]["get"]["security"] = _SECURITY
    for path in HEALTH_PATHS:
        paths[path] = {"get": _get(_HEALTH[path])}
        paths[path]["get"]["responses"]["503"] = {"description": "Starting or stopping"}
    for route in routes:
        paths.setdefault(route.path, {})["post"] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "cascade", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": schemas["$defs"], "securitySchemes": {_KEY: {"type": "http", "scheme": "bearer"}}},
    }


def _add_spellings(schema: dict[str, Any]) -> None:
    """Tell all pairs of names that ``/score`` takes; one of them must be there in full."""
    fields = schema["properties"]
    for first, second in SPELLINGS:
        fields[first], fields[second] = fields["text_1"], fields["text_2"]
    del schema["required"]
    schema["anyOf"] = [{"required": list(pair)} for pair in SPELLINGS]


def _get(summary: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "OK"}}}


def _operation(route: RerankRoute) -> dict[str, Any]:
    models = [_MODELS[fmt.name] for fmt in route.formats]
    errors = _content(*(error for each in models for error in each.errors))
    plain = _TEXT if any(each.plain for each in models) else {}
    return {
        "summary": route.summary,
        "security": _SECURITY,
        "parameters": [
            {"name": name, "in": "header", "description": text, "schema": schema}
            for name, (text, schema) in _PARAMETERS.items()
        ],
        "requestBody": {"required": True, "content": _content(*(each.request for each in models))},
        "responses": {
            "200": {
                "description": "The whole order",
                "headers": _headers(_HEADERS),
                "content": _content(*(each.answer for each in models)),
            },
            "4XX": {"description": "The request's fault, or its key's", "content": errors | plain},
            "429": {
                "description": "Its tenant is beyond the quota that the release states",
                "headers": _headers({"retry-after": _REFUSED_HEADERS["retry-after"]}),
                "content": errors,
            },
            "500": {"description": "A fault of the sidecar's", "content": _content(PlainError)},
            "503": {
                "description": "Degraded, and the caller or the release asks for an error then; starting; or too many requests are held",
                "headers": _headers(_REFUSED_HEADERS),
                "content": errors,
            },
        },
    }


def _headers(described: dict[str, str]) -> dict[str, Any]:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in described.items()}


def _content(*models: type[BaseModel]) -> dict[str, Any]:
    references = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in dict.fromkeys(models)]
    return {"application/json": {"schema": references[0] if len(references) == 1 else {"anyOf": references}}}
