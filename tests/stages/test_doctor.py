"""What the doctor finds at a stage, and what it says to change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from cascade.guard.deadline import Clock
from cascade.policy.release import ChatStage, HttpStage
from cascade.stages.doctor import Examination, advise, examine
from cascade.stages.probe import Probe, Verdict
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm
from tests.contract.chat import CHAT

from .arrange import stage_before, tei_spec, vllm_spec


def _relevant(query: str, text: str) -> float:
    """Score the probe's relevant document first, and others by their length."""
    return 5.0 if "Paris" in text else -len(text) / 1000


def _examine(server: FakeServer, spec: HttpStage, budget_ms: float = 100.0) -> Examination:
    async def play() -> Examination:
        clock: Clock = asyncio.get_running_loop().time
        stage = stage_before(httpx.MockTransport(server), spec)
        try:
            return await examine(stage, spec, budget_ms, clock)
        finally:
            await stage.aclose()

    return run_virtual(play())


def test_a_sound_stage_is_timed_and_needs_no_change() -> None:
    """Limits are told, the probe is well, and latency is the median for 1, 8 and 32 documents."""
    server = FakeTei(score_of=_relevant, delay_ms=20.0)
    found = _examine(server, tei_spec(model="fake/reranker", dtype="float16", engine="tei/1.9.0", revision="r1"))
    assert found.probe.verdict is Verdict.OK
    assert found.latency_ms == {1: pytest.approx(20), 8: pytest.approx(20), 32: pytest.approx(20)}
    assert found.observed is not None
    assert found.observed.max_texts == 32
    assert found.advice == []


def test_a_version_declared_in_short_is_no_difference() -> None:
    """What the release says of 1.9 holds for the 1.9.x that the server says."""
    found = _examine(FakeTei(score_of=_relevant), tei_spec(model="fake/reranker", engine="tei/1.9", revision="r1"))
    assert not [line for line in found.advice if line.startswith("engine")]
    other = _examine(FakeTei(score_of=_relevant), tei_spec(model="fake/reranker", engine="tei/1.90", revision="r1"))
    assert [line for line in other.advice if line.startswith("engine is declared as tei/1.90")]


def test_every_timed_document_is_new() -> None:
    """A server's cache of answers does not make it look fast."""
    server = FakeTei(score_of=_relevant)
    _examine(server, tei_spec())
    texts = [text for post in server.posts for text in post.body["texts"]]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize(
    ("score_of", "verdict", "told"),
    [
        (lambda query, text: -_relevant(query, text), Verdict.WRONG_ORDER, "qwen3-reranker@1"),
        (lambda query, text: 0.5, Verdict.CONSTANT, "classification head"),
    ],
)
def test_a_server_started_without_its_overrides_is_recognised(
    score_of: Callable[[str, str], float], verdict: Verdict, told: str
) -> None:
    """A wrong order and constant scores name what the server lacks."""
    found = _examine(FakeVllm(score_of=score_of), vllm_spec())
    assert found.probe.verdict is verdict
    assert told in found.advice[0]


def test_a_server_without_a_score_route_is_recognised() -> None:
    """A model that was not started as a reranker has no scoring route; nothing is timed."""
    found = _examine(FakeVllm(has_score_route=False, version="2024"), vllm_spec())
    assert (found.probe.verdict, found.probe.code) == (Verdict.FAILED, "no_route")
    assert "was not started as a reranker" in found.advice[0]
    assert found.latency_ms == {}


@pytest.mark.parametrize(
    ("server", "spec", "told"),
    [
        (FakeTei(key="k"), tei_spec(), "wants a key"),
        (FakeVllm(model="other"), vllm_spec(), "does not know the model's name"),
        (FakeTei(model_type="embedding"), tei_spec(), "no reranker"),
    ],
)
def test_what_makes_a_stage_unusable_comes_with_its_remedy(server: FakeServer, spec: HttpStage, told: str) -> None:
    """Key, model name and kind of model are each told with what to change."""
    assert told in _examine(server, spec).advice[0]


def test_a_failure_without_a_remedy_of_its_own_is_named() -> None:
    """An unusual code is told as it is."""
    server = FakeTei(script=[httpx.Response(424, json={"error": "x", "error_type": "Backend"})])
    assert _examine(server, tei_spec()).advice[0] == "scoring fails: backend"


def test_a_connection_that_is_ended_may_have_wanted_a_certificate() -> None:
    """Over https, where the stage shows none; not over http, and not where it shows one."""
    shown = {"certificate": "/run/secrets/a.crt", "key": "/run/secrets/a.key"}
    failed = Probe(Verdict.FAILED, "reset", 1.0)
    told = [
        any("client_certificate" in line for line in advise(spec, None, None, failed, {}, 100.0))
        for spec in (
            tei_spec(url="https://reranker.test"),
            tei_spec(),
            tei_spec(url="https://reranker.test", client_certificate=shown),
        )
    ]
    assert told == [True, False, False]


def test_timing_ends_at_the_first_size_that_fails() -> None:
    """What was timed before a failure is kept."""
    answered: list[Any] = [None] * 4
    server = FakeTei(score_of=_relevant, script=[*answered, httpx.Response(503)])
    assert list(_examine(server, tei_spec()).latency_ms) == [1]


def test_declared_and_told_are_held_against_each_other() -> None:
    """Length, version, type and revision that do not fit are each told."""
    found = _examine(FakeTei(score_of=_relevant), tei_spec(max_length=8192, engine="tei/1.8", dtype="float32"))
    assert [line.split(" ")[0] for line in found.advice] == ["model", "max_length", "engine", "dtype", "no"]


def test_a_stage_slower_than_its_budget_is_told() -> None:
    """The least size that does not fit is named."""
    found = _examine(FakeTei(score_of=_relevant, delay_ms=200.0), tei_spec(), budget_ms=100.0)
    assert "1 documents of about 100 tokens take longer than the stage's budget of 100 ms" in found.advice[-1]


def test_a_list_that_outlasts_its_budget_has_advice_that_shortens_it() -> None:
    """It is one call of the best, whatever the depth: a lower one would not help."""
    found = Probe(Verdict.OK, "", 6000.0)
    (told,) = advise(ChatStage.model_validate(CHAT), None, None, found, {1: 0.1, 8: 6000.0}, 3500.0)
    assert told.startswith(
        "8 documents of about 100 tokens take longer than the stage's budget of 3500 ms: a list is one call"
    )
    assert all(name in told for name in ("large_ms", "top_m", "answer_tokens"))
    assert "depth" not in told


def test_scores_outside_their_space_and_scores_activated_twice_are_told() -> None:
    """Both verdicts that only absolute scores can show come with advice."""
    for verdict, told in ((Verdict.OUTSIDE_SPACE, "declare logit"), (Verdict.TWICE_ACTIVATED, "sigmoid again")):
        assert told in advise(tei_spec(), None, None, Probe(verdict, "", 1.0), {}, 100.0)[0]
