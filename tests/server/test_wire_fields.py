"""Every row of docs/wire-fields.md, sent to the application."""

from __future__ import annotations

import itertools
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.server.sidecar import ROUTES, Sidecar, release_of, sidecar

_TABLE: Final = Path(__file__).parents[2] / "docs" / "wire-fields.md"
_CODE: Final = re.compile(r"`([^`]*)`")
_HEADER: Final = re.compile(r"[a-z-]+: ?[^{\"\[]*")
_ROUTES: Final = {**ROUTES, "infinity": ("/rerank",)}
_TEI_LEADS: Final = {
    400: "Failed to parse the request body as JSON: ",
    413: "Failed to buffer the request body: length limit exceeded: ",
    422: "Failed to deserialize the JSON body into the target type: ",
}
_TEI_TYPES: Final = {400: "Empty", 422: "Validation", 503: "Unhealthy"}
_VLLM_TYPES: Final = {400: {"Bad Request", "BadRequestError"}, 413: {"BadRequestError"}, 415: {"Bad Request"}}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    dialect: str
    field: str
    case: str
    headers: dict[str, str]
    body: bytes
    status: int
    first: str
    promised: tuple[str, ...]


def _body(written: str) -> bytes:
    """Return the bytes that a request as written stands for."""
    if written == "⟨nothing⟩":
        return b""
    spelled = re.sub(r"⟨(\d+) letters⟩", lambda found: "a" * int(found[1]), written)
    return b"\xff".join(part.encode() for part in spelled.split("⟨FF⟩"))


def _row(line: str) -> Row:
    dialect, field, case, request, status, answer = (cell.strip() for cell in line.strip().strip("|").split(" | "))
    *headers, body = _CODE.findall(request)
    first, *promised = _CODE.findall(answer)
    pairs = (header.split(":", 1) for header in headers)
    return Row(
        dialect,
        field,
        case,
        {name: value.strip() for name, value in pairs},
        _body(body),
        int(status),
        first,
        tuple(promised),
    )


def _rows() -> list[Row]:
    lines = _TABLE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|---"))
    return [_row(line) for line in lines[start + 1 :] if line.startswith("|")]


_ROWS: Final = _rows()
_CASES: Final = [
    pytest.param(row, path, id=f"{path} {row.field} {row.case}") for row in _ROWS for path in _ROUTES[row.dialect]
]


def _order(dialect: str, answer: Any) -> str:
    results = answer if dialect == "tei" else answer["data" if dialect == "vllm-score" else "results"]
    return " ".join(str(item["index"]) for item in results)


def _tei_message(response: httpx.Response) -> str:
    if response.headers["content-type"].startswith("text/plain"):
        assert response.text.startswith(_TEI_LEADS[response.status_code])
        return response.text
    body = response.json()
    assert body["error_type"] == _TEI_TYPES[response.status_code]
    assert set(body) == {"error", "error_type", "message", "detail"}
    assert body["error"] == body["message"] == body["detail"]
    return str(body["error"])


def _vllm_message(response: httpx.Response) -> str:
    body = response.json()
    assert set(body) == {"error", "message", "detail"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == response.status_code
    assert error["type"] in _VLLM_TYPES.get(response.status_code, {"ServiceUnavailableError"})
    assert error["message"].startswith(f"{error['param']}: ")
    assert error["message"] == body["message"] == body["detail"]
    return str(error["message"])


def _native_message(response: httpx.Response) -> str:
    body = response.json()
    assert set(body) == {"code", "field", "message", "error", "detail"}
    assert body["message"].startswith(f"{body['field']}: ")
    assert body["error"] == body["message"] == body["detail"]
    return str(body["message"])


def _infinity_message(response: httpx.Response) -> str:
    body = response.json()
    if response.status_code == 422:
        assert set(body) == {"detail", "message"}
        (fault,) = body["detail"]
        assert set(fault) == {"loc", "msg", "type"}
        assert fault["loc"][0] in ("body", "header")
        assert body["message"].endswith(f": {fault['msg']}")
        return str(body["message"])
    assert set(body) == {"error", "message", "detail"}
    assert body["error"] == {
        "message": body["message"],
        "type": None,
        "param": None,
        "code": response.status_code,
    }
    assert body["message"] == body["detail"]
    return str(body["message"])


def _message(dialect: str, response: httpx.Response) -> str:
    match dialect:
        case "infinity":
            return _infinity_message(response)
        case "tei":
            return _tei_message(response)
        case "native":
            return _native_message(response)
        case _:
            return _vllm_message(response)


@pytest.fixture(scope="module")
def served() -> dict[str, Sidecar]:
    """Give the sidecars that the table was made with, by the setting ``rerank_dialect``."""
    budgets = {"total_ms": 20_000.0, "small_ms": 8000.0, "large_ms": 10_000.0, "reserve_ms": 20.0}  # on the real clock
    release = release_of(limits={"max_documents": 4}, budgets=budgets)
    return {
        dialect: sidecar(release=release, clock=time.monotonic, max_body_bytes=2048, rerank_dialect=dialect)
        for dialect in ("vllm", "infinity")
    }


def _echoes(row: Row) -> bool:
    return (
        row.status == 200
        and (
            row.field in ("return_text", "return_documents", "return_input") or b'"return_documents": true' in row.body
        )
        and row.case in ("true", "string", "number", "small")
        and row.dialect != "vllm-score"
    )


def _keep(promise: str, response: httpx.Response, written: str) -> None:
    """Hold one promise of the table against an answer; one of no known form is a fault of the table."""
    match promise:
        case _ if promise.startswith('"'):
            assert promise in written
        case _ if promise.startswith('no "'):
            assert promise.removeprefix("no ") not in written
        case _ if promise.startswith("no x-"):
            assert promise.removeprefix("no ") not in response.headers
        case _ if _HEADER.fullmatch(promise):
            name, value = promise.split(": ")
            assert response.headers[name] == value
        case _:
            pytest.fail(f"the table promises {promise}, which is no header and no piece of an answer")


@pytest.mark.parametrize(("row", "path"), _CASES)
async def test_d8_d10_g1_a_request_gets_what_the_table_says(served: dict[str, Sidecar], row: Row, path: str) -> None:
    """Status, order or message, every header and piece of the answer that the row promises, and no text unasked."""
    setting = "infinity" if row.dialect == "infinity" else "vllm"
    response = await served[setting].post(path, row.body, row.headers)
    assert response.status_code == row.status
    if row.status == 200:
        assert _order(row.dialect, response.json()) == row.first
        written = json.dumps(response.json(), ensure_ascii=False)
    else:
        assert _message(row.dialect, response) == row.first
        assert ("retry-after" in response.headers) == (row.status == 503)
        written = response.text
    assert ("canary" in written) == _echoes(row)
    for promise in row.promised:
        _keep(promise, response, written)
    told = any(promise.startswith("x-cascade-ignored: ") for promise in row.promised)
    assert ("x-cascade-ignored" in response.headers) == told


def test_the_table_has_a_row_for_every_kind_of_input() -> None:
    """Each dialect shows what missing, null, wrong types, blank, empty, duplicate and too many do; no row is double."""
    cases = {(row.dialect, row.field, row.case) for row in _ROWS}
    assert len(cases) == len(_ROWS)
    for dialect, lists in (("native", "candidates"), ("tei", "texts"), ("vllm", "documents"), ("vllm-score", "text_2")):
        seen = " ".join(row.case for row in _ROWS if row.dialect == dialect and row.field.startswith(lists))
        for kind in ("missing", "null", "one", "empty", "duplicate", "too many"):
            assert kind in seen or (dialect, kind) == ("tei", "missing")  # without texts nobody means TEI
    for dialect in ("tei", "vllm", "vllm-score", "infinity"):
        seen = " ".join(row.case for row in _ROWS if row.dialect == dialect and row.field == "first_stage")
        for kind in ("two channels", "null", "empty", "short", "long", "wrong type", "NaN", "too many", "channel name"):
            assert kind in seen
    fields = {row.field for row in _ROWS} | {row.case for row in _ROWS if row.field == "ignored field"}
    options = (
        "top_n",
        "return_documents",
        "return_text",
        "raw_scores",
        "use_activation",
        "truncate",
        "model",
        "tenant",
        "top_k",
        "instruction",
        "instruct",
        "max_tokens_per_doc",
        "max_tokens_per_query",
        "truncate_prompt_tokens",
        "truncation_side",
        "chat_template_kwargs",
        "priority",
        "rank_fields",
        "max_chunks_per_doc",
        "overlap_tokens",
        "normalize",
        "padding",
        "user",
    )
    assert fields.issuperset(options)
    for dialect, header in itertools.product(ROUTES, ("x-request-timeout-ms", "x-cascade-fail-closed")):
        assert any(row.dialect == dialect and row.field == f"header {header}" for row in _ROWS)
