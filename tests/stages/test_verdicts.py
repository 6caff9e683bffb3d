"""The one table of failures: every status and exception, what it means, and that the documentation says the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest

from cascade.errors import StageError
from cascade.guard.breaker import Outcome
from cascade.policy.stage_specs import HttpStage
from cascade.stages.answers import AnswerFault
from cascade.stages.verdicts import VERDICTS, Retry, verdict_of
from cascade.testing.clock import run_virtual
from cascade.testing.rerank_api import FakeHosted, FakeInfinity, FakeLlamaCpp, FakeSglang
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm
from cascade.types import BreakerState

from .arrange import api_spec, running, score, tei_spec, vllm_spec

FAILURE, IGNORE = Outcome.FAILURE, Outcome.IGNORE
_DOCS = Path(__file__).parents[2] / "docs" / "faults.md"
_BOTH: list[tuple[int, bool, Outcome]] = [
    # status, made again, what the breaker counts: the same at every server
    (401, False, FAILURE),
    (403, False, FAILURE),
    (408, False, FAILURE),
    (429, True, FAILURE),
    (500, True, FAILURE),
    (501, False, FAILURE),
    (502, True, FAILURE),
    (503, True, FAILURE),
    (504, False, FAILURE),
    (507, True, FAILURE),
    (529, True, FAILURE),
    (400, False, IGNORE),
    (409, False, IGNORE),
    (415, False, IGNORE),
    (422, False, IGNORE),
    (301, False, FAILURE),
    (204, False, FAILURE),
]
_SERVERS: list[tuple[str, Callable[[], FakeServer], HttpStage]] = [
    ("tei", FakeTei, tei_spec()),
    ("vllm", FakeVllm, vllm_spec()),
    ("infinity", FakeInfinity, api_spec("infinity")),
    ("llamacpp", FakeLlamaCpp, api_spec("llamacpp")),
    ("sglang", FakeSglang, api_spec("sglang")),
    ("nim", partial(FakeHosted, kind="nim"), api_spec("nim")),
]
_OWN: list[tuple[str, Callable[[], FakeServer], HttpStage, httpx.Response | Exception, bool, Outcome]] = [
    ("tei out of memory or NaN", FakeTei, tei_spec(), httpx.Response(424, json={"error": "score is NaN"}), False, FAILURE),
    ("tei overloaded", FakeTei, tei_spec(), httpx.Response(429, json={"error": "m", "error_type": "Overloaded"}), True, FAILURE),
    ("tei tokenizer", FakeTei, tei_spec(), httpx.Response(422, json={"error": "m", "error_type": "Tokenizer"}), False, IGNORE),
    ("vllm NaN", FakeVllm, vllm_spec(), httpx.Response(400, json={"error": {"message": "Out of range float values are not JSON compliant"}}), False, FAILURE),
    ("vllm unknown model", FakeVllm, vllm_spec(), httpx.Response(404, json={"error": {"message": "The model `x` does not exist."}}), False, FAILURE),
    ("vllm cannot score", FakeVllm, vllm_spec(), httpx.Response(501, json={"error": {"message": "does not support Score API"}}), False, FAILURE),
    ("infinity null score", FakeInfinity, api_spec("infinity"), httpx.Response(200, json={"results": [{"index": 0, "relevance_score": None}]}), False, FAILURE),
    ("llama.cpp sentinel", FakeLlamaCpp, api_spec("llamacpp"), httpx.Response(200, json={"results": [{"index": 0, "relevance_score": -1e6}]}), False, FAILURE),
    ("llama.cpp loading", FakeLlamaCpp, api_spec("llamacpp"), httpx.Response(503, json={"error": {"message": "Loading model"}}), True, FAILURE),
    ("sglang queue full", FakeSglang, api_spec("sglang"), httpx.Response(503, json={"message": "The request queue is full."}), True, FAILURE),
    ("hosted out of money", partial(FakeHosted, kind="nim"), api_spec("nim"), httpx.Response(402), False, FAILURE),
    ("refused", FakeTei, tei_spec(), httpx.ConnectError("m"), True, FAILURE),
    ("cut", FakeTei, tei_spec(), httpx.ReadError("m"), True, FAILURE),
    ("connect timeout", FakeTei, tei_spec(), httpx.ConnectTimeout("m"), False, FAILURE),
    ("not HTTP", FakeTei, tei_spec(), httpx.RemoteProtocolError("m"), False, FAILURE),
    ("no encoding", FakeTei, tei_spec(), httpx.DecodingError("m"), False, FAILURE),
]  # fmt: skip
_CASES = [
    *((f"{name} {status}", kind, spec, httpx.Response(status), again, breaker)
      for status, again, breaker in _BOTH for name, kind, spec in _SERVERS),
    *_OWN,
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "spec", "failure", "again", "breaker"), [case[1:] for case in _CASES], ids=[case[0] for case in _CASES]
)
def test_b5_b9_each_failure_means_what_the_table_says(
    kind: Callable[[], FakeServer],
    spec: HttpStage,
    failure: httpx.Response | Exception,
    *,
    again: bool,
    breaker: Outcome,
) -> None:
    """After twenty good calls it is made again or not, and five such rounds open the breaker or do not."""

    async def play() -> None:
        server = kind()
        async with running(server, spec) as stage:
            for _ in range(20):
                await score(stage, "q", ["a"])
            server.seen.clear()
            server.script = [failure, failure]
            with pytest.raises(StageError):
                await score(stage, "q", ["a"])
            assert (len(server.posts) == 2) is again
            for _ in range(4):
                server.script = [failure, failure]
                with pytest.raises(StageError):
                    await score(stage, "q", ["a"])
            assert stage.guarded.breaker is (BreakerState.OPEN if breaker is FAILURE else BreakerState.CLOSED)

    run_virtual(play())


def test_every_fault_of_an_answer_is_in_the_table() -> None:
    """The closed list of what may be wrong with an answer is covered."""
    assert {fault.value for fault in AnswerFault} <= VERDICTS.keys()


@pytest.mark.parametrize(
    ("code", "retry", "breaker", "callers"),
    [("status_418", Retry.NEVER, IGNORE, True), ("status_599", Retry.IN_TIME, FAILURE, False),
     ("status_302", Retry.NEVER, FAILURE, False), ("a new one", Retry.NEVER, FAILURE, False)],
)  # fmt: skip
def test_what_is_not_listed_is_judged_by_its_hundred(
    code: str, retry: Retry, breaker: Outcome, *, callers: bool
) -> None:
    """From 400 to 499 it is the request's fault, else the server's, and only 5xx may pass."""
    verdict = verdict_of(code)
    assert (verdict.retry, verdict.breaker, verdict.callers_fault) == (retry, breaker, callers)


def test_b8_the_documentation_lists_what_the_table_says() -> None:
    """Each code once, with the same retry, breaker and fault."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (yes|no) \|", _DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    told = {code: (retry, breaker, callers == "yes") for code, retry, breaker, callers in rows}
    assert len(told) == len(rows)
    assert told == {code: (v.retry, v.breaker, v.callers_fault) for code, v in VERDICTS.items()}
