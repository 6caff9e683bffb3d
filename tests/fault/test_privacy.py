"""G1: whatever fails, and whatever a server writes, an error shows neither query nor document."""

from __future__ import annotations

import json

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.errors import StageError
from cascade.stages.http import HttpReranker
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm
from tests.stages.arrange import running, score, tei_spec, vllm_spec

from .chains import shown_by

CANARY = "canary-7f3a"
QUERY = f"{CANARY} query"
DOCUMENTS = [f"{CANARY} one", f"{CANARY} " + "word " * 700, " ", f"{CANARY} four"]

ECHOES = st.sampled_from(
    [
        CANARY,
        f"must have less than 512 tokens. Given: 534 {CANARY}",
        f"must have less than 1 tokens. Given: 534 {CANARY}",
        f"batch size 40 > maximum allowed batch size 1 {CANARY}",
        f"maximum context length is 512 tokens. However, your prompt contains at least 513 input tokens {CANARY}",
        f"maximum context length is 4 tokens. However, you requested 90 {CANARY}",
        f"input (2006 tokens) is larger than the max context size (512 tokens) {CANARY}",
        f"input (5006 tokens) is too large to process (current batch size: 2048) {CANARY}",
        f"The model `{CANARY}` does not exist.",
        f"11 validation errors: 'input': '{CANARY}'",
        f"Out of range float values are not JSON compliant {CANARY}",
    ]
)
BODIES = st.one_of(
    ECHOES.map(str.encode),
    ECHOES.map(lambda echo: orjson.dumps({"error": echo, "error_type": "Validation"})),
    ECHOES.map(lambda echo: orjson.dumps({"error": {"message": echo, "type": "BadRequestError", "param": echo}})),
    ECHOES.map(lambda echo: orjson.dumps({"object": "error", "message": echo})),
    ECHOES.map(lambda echo: orjson.dumps([{"index": echo, "score": 1.0}])),
    ECHOES.map(lambda echo: orjson.dumps([{"index": 0, "score": echo}])),
    ECHOES.map(lambda echo: orjson.dumps({"data": [{"index": 0, "score": [echo]}]})),
    ECHOES.map(lambda echo: orjson.dumps({"results": [{"index": 0, "relevance_score": 1.0, echo: echo}]})),
    ECHOES.map(lambda echo: orjson.dumps(echo)[:-1]),
    ECHOES.map(lambda echo: echo.encode() * 100_000),
)
STATUSES = st.sampled_from([200, 200, 200, 204, 302, 400, 401, 404, 413, 413, 422, 422, 424, 429, 500, 501, 503, 504])
RESPONSES = st.builds(
    lambda status, body, echo: httpx.Response(
        status, content=body, headers={"x-compute-tokens": echo, "location": echo, "content-type": "text/plain"}
    ),
    STATUSES,
    BODIES,
    ECHOES,
)
EXCEPTIONS = st.builds(
    lambda kind, echo: kind(echo),
    st.sampled_from(
        [
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.ReadError,
            httpx.RemoteProtocolError,
            httpx.DecodingError,
            httpx.InvalidURL,
            ConnectionResetError,
            OSError,
        ]
    ),
    ECHOES,
)


async def error_of(stage: HttpReranker) -> StageError | None:
    """Return what a round of canaries ends with."""
    try:
        await score(stage, QUERY, DOCUMENTS, within_ms=500)
    except StageError as error:
        return error
    return None


@settings(deadline=None, max_examples=200)
@given(
    script=st.lists(st.none() | RESPONSES | EXCEPTIONS, min_size=1, max_size=5),
    vllm=st.booleans(),
    chunk=st.integers(1, 4),
    delay_ms=st.sampled_from([0.0, 0.0, 0.0, 10_000.0]),
)
def test_g1_no_error_of_a_stage_shows_text(
    script: list[httpx.Response | Exception | None], vllm: bool, chunk: int, delay_ms: float
) -> None:
    """Texts, attributes, tracebacks and locals, through causes and contexts: the canary is in none of them."""

    async def play() -> StageError | None:
        server: FakeServer = FakeVllm(version="2025") if vllm else FakeTei(truncates=False)
        server.delay_ms = delay_ms
        spec = vllm_spec(chunk_texts=chunk) if vllm else tei_spec(chunk_texts=chunk)
        async with running(server, spec) as stage:
            server.script = list(script)
            return await error_of(stage)

    error = run_virtual(play())
    if error is not None:
        assert str(error)
        assert CANARY not in shown_by(error)


@pytest.mark.parametrize("version", ["2025", "now"])
def test_g1_a_round_whose_every_document_is_refused_shows_none_of_them(version: str) -> None:
    """Clipping and refusing leave no trace of what was clipped and refused."""

    async def play() -> StageError | None:
        server = FakeVllm(version=version, tokens_of=lambda query, text: 10**6)
        async with running(server, vllm_spec()) as stage:
            server.script = [
                httpx.Response(400, json={"error": {"message": f"maximum context length is 9 tokens {CANARY}"}})
                for _ in range(20)
            ]
            return await error_of(stage)

    error = run_virtual(play())
    assert error is not None
    assert error.code == "every_document_refused"
    assert CANARY not in shown_by(error)


def test_g1_the_check_itself_sees_through_suppressed_contexts_and_locals() -> None:
    """A canary in a suppressed context or in a local is found, so that the tests above can fail."""
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(CANARY)
    assert "s = 'canary" in shown_by(caught.value)

    def chained() -> None:
        try:
            raise ValueError(QUERY)
        except ValueError:
            raise KeyError("k") from None

    with pytest.raises(KeyError) as suppressed:
        chained()
    assert CANARY in shown_by(suppressed.value)
