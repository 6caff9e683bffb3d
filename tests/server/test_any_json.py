"""Whatever is posted, the answer is a ranking or a refusal in the dialect's own form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cascade.testing.clock import VirtualTimeLoop
from tests.server.sidecar import BODIES, ROUTES, Sidecar, sidecar

_ALL: Final = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths]
_FIELDS: Final = [
    "query",
    "texts",
    "documents",
    "candidates",
    "text",
    "id",
    "scores",
    "top_n",
    "deadline_ms",
    "tenant",
    "fail_closed",
    "explain",
    "model",
    "raw_scores",
    "return_text",
    "truncate",
    "truncation_direction",
    "return_documents",
    "return_input",
    "use_activation",
    "instruction",
    "instruct",
    "input",
    "top_k",
    "max_tokens_per_doc",
    "max_tokens_per_query",
    "truncate_prompt_tokens",
    "truncation",
    "truncation_side",
    "chat_template_kwargs",
    "priority",
    "rank_fields",
    "user",
    "text_1",
    "text_2",
    "queries",
    "items",
    "data_1",
    "data_2",
    "first_stage",
    "content",
    "type",
]
_SCALARS: Final = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20).filter(lambda text: text.isascii() or text.encode("utf-8", "ignore").decode() == text)
)
_KEYS: Final = st.sampled_from(_FIELDS) | st.text(max_size=8).filter(lambda key: key.isprintable())
_VALUES: Final = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=5), max_leaves=12
)


_Post = Callable[[str, Any], httpx.Response]


@pytest.fixture(scope="module")
def post() -> Iterator[_Post]:
    """Give a function that posts to one sidecar: making one takes longer than many requests."""

    async def made() -> Sidecar:
        return sidecar(max_body_bytes=100_000)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        served = runner.run(made())
        yield lambda path, body: runner.run(served.post(path, body))


def _check(path: str, response: httpx.Response, sent: int | None) -> None:
    """Hold an answer against the forms of its route."""
    if response.status_code == 200:
        answer = response.json()
        items = answer if isinstance(answer, list) else answer.get("results", answer.get("data"))
        indices = [item["index"] for item in items]
        assert len(set(indices)) == len(indices) > 0
        assert sent is None or set(indices) <= set(range(sent))
        return
    assert response.status_code in (400, 413, 415, 422)
    if response.headers["content-type"].startswith("text/plain"):
        assert path in ("/rerank", "/")
        return
    body = response.json()
    assert isinstance(body["message"], str)
    if path == "/v1/cascade/rerank":
        assert body["field"]
    elif "error_type" not in body:
        assert body["error"]["code"] == response.status_code


@pytest.mark.parametrize("path", sorted({path for _, path in _ALL}))
@given(body=_VALUES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_json_is_answered_or_refused(post: _Post, path: str, body: Any) -> None:
    """No JSON value makes a route fail or hang, and every refusal has the route's own form."""
    _check(path, post(path, body), None)


@pytest.mark.parametrize(("dialect", "path"), _ALL)
@given(field=st.sampled_from(_FIELDS), value=_VALUES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_value_of_any_field_is_answered_or_refused(
    post: _Post, dialect: str, path: str, field: str, value: Any
) -> None:
    """One field of a good request may hold anything."""
    _check(path, post(path, {**BODIES[dialect]("q", ["a", "b", "c"]), field: value}), None)


@pytest.mark.parametrize(("dialect", "path"), _ALL)
@given(texts=st.lists(st.text(max_size=6), min_size=1, max_size=12), query=st.text(max_size=6))
@settings(max_examples=30, deadline=None)
def test_any_texts_give_each_index_once(post: _Post, dialect: str, path: str, texts: list[str], query: str) -> None:
    """A valid request is answered with every candidate once, whatever its texts are."""
    response = post(path, BODIES[dialect](query, texts))
    if response.status_code == 200:
        answer = response.json()
        items = answer if dialect == "tei" else answer["data" if dialect == "vllm-score" else "results"]
        assert sorted(item["index"] for item in items) == list(range(len(texts)))
    else:
        assert (dialect == "native" and not query.strip()) or (dialect == "tei" and not query and "" in texts)


@pytest.mark.parametrize("path", sorted({path for _, path in _ALL}))
@given(body=st.binary(max_size=200))
@settings(max_examples=40, deadline=None)
def test_any_bytes_are_answered_or_refused(post: _Post, path: str, body: bytes) -> None:
    """Bytes that are no JSON are refused in the route's form."""
    _check(path, post(path, body), None)
