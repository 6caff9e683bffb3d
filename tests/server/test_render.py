"""What each dialect answers, word for word."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest

from cascade.errors import (
    StageError,
    StageInvalidAnswer,
    StageOverloaded,
    StageRefused,
    StageTimeout,
    StageUnreachable,
)
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from tests.server.sidecar import BODIES, ROUTES, release_of, sidecar

_LOGITS: Final = {"low": -math.log(3), "middle": 0.0, "high": math.log(3)}
_TEXTS: Final = ["middle", "low", "high"]
_ORDER: Final = [2, 0, 1]
_ALL: Final = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths]


def _stage() -> ScriptedStage:
    return ScriptedStage(lambda query, text: _LOGITS[text])


def _tidy(value: Any) -> Any:
    """Round floats, so that a golden answer can be written by hand."""
    match value:
        case float():
            return round(value, 6)
        case dict():
            return {key: _tidy(item) for key, item in value.items()}
        case list():
            return [_tidy(item) for item in value]
        case _:
            return value


def _items(dialect: str, answer: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (
        answer if dialect == "tei" else answer["data" if dialect == "vllm-score" else "results"]
    )
    return items


def _score(item: dict[str, Any]) -> float:
    return float(item["relevance_score"] if "relevance_score" in item else item["score"])


async def _answer(body: Any, path: str, **fields: Any) -> Any:
    response = await sidecar(_stage(), _stage(), release=release_of(**fields)).post(path, body)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    return _tidy(response.json())


_TOP_TWO: Final = {"escalation": {"kind": "static", "top_m": 2}}


async def test_tei_answers_a_bare_array() -> None:
    """Index and score, best first, and nothing else."""
    answer = await _answer({"query": "q", "texts": _TEXTS}, "/rerank", **_TOP_TWO)
    assert answer == [{"index": 2, "score": 0.75}, {"index": 0, "score": 0.5}, {"index": 1, "score": 0.25}]


async def test_tei_repeats_the_text_of_each_index_when_asked() -> None:
    """``return_text`` adds the caller's own text."""
    answer = await _answer({"query": "q", "texts": _TEXTS, "return_text": True}, "/rerank", **_TOP_TWO)
    assert answer == [
        {"index": 2, "score": 0.75, "text": "high"},
        {"index": 0, "score": 0.5, "text": "middle"},
        {"index": 1, "score": 0.25, "text": "low"},
    ]


@pytest.mark.parametrize("path", ROUTES["vllm"])
async def test_vllm_answers_results_and_data(path: str) -> None:
    """One answer for clients of vLLM, Jina, Cohere, Voyage and Mixedbread; no document unless asked, no object."""
    answer = await _answer({"query": "q", "documents": _TEXTS, "model": "any"}, path, **_TOP_TWO)
    places = [
        {"index": 2, "relevance_score": 0.75, "score": 0.75},
        {"index": 0, "relevance_score": 0.5, "score": 0.5},
        {"index": 1, "relevance_score": 0.25, "score": 0.25},
    ]
    assert answer == {
        "id": "score-decision-1",
        "model": "any",
        "usage": {"prompt_tokens": 23, "total_tokens": 23},
        "results": places,
        "data": places,
        "meta": {
            "api_version": {"version": "2" if path == "/v2/rerank" else "1"},
            "billed_units": {"search_units": 1},
        },
    }


async def test_infinity_answers_its_own_shape_where_the_setting_says_so() -> None:
    """``/rerank`` with documents is Infinity's then, with documents as strings; the other routes stay vLLM's."""
    served = sidecar(_stage(), _stage(), release=release_of(**_TOP_TWO), rerank_dialect="infinity")
    body = {"query": "q", "documents": _TEXTS}
    answer = _tidy((await served.post("/rerank", {**body, "return_documents": True, "top_n": 2})).json())
    assert answer.pop("created") > 1_700_000_000
    assert answer == {
        "object": "rerank",
        "results": [
            {"relevance_score": 0.75, "index": 2, "document": "high"},
            {"relevance_score": 0.5, "index": 0, "document": "middle"},
        ],
        "model": "test-1",
        "usage": {"prompt_tokens": 23, "total_tokens": 23},
        "id": "infinity-decision-1",
    }
    assert "object" not in (await served.post("/v1/rerank", body)).json()
    assert isinstance((await served.post("/rerank", {"query": "q", "texts": _TEXTS})).json(), list)


async def test_e4_infinity_s_raw_scores_are_logits_of_the_outward_scores() -> None:
    """The switch changes the scale, never the order."""
    served = sidecar(_stage(), _stage(), rerank_dialect="infinity")
    answer = _tidy((await served.post("/rerank", {"query": "q", "documents": _TEXTS, "raw_scores": True})).json())
    assert {item["index"]: item["relevance_score"] for item in answer["results"]} == {
        2: round(math.log(3), 6),
        0: 0.0,
        1: round(-math.log(3), 6),
    }


async def test_vllm_repeats_the_document_of_each_index_when_asked() -> None:
    """``return_documents`` adds the document as vLLM shapes it, whatever shape it came in."""
    documents = ["middle", {"text": "low"}, {"content": [{"type": "text", "text": "high"}]}]
    answer = await _answer({"query": "q", "documents": documents, "return_documents": True}, "/v1/rerank")
    assert [item["document"] for item in answer["results"]] == [
        {"text": "high", "multi_modal": None},
        {"text": "middle", "multi_modal": None},
        {"text": "low", "multi_modal": None},
    ]


@pytest.mark.parametrize("path", ROUTES["vllm-score"])
async def test_vllm_score_answers_in_input_order(path: str) -> None:
    """Scores stand at their own documents, in the order sent."""
    answer = await _answer({"text_1": "q", "text_2": _TEXTS}, path, **_TOP_TWO)
    created = answer.pop("created")
    assert isinstance(created, int)
    assert created > 1_700_000_000
    assert answer == {
        "id": "score-decision-1",
        "model": "test-1",
        "usage": {"prompt_tokens": 23, "total_tokens": 23},
        "object": "list",
        "data": [
            {"index": 0, "object": "score", "score": 0.5},
            {"index": 1, "object": "score", "score": 0.25},
            {"index": 2, "object": "score", "score": 0.75},
        ],
    }


async def test_native_answers_ids_and_what_placed_each() -> None:
    """Each place has its index, id and stage; the decision's name, release and stage stand beside."""
    candidates = [{"text": "middle", "id": "m"}, {"text": "low"}, {"text": "high", "scores": {"bm25": 1.5}}]
    answer = await _answer({"query": "q", "candidates": candidates}, "/v1/cascade/rerank", **_TOP_TWO)
    assert answer == {
        "results": [
            {"index": 2, "id": None, "score": 0.75, "stage": "large"},
            {"index": 0, "id": "m", "score": 0.5, "stage": "large"},
            {"index": 1, "id": None, "score": 0.25, "stage": "small"},
        ],
        "decision_id": "decision-1",
        "release": "test-1",
        "stage": "large",
        "degraded": [],
    }


async def test_native_explains_when_asked() -> None:
    """``explain`` adds the decision with its rounds and costs, and no text."""
    body = {**BODIES["native"]("q", _TEXTS), "explain": True, "tenant": "acme"}
    explained = (await _answer(body, "/v1/cascade/rerank", **_TOP_TWO))["explain"]
    assert explained["decision_id"] == "decision-1"
    assert explained["dialect"] == "native"
    assert explained["tenant"] == "acme"
    assert explained["candidates"] == explained["depth"] == 3
    assert explained["escalated"] == [2, 0]
    assert [(each["stage"], each["sent"], each["scored"], each["outcome"]) for each in explained["rounds"]] == [
        ("small", 3, 3, "ok"),
        ("large", 2, 2, "ok"),
    ]
    assert explained["effective_pairs"] == 5
    assert explained["deadline_ms"] == 1000.0


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_b4_every_route_answers_the_same_order(dialect: str, path: str) -> None:
    """The same query and documents have the same order and scores on every route."""
    items = _items(dialect, await _answer(BODIES[dialect]("q", _TEXTS), path))
    ranked = sorted(items, key=lambda item: -_score(item))
    assert [item["index"] for item in ranked] == _ORDER
    assert [_score(item) for item in ranked] == [0.75, 0.5, 0.25]


@pytest.mark.parametrize(("dialect", "path"), _ALL)
@pytest.mark.parametrize(
    "fault", [StageTimeout, StageUnreachable, StageOverloaded, StageRefused, StageInvalidAnswer, RuntimeError("fault")]
)
async def test_b4_a5_a6_every_route_answers_whole_when_stages_fail(
    dialect: str, path: str, fault: type[StageError] | Exception
) -> None:
    """With both stages down each route answers 200, every candidate in first-stage order, and says why."""
    served = sidecar(ScriptedStage(lambda q, t: 0.0, fails=fault), ScriptedStage(lambda q, t: 0.0, fails=fault))
    response = await served.post(path, BODIES[dialect]("q", _TEXTS))
    assert response.status_code == 200
    items = _items(dialect, response.json())
    assert [item["index"] for item in items] == [0, 1, 2]
    assert [round(_score(item), 6) for item in items] == [1.0, round(2 / 3, 6), round(1 / 3, 6)]
    reason = fault.reason if isinstance(fault, type) else "internal_error"
    assert response.headers["x-cascade-degraded"] == reason
    assert response.headers["x-cascade-stage"] == "retrieval"
    assert response.headers["x-cascade-score"] == "rank"


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_e6_one_candidate_has_the_score_of_its_own(dialect: str, path: str) -> None:
    """A single candidate is scored, not normalised against itself."""
    items = _items(dialect, await _answer(BODIES[dialect]("q", ["high"]), path))
    assert [(item["index"], _score(item)) for item in items] == [(0, 0.75)]


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_e6_equal_scores_keep_first_stage_order(dialect: str, path: str) -> None:
    """Documents that score alike stay where they were, with scores that still fall strictly."""
    items = _items(dialect, await _answer(BODIES[dialect]("q", ["middle"] * 5), path))
    assert [item["index"] for item in items] == [0, 1, 2, 3, 4]
    assert all(_score(item) == pytest.approx(0.5, abs=1e-5) for item in items)
    exact = [_score(item) for item in (await _exact(BODIES[dialect]("q", ["middle"] * 5), dialect, path))]
    assert exact == sorted(exact, reverse=True)
    assert len(set(exact)) == 5


async def _exact(body: Any, dialect: str, path: str) -> list[dict[str, Any]]:
    return _items(dialect, (await sidecar(_stage(), _stage()).post(path, body)).json())


@pytest.mark.parametrize(
    ("dialect", "switch"),
    [
        ("tei", {"raw_scores": True}),
        ("vllm", {"use_activation": False}),
        ("vllm", {"raw_scores": True}),
        ("vllm", {"activation": False}),
        ("vllm-score", {"use_activation": False}),
        ("vllm-score", {"softmax": False}),
    ],
)
async def test_e4_e5_raw_scores_are_logits_of_the_outward_scores(dialect: str, switch: dict[str, bool]) -> None:
    """The switch changes the scale, never the order; logits of both stages fall down one scale."""
    for path in ROUTES[dialect]:
        answer = await _answer({**BODIES[dialect]("q", _TEXTS), **switch}, path, **_TOP_TWO)
        scores = {item["index"]: _score(item) for item in _items(dialect, answer)}
        assert scores == {2: round(math.log(3), 6), 0: 0.0, 1: round(-math.log(3), 6)}


@pytest.mark.parametrize(("dialect", "switch"), [("tei", {"raw_scores": True}), ("vllm", {"use_activation": False})])
async def test_raw_scores_are_finite_when_only_ranks_are_known(dialect: str, switch: dict[str, bool]) -> None:
    """A first-stage order has logits too: the switch is never refused for what load did."""
    down = ScriptedStage(lambda q, t: 0.0, fails=StageOverloaded)
    body = {**BODIES[dialect]("q", ["middle"] * 40), **switch}
    response = await sidecar(down, down).post(ROUTES[dialect][0], body)
    scores = [_score(item) for item in _items(dialect, response.json())]
    assert len(scores) == 40
    assert all(map(math.isfinite, scores))
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("dialect", ["tei", "vllm", "vllm-score", "native"])
async def test_every_candidate_is_answered_once_beyond_the_depth(dialect: str) -> None:
    """All are answered even where only the first few are scored; none is lost or doubled."""
    body = BODIES[dialect]("q", [*_TEXTS, *["middle"] * 30])
    answer = await _answer(body, ROUTES[dialect][0], depth=3)
    assert sorted(item["index"] for item in _items(dialect, answer)) == list(range(33))


@pytest.mark.parametrize(("dialect", "path"), [(d, p) for d, p in _ALL if d in ("vllm", "native")])
@pytest.mark.parametrize("top_n", [1, 2, 3, 50])
async def test_top_n_cuts_the_order(dialect: str, path: str, top_n: int) -> None:
    """Fewer are answered only when fewer are asked for, and they are the best."""
    items = _items(dialect, await _answer({**BODIES[dialect]("q", _TEXTS), "top_n": top_n}, path))
    assert [item["index"] for item in items] == _ORDER[:top_n]


async def test_headers_tell_the_decision() -> None:
    """Id, release and stage are always there; reasons and counts only where there are any."""
    response = await sidecar(_stage(), _stage()).post("/rerank", {"query": "q", "texts": _TEXTS})
    told = {name: value for name, value in response.headers.items() if name.startswith("x-cascade-")}
    assert told == {
        "x-cascade-decision-id": "decision-1",
        "x-cascade-release": "test-1",
        "x-cascade-stage": "large",
    }


async def test_headers_list_every_reason_and_count_the_excluded() -> None:
    """Two reasons are both told, in the order met; excluded documents are counted, not called degraded."""
    small = ScriptedStage(lambda q, t: 0.0, fails=StageOverloaded)
    large = ScriptedStage(lambda q, t: 0.0, fails=StageTimeout)
    response = await sidecar(small, large).post("/rerank", {"query": "q", "texts": ["a", ""]})
    assert response.headers["x-cascade-degraded"] == "stage_overloaded,stage_timeout"
    whole = await sidecar(_stage(), _stage()).post("/rerank", {"query": "q", "texts": ["low", "", " "]})
    assert whole.headers["x-cascade-excluded"] == "2"
    assert "x-cascade-degraded" not in whole.headers


async def test_tei_headers_are_the_totals_of_the_request() -> None:
    """TEI's own headers are whole numbers: characters of all pairs, tokens of all rounds, milliseconds."""
    response = await sidecar(_stage(), _stage()).post("/rerank", {"query": "four", "texts": _TEXTS})
    told = {
        name: value
        for name, value in response.headers.items()
        if name.startswith(("x-compute", "x-total", "x-to", "x-queue", "x-inf"))
    }
    assert told["x-compute-type"] == "cascade"
    assert told["x-compute-characters"] == str(3 * 4 + len("middlelowhigh"))
    assert told["x-compute-tokens"] == str(2 * len("middlelowhigh"))  # the scripted stages count characters
    times = {"x-compute-time", "x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"}
    assert times == set(told) - {"x-compute-type", "x-compute-characters", "x-compute-tokens"}
    assert all(told[name].isdigit() for name in times)


def test_tei_headers_hold_the_time_that_passed() -> None:
    """``x-total-time`` is the whole request in milliseconds."""

    async def ask() -> str:
        slow = ScriptedStage(lambda q, t: 0.0, delay_ms=100)
        response = await sidecar(slow, slow).post("/rerank", {"query": "q", "texts": ["a"]})
        return response.headers["x-total-time"]

    assert run_virtual(ask()) == "200"


@pytest.mark.parametrize(("dialect", "path"), _ALL)
def test_a7_b4_every_route_answers_before_its_deadline(dialect: str, path: str) -> None:
    """A stage that takes five seconds is left at the deadline of 100 ms, on every route."""

    async def ask() -> tuple[int, str, float]:
        slow = ScriptedStage(lambda q, t: 0.0, delay_ms=5000)
        served = sidecar(slow, slow)
        began = served.service.clock()
        response = await served.post(path, BODIES[dialect]("q", _TEXTS), {"x-request-timeout-ms": "100"})
        return response.status_code, response.headers["x-cascade-degraded"], served.service.clock() - began

    status, reasons, seconds = run_virtual(ask())
    assert status == 200
    assert "stage_timeout" in reasons
    assert seconds <= 0.1


def test_the_deadline_header_beats_the_release() -> None:
    """A stage slower than the release's time answers where the caller gives it longer."""

    async def ask(headers: dict[str, str]) -> str:
        release = release_of(budgets={"total_ms": 100.0, "small_ms": 5000.0, "large_ms": 5000.0, "reserve_ms": 10.0})
        slow = ScriptedStage(lambda q, t: 0.0, delay_ms=300)
        response = await sidecar(slow, slow, release=release).post("/rerank", {"query": "q", "texts": ["a"]}, headers)
        return response.headers["x-cascade-stage"]

    assert run_virtual(ask({})) == "retrieval"
    assert run_virtual(ask({"x-envoy-expected-rq-timeout-ms": "1000"})) == "large"
