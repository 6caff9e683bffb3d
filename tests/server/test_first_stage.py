"""First-stage scores of a request, on every route: how they are read, and that decisions read them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.policy.release import Release
from cascade.server.dialects.base import DialectFormat
from cascade.server.dialects.infinity import InfinityFormat
from cascade.server.dialects.native import NativeFormat
from cascade.server.dialects.tei import TeiFormat
from cascade.server.dialects.vllm import VllmFormat
from cascade.server.dialects.vllm_score import VllmScoreFormat
from cascade.telemetry.logs import configure_logging
from cascade.testing.calibration import scripted_calibration
from cascade.testing.stages import ScriptedStage
from tests.server.sidecar import BODIES, ROUTES, Sidecar, release_of, sidecar

_ALL: Final = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths] + [("infinity", "/rerank")]
_BESIDE: Final = [(dialect, path) for dialect, path in _ALL if dialect != "native"]
_FORMATS: Final[Mapping[str, DialectFormat]] = {
    "native": NativeFormat(),
    "tei": TeiFormat(),
    "vllm": VllmFormat("1"),
    "infinity": InfinityFormat(),
    "vllm-score": VllmScoreFormat(),
}
_TEXTS: Final = [f"document {number}" for number in range(40)]
_LEADING: Final = [90.0, *(float(40 - rank) for rank in range(1, 40))]
_FLAT: Final = [float(40 - rank) for rank in range(40)]
_BY_GAP: Final = {
    "kind": "signals",
    "default": 30,
    "rules": [{"when": [{"signal": "bm25.gap_tail", "at_least": 3}], "depth": 5}],
}
_DECIDED: Final = (
    "candidates",
    "depth",
    "depth_reason",
    "signals",
    "action",
    "estimates",
    "misfit",
    "escalated",
    "degraded",
    "stage",
)

Channels = Mapping[str, Sequence[float | None]]


def _body(dialect: str, texts: list[str], channels: Channels | None) -> dict[str, Any]:
    """Return a request as the dialect writes it; without channels it says nothing of them."""
    body = BODIES["vllm" if dialect == "infinity" else dialect]("query", texts)
    if channels is None:
        return body
    if dialect != "native":
        return {**body, "first_stage": channels}
    for index, candidate in enumerate(body["candidates"]):
        candidate["scores"] = {name: scores[index] for name, scores in channels.items()}
    return body


def _sidecar(dialect: str, **settings: Any) -> Sidecar:
    """Return a sidecar whose small stage prefers later documents, so that no order of its own is the first stage's."""
    stage = ScriptedStage(lambda query, text: float(text.rpartition(" ")[2]) / 4)
    return sidecar(stage, rerank_dialect="infinity" if dialect == "infinity" else "vllm", **settings)


def _calibrated(depth: Any = 40) -> tuple[Release, Any]:
    """Return a release that escalates by a calibration of the channel bm25, and that calibration."""
    calibration = scripted_calibration(("bm25",), channel_weight=1.0)
    rule = {"kind": "calibrated", "calibration": calibration.sha256, "price_per_pair": 0.02, "k": 5}
    return release_of(depth=depth, escalation=rule), calibration


async def _decision(dialect: str, path: str, channels: Channels | None, depth: Any = 40) -> dict[str, Any]:
    """Return what the log line tells of a decision by calibration."""
    log = io.BytesIO()
    configure_logging("info", log)
    release, calibration = _calibrated(depth)
    served = _sidecar(dialect, release=release, calibration=calibration)
    assert (await served.post(path, _body(dialect, _TEXTS, channels))).status_code == 200
    (line,) = map(orjson.loads, log.getvalue().splitlines())
    return {name: line[name] for name in _DECIDED}


@pytest.mark.parametrize(("dialect", "path"), _ALL)
@pytest.mark.parametrize(
    ("channels", "depth"),
    [
        ({"bm25": _LEADING}, 5),
        ({"dense": _FLAT, "bm25": _LEADING}, 5),
        ({"bm25": [None, *_LEADING[:-1]]}, 5),
        ({"bm25": _FLAT}, 30),
        ({"dense": _LEADING}, 30),
        ({"bm25": [90.0, 39.0, *[None] * 38]}, 30),
        ({"bm25": [None] * 40}, 30),
        ({}, 30),
        (None, 30),
    ],
)
async def test_a_channel_decides_the_depth(dialect: str, path: str, channels: Channels | None, depth: int) -> None:
    """A lead of ``bm25`` makes the small stage read 5 documents on every route; without that signal it reads 30."""
    served = _sidecar(dialect, release=release_of(depth=_BY_GAP))
    response = await served.post(path, _body(dialect, _TEXTS, channels))
    assert response.status_code == 200
    assert "x-cascade-ignored" not in response.headers
    assert served.small.calls == [_TEXTS[:depth]]


@pytest.mark.parametrize(("dialect", "path"), _BESIDE)
@pytest.mark.parametrize(
    "channels", [{"bm25": _LEADING}, {"bm25": [*_FLAT[:20], *[None] * 20]}, {"dense": _FLAT}, None]
)
async def test_every_dialect_decides_as_the_native_route(dialect: str, path: str, channels: Channels | None) -> None:
    """Signals, depth, estimates, action and escalated set are the same, however the scores are written."""
    native = await _decision("native", "/v1/cascade/rerank", channels, _BY_GAP)
    assert await _decision(dialect, path, channels, _BY_GAP) == native
    assert native["misfit"] == (None if channels and "bm25" in channels else "channel_missing")


@pytest.mark.parametrize(("dialect", "path"), _BESIDE)
async def test_a_channel_decides_what_is_escalated(dialect: str, path: str) -> None:
    """Other scores of the channel, and other candidates are sent: each score belongs to the document at its index."""
    forward = await _decision(dialect, path, {"bm25": _LEADING})
    backward = await _decision(dialect, path, {"bm25": _LEADING[::-1]})
    assert forward["action"] == backward["action"] == "cluster"
    assert 0 in forward["escalated"]
    assert 0 not in backward["escalated"]


@pytest.mark.parametrize("path", ROUTES["vllm-score"])
async def test_with_a_query_for_each_document_a_score_belongs_to_its_pair(path: str) -> None:
    """Each query's depth follows the scores at the places of its own documents."""
    queries = ["first", "second"] * 40
    texts = [f"{query} {number}" for number, query in enumerate(queries)]
    scores: list[float] = [score for pair in zip(_LEADING, _FLAT, strict=True) for score in pair]
    served = _sidecar("vllm-score", release=release_of(depth=_BY_GAP))
    body = {"text_1": queries, "text_2": texts, "first_stage": {"bm25": scores}}
    assert (await served.post(path, body)).status_code == 200
    assert sorted(served.small.calls, key=len) == [texts[0::2][:5], texts[1::2][:30]]


async def test_a_group_that_the_calibration_does_not_fit_is_told() -> None:
    """Where the first query has the channel and the second does not, the one line tells why it was not used."""
    log = io.BytesIO()
    configure_logging("info", log)
    release, calibration = _calibrated()
    served = _sidecar("vllm-score", release=release, calibration=calibration)
    body = {
        "text_1": ["first"] * 4 + ["second"] * 4,
        "text_2": _TEXTS[:8],
        "first_stage": {"bm25": [4.0, 3.0, 2.0, 1.0, None, None, None, None]},
    }
    response = await served.post("/score", body)
    (line,) = map(orjson.loads, log.getvalue().splitlines())
    assert response.headers["x-cascade-degraded"] == "calibration_mismatch"
    assert line["misfit"] == "channel_missing"


_SCORES: Final = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
_NAMES: Final = st.text("abcXYZ019_-", min_size=1, max_size=64)


@given(st.data(), st.integers(1, 6), st.sampled_from(sorted(_FORMATS)))
def test_scores_are_the_documents_by_index(data: st.DataObject, count: int, dialect: str) -> None:
    """Any finite scores under any legal names arrive at the candidates of the same index; null arrives nowhere."""
    channels = data.draw(st.dictionaries(_NAMES, st.lists(_SCORES, min_size=count, max_size=count), max_size=16))
    body = orjson.loads(orjson.dumps(_body(dialect, ["a"] * count, channels)))
    candidates = _FORMATS[dialect].parse(body, {}, count).request.candidates
    assert [dict(candidate.scores) for candidate in candidates] == [
        {name: score for name, scores in channels.items() if (score := scores[index]) is not None}
        for index in range(count)
    ]


@pytest.mark.parametrize("scores", [{}, {"scores": None}, {"scores": {}}, {"scores": {"bm25": None}}])
def test_a_native_candidate_without_a_channel_is_missing_there(scores: dict[str, Any]) -> None:
    """However it is said that there is no score, the other candidates keep theirs."""
    listed = [{"text": "a", "scores": {"bm25": 2}}, {"text": "b", **scores}]
    first, second = NativeFormat().parse({"query": "q", "candidates": listed}, {}, 2).request.candidates
    assert (first.scores, second.scores) == ({"bm25": 2.0}, {})


async def test_explain_tells_what_was_read_and_decided() -> None:
    """Signals, depth and its reason, estimates, action, escalated set and rounds stand in the answer."""
    release, calibration = _calibrated(_BY_GAP)
    served = _sidecar("native", release=release, calibration=calibration)
    body = {**_body("native", _TEXTS, {"bm25": _LEADING}), "explain": True}
    told = (await served.post("/v1/cascade/rerank", body)).json()["explain"]
    assert told["signals"].keys() >= {"bm25.gap_tail"}
    assert told["signals"]["bm25.gap_tail"] > 3
    assert (told["depth"], told["depth_reason"], told["misfit"]) == (5, "rule", None)
    assert told["estimates"].keys() == {"k", "p_first", "margin", "entropy", "expected_loss", "p_acceptable"}
    assert told["estimates"]["k"] == 5
    assert 0 < told["estimates"]["p_first"] <= 1
    assert told["action"] in ("accept", "cluster", "query")
    assert [each["stage"] for each in told["rounds"]] == ["small", *["large"] * (len(told["rounds"]) - 1)]
    assert told["effective_pairs"] == 5 + len(told["escalated"])


async def test_explain_tells_a_missing_signal_and_a_calibration_that_is_not_used() -> None:
    """A signal without its channel is null; without the calibration's channel there are no estimates."""
    release, calibration = _calibrated(_BY_GAP)
    served = _sidecar("native", release=release, calibration=calibration)
    response = await served.post("/v1/cascade/rerank", {**_body("native", _TEXTS, None), "explain": True})
    told = response.json()["explain"]
    assert told["signals"]["bm25.gap_tail"] is None
    assert (told["depth"], told["depth_reason"]) == (30, "default")
    assert (told["action"], told["misfit"], told["estimates"]) == ("safe", "channel_missing", None)
    assert told["degraded"] == ["calibration_mismatch"]
