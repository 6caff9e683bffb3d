"""Render a page of each dialect: routes, fields, and an example that its own code answers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, get_args, get_origin

import orjson
from pydantic import AliasChoices, BaseModel, RootModel
from reference import table, type_name

from cascade.decision import Ranking
from cascade.errors import RequestError
from cascade.pipeline import Pipeline
from cascade.policy.release import parse_release
from cascade.server.dialects.base import DialectFormat, Parsed
from cascade.server.dialects.infinity import InfinityAnswer, InfinityFormat, InfinityRequest
from cascade.server.dialects.native import NativeAnswer, NativeCandidate, NativeFormat, NativeRequest
from cascade.server.dialects.tei import TeiAnswer, TeiFormat, TeiRequest
from cascade.server.dialects.vllm import VllmAnswer, VllmFormat, VllmRequest
from cascade.server.dialects.vllm_score import SPELLINGS, VllmScoreAnswer, VllmScoreFormat, VllmScoreRequest
from cascade.server.fields import KNOWN_FIELDS
from cascade.server.groups import rerank_parsed
from cascade.server.http import answer_headers
from cascade.server.openapi import openapi
from cascade.server.routes import rerank_routes
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.types import Dialect, StageName

__all__ = ["dialect_pages"]

_QUERY: Final = "why do boats float"
_TEXTS: Final = ["Bread is baked.", "A hull displaces water.", "Boats float on water."]
_NOW: Final = re.compile(rb'"created":\d+')
_MOST: Final = 2048


@dataclass(frozen=True, slots=True)
class _Page:
    """What a page says that the code does not: for whom the format is, and one request in it."""

    title: str
    told: str
    fmt: DialectFormat
    request: type[BaseModel]
    answer: type[BaseModel]
    path: str
    example: dict[str, Any]
    more: str = ""


_PAGES: Final = (
    _Page(
        "The native format",
        "For applications that are written for the sidecar. Beside the order it takes ids, first-stage scores of each candidate, a deadline, a tenant and a "
        "priority, and tells with `explain` what was decided and why. What it does not know it refuses: nobody sends that by habit.",
        NativeFormat(),
        NativeRequest,
        NativeAnswer,
        "/v1/cascade/rerank",
        {
            "query": _QUERY,
            "candidates": [
                {"id": f"d{number}", "text": text, "scores": {"bm25": 3.0 - number}}
                for number, text in enumerate(_TEXTS, 1)
            ],
            "top_n": 2,
            "deadline_ms": 500,
        },
        "first-stage",
    ),
    _Page(
        "TEI's format",
        "For clients of Text Embeddings Inference: they change the address, and nothing else. `GET /info` and `/health` answer as TEI 1.9.3 does. A body of "
        "`/rerank` is TEI's where it has `texts`. TEI itself was imitated from its specification and never run "
        "([limits.md](../limits.md#what-was-not-run)).",
        TeiFormat(),
        TeiRequest,
        TeiAnswer,
        "/rerank",
        {"query": _QUERY, "texts": _TEXTS, "return_text": True},
    ),
    _Page(
        "vLLM's format, and those of Jina, Cohere, Voyage and Mixedbread",
        "For clients of vLLM's rerank route, and of the hosted APIs in whose shape it is: one answer holds what each of them reads (`results` and `data`, "
        "`relevance_score` and `score`, `meta`). Which clients were run: `make test-clients`. `GET /v1/models` answers as vLLM does.",
        VllmFormat("1"),
        VllmRequest,
        VllmAnswer,
        "/v1/rerank",
        {"model": "any", "query": _QUERY, "documents": _TEXTS, "top_n": 2, "first_stage": {"bm25": [2.0, 1.0, None]}},
        "cohere",
    ),
    _Page(
        "vLLM's score format",
        "For clients of vLLM's `/score`: scores in the order of the documents, and no order. One query for all documents, or one for each. Queries and documents "
        f"have four pairs of names: {', '.join(f'`{a}` and `{b}`' for a, b in SPELLINGS)}.",
        VllmScoreFormat(),
        VllmScoreRequest,
        VllmScoreAnswer,
        "/score",
        {"text_1": _QUERY, "text_2": _TEXTS},
    ),
    _Page(
        "Infinity's format",
        "For clients of Infinity, of 0.0.77. `/rerank` with `documents` speaks it where the setting is `rerank_dialect: infinity`, and vLLM's else; they differ in "
        "what `document` is.",
        InfinityFormat(),
        InfinityRequest,
        InfinityAnswer,
        "/rerank",
        {"query": _QUERY, "documents": _TEXTS, "return_documents": True, "top_n": 2},
    ),
)
_MORE: Final = {
    "first-stage": "## Headers\n\nEvery dialect reads and answers these.\n\n{headers}\n",
    "cohere": "`/v2/rerank` is the same with Cohere's version 2 in `meta`. Documents may be objects with `text`; of Cohere's `rank_fields` only `text` is "
    "to be had.\n",
    "": "",
}
_HEAD: Final = """\
# {title}

Generated from the code (`scripts/generate.py`). {told}

```
curl -s 127.0.0.1:8787{path} -d {body}
```

answers, where the models score by the words that query and document share,

```json
{answer}
```

with the headers {headers}.

## Routes

{routes}
"""
_ABOUT: Final = """\
An error looks as the server's own: [errors.md](../errors.md#errors-of-a-request). Blank, null, zero, negative, duplicate and too many of each field:
[wire-fields.md](../wire-fields.md). Scores, reasons and time: [README](../../README.md#what-an-answer-says). The schemas:
[openapi.json](../openapi.json).
"""


def dialect_pages() -> dict[str, str]:
    """Return the pages by their file name."""
    return {f"{page.fmt.name}.md": _page(page) for page in _PAGES}


def _page(page: _Page) -> str:
    parsed = page.fmt.parse(page.example, {}, _MOST)
    ranking = run_virtual(_ranked(parsed))
    answer = _NOW.sub(b'"created":1767225600', page.fmt.render(ranking, parsed).body)
    head = _HEAD.format(
        title=page.title,
        told=page.told,
        path=page.path,
        body=shlex.quote(orjson.dumps(page.example).decode()),
        answer=orjson.dumps(orjson.loads(answer), option=orjson.OPT_INDENT_2).decode(),
        headers=", ".join(f"`{name}: {value}`" for name, value in answer_headers(ranking).items()),
        routes=_routes(page.fmt.name),
    )
    fields = ["## What it takes\n", table(page.request)]
    if page.fmt.name is Dialect.NATIVE:
        fields += ["### A candidate\n", table(NativeCandidate)]
    answered = ["## What it answers\n", "| field | type | what it is |", "|---|---|---|", *_rows(page.answer, ""), ""]
    more = _MORE[page.more].format(headers=_headers())
    return "\n".join([head, *fields, _ignored(page), *answered, more, _ABOUT])


async def _ranked(parsed: Parsed) -> Ranking:
    """Answer by a release of two stages that count shared words, on virtual time."""
    server = {"adapter": "tei", "url": "http://stage.example", "model": "m", "engine": "tei/1.9"}
    release = parse_release(
        {
            "release": "example-1",
            "stages": {"small": server, "large": server},
            "depth": 50,
            "escalation": {"kind": "static", "top_m": 20},
            "budgets": {"total_ms": 500, "small_ms": 200, "large_ms": 400, "reserve_ms": 10},
        }
    )
    stages = {name: ScriptedStage(_shared_words) for name in (StageName.SMALL, StageName.LARGE)}
    pipeline = Pipeline(
        release,
        stages,
        clock=lambda: 0.0,
        new_id=lambda: "0c1d2e3f",
        hash_query=lambda query: "",
        count_fault=_raise,
    )
    return await rerank_parsed(lambda: pipeline, parsed)


def _shared_words(query: str, document: str) -> float:
    return float(len(set(query.lower().split()) & set(document.lower().rstrip(".").split())))


def _raise(fault: BaseException) -> None:
    raise fault


def _routes(name: Dialect) -> str:
    rows = ["| route | what it does |", "|---|---|"]
    seen: dict[str, str] = {}
    for route in (*rerank_routes("vllm"), *rerank_routes("infinity")):
        if any(fmt.name is name for fmt in route.formats):
            seen.setdefault(route.path, route.summary)
    return "\n".join([*rows, *(f"| `POST {path}` | {summary} |" for path, summary in seen.items())])


def _ignored(page: _Page) -> str:
    """Say what becomes of names that other servers' clients send, as the parser has it."""
    told: list[str] = []
    for name in sorted(KNOWN_FIELDS - page.example.keys() - _spellings(page)):
        try:
            ignored = page.fmt.parse({**page.example, name: True}, {}, _MOST).options.ignored
        except RequestError:  # a name that it takes, with a value that it refuses; or native, which refuses names
            continue
        told += [name] if name in ignored else []
    if not told:
        return "Any other field is refused.\n"
    listed = ", ".join(f"`{name}`" for name in told)
    return f"Other fields are ignored. These, which other clients send, are named in `x-cascade-ignored` where they ask for something: {listed}.\n"


def _spellings(page: _Page) -> set[str]:
    """Return other names of the fields that a request must have."""
    if page.fmt.name is Dialect.VLLM_SCORE:
        return {name for pair in SPELLINGS for name in pair}
    aliases = [info.validation_alias for info in page.request.model_fields.values()]
    return {str(name) for each in aliases if isinstance(each, AliasChoices) for name in each.choices}


def _rows(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yield a row of each field of an answer, those of what is nested behind a dot."""
    for name, info in model.model_fields.items():
        inner, many = _nested(info.annotation)
        path = prefix if issubclass(model, RootModel) else f"{prefix}{name}"
        path += "[]" if many else ""
        if not issubclass(model, RootModel):
            yield f"| `{path}` | {type_name(info)} | {info.description or ''} |"
        if inner is not None:
            yield from _rows(inner, f"{path}.")


def _nested(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model that a type holds, and whether in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    many = get_origin(annotation) in (list, tuple)
    for part in get_args(annotation):
        model, deeper = _nested(part)
        if model is not None:
            return model, many or deeper
    return None, many


def _headers() -> str:
    """Return what requests and answers may carry, by the description of the routes."""
    operation = openapi()["paths"]["/v1/cascade/rerank"]["post"]
    rows = ["| header | of | what it is |", "|---|---|---|"]
    rows += [f"| `{one['name']}` | the request | {one['description']} |" for one in operation["parameters"]]
    answered = operation["responses"]["200"]["headers"]
    rows += [f"| `{name}` | the answer | {one['description']} |" for name, one in answered.items()]
    return "\n".join(rows)
