"""The probe: known pairs tell what a health route does not."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.guard.deadline import Deadline
from cascade.stages.base import Stage
from cascade.stages.probe import Probe, Verdict, judge, probe
from cascade.testing.clock import run_virtual
from cascade.testing.rerank_api import FakeInfinity, FakeLlamaCpp
from cascade.testing.upstream import FakeTei, FakeVllm, overlap
from cascade.types import ScoreSpace

from .arrange import api_spec, running, score, stage_before, tei_spec, vllm_spec

LOGIT, PROBABILITY, COSINE = ScoreSpace.LOGIT, ScoreSpace.PROBABILITY, ScoreSpace.COSINE


@pytest.mark.parametrize(
    ("scores", "space", "verdict"),
    [
        ([5.0, -4.0, -9.0, -8.0], LOGIT, Verdict.OK),
        ([0.98, 0.2, 0.01, 0.0], PROBABILITY, Verdict.OK),
        ([0.9, 0.7, 0.1, -0.2], COSINE, Verdict.OK),
        ([1.0000001, 0.7, 0.1, -0.2], COSINE, Verdict.OK),
        ([1.0, 5.0, -9.0, -8.0], LOGIT, Verdict.WRONG_ORDER),
        ([5.0, -4.0, 5.0, -8.0], LOGIT, Verdict.WRONG_ORDER),
        ([0.2, 0.98, 0.01, 0.0], PROBABILITY, Verdict.WRONG_ORDER),
        ([0.5, 0.5, 0.5, 0.5], PROBABILITY, Verdict.CONSTANT),
        ([3e-20, 1e-20, 2e-20, 1e-20], LOGIT, Verdict.CONSTANT),
        ([5.0, -4.0, -9.0, -8.0], PROBABILITY, Verdict.OUTSIDE_SPACE),
        ([5.0, 0.5, 0.1, 0.2], PROBABILITY, Verdict.OUTSIDE_SPACE),
        ([5.0, 0.5, 0.1, 0.2], COSINE, Verdict.OUTSIDE_SPACE),
        ([0.5, 0.1, 0.1, -1.2], COSINE, Verdict.OUTSIDE_SPACE),
        ([0.7309, 0.5498, 0.5001, 0.5], PROBABILITY, Verdict.TWICE_ACTIVATED),
        ([0.5001, 0.7309, 0.5, 0.5], PROBABILITY, Verdict.TWICE_ACTIVATED),
        ([0.7309, 0.5498, 0.5001, 0.5], LOGIT, Verdict.OK),
        ([0.74, 0.55, 0.5, 0.5], PROBABILITY, Verdict.OK),
        ([0.73, 0.55, 0.4, 0.5], PROBABILITY, Verdict.OK),
    ],
)
def test_each_set_of_scores_has_one_verdict(scores: list[float], space: ScoreSpace, verdict: Verdict) -> None:
    """Order, spread and space are judged in the declared space; nothing is guessed from a range."""
    assert judge(scores, space) is verdict


@given(st.lists(st.floats(-30, 30), min_size=4, max_size=4))
def test_45_a_second_sigmoid_is_always_noticed(logits: list[float]) -> None:
    """Whatever the logits, probabilities that went through a sigmoid again are never called right."""
    twice = [1 / (1 + math.exp(-1 / (1 + math.exp(-logit)))) for logit in logits]
    assert judge(twice, PROBABILITY) in {Verdict.TWICE_ACTIVATED, Verdict.CONSTANT}


async def probed(stage: Stage, within_ms: float = 1_000) -> Probe:
    """Probe a stage on the loop's clock."""
    return await probe(stage, Deadline.after_ms(within_ms, asyncio.get_running_loop().time))


def probe_of(server: FakeTei | FakeInfinity | FakeLlamaCpp, **fields: object) -> Probe:
    """Return the probe of a server on virtual time."""
    adapters = {FakeInfinity: "infinity", FakeLlamaCpp: "llamacpp"}

    async def play() -> Probe:
        spec = tei_spec(**fields) if isinstance(server, FakeTei) else api_spec(adapters[type(server)], **fields)
        async with running(server, spec) as stage:
            return await probed(stage)

    return run_virtual(play())


def test_a_server_that_scores_right_is_well() -> None:
    """The answer to the question outscores its neighbours; the time it took is told."""
    server = FakeTei(score_of=lambda query, text: 5.0 if "France" in text else -len(text) / 10, delay_ms=40)
    assert probe_of(server) == Probe(Verdict.OK, "", pytest.approx(40.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("score_of", "verdict"),
    [
        (lambda query, text: -overlap(query, text), Verdict.WRONG_ORDER),
        (lambda query, text: 1e-20, Verdict.CONSTANT),
    ],
)
def test_9_a_server_without_its_template_or_its_head_is_noticed(
    score_of: Callable[[str, str], float], verdict: Verdict
) -> None:
    """Plausible scores in the wrong order, and scores that are all the same, are both told."""
    assert probe_of(FakeLlamaCpp(score_of=score_of)).verdict is verdict


def test_21_logits_that_were_declared_probabilities_are_noticed() -> None:
    """llama.cpp answers logits whatever is declared."""
    assert probe_of(FakeLlamaCpp(), score_space="probability").verdict is Verdict.OUTSIDE_SPACE


def test_22_a_server_that_hangs_while_its_health_is_well_fails_its_probe_and_costs_one_deadline() -> None:
    """A dead worker answers no question but that for its health: the probe ends in time and says so."""
    server = FakeInfinity(hangs=True)

    async def play() -> tuple[Probe, float, int]:
        async with running(server, api_spec("infinity")) as stage:
            began = asyncio.get_running_loop().time()
            assert (await server(httpx.Request("GET", "http://reranker.test/health"))).status_code == 200
            found = await probed(stage, 250)
            return found, asyncio.get_running_loop().time() - began, server.cancelled

    found, took, cancelled = run_virtual(play())
    assert (found.verdict, found.code) == (Verdict.FAILED, "deadline")
    assert took == pytest.approx(0.25)
    assert cancelled == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [(httpx.Response(500), "status_500"), (httpx.ConnectError("m"), "refused"), (httpx.Response(200, json=[]), "wrong_count")],
)  # fmt: skip
def test_a_probe_that_is_not_answered_tells_the_code(answer: httpx.Response | Exception, code: str) -> None:
    """A failure is a verdict, never an exception."""
    found = probe_of(FakeTei(script=[answer]))
    assert (found.verdict, found.code) == (Verdict.FAILED, code)


def test_a_pair_that_is_refused_is_no_judgement() -> None:
    """Where a known pair does not fit the window, the others prove nothing."""
    found = probe_of(FakeTei(truncates=False, tokens_of=lambda query, text: 900 if "Knead" in text else 5))
    assert (found.verdict, found.code) == (Verdict.FAILED, "document_refused")


def test_13_no_two_probes_share_a_request_id() -> None:
    """An engine may choke on an id that is in use, and several sidecars probe one server."""
    server = FakeTei()

    async def play() -> None:
        stages = [stage_before(httpx.MockTransport(server), tei_spec()) for _ in range(2)]
        for stage, _ in itertools.product(stages, range(2)):
            await probed(stage)
        for stage in stages:
            await stage.aclose()

    run_virtual(play())
    ids = [seen.headers["x-request-id"] for seen in server.posts]
    assert len(set(ids)) == len(ids) == 4


def test_a_probe_says_nothing_of_how_much_may_be_under_way() -> None:
    """Its four short texts are no call of the traffic: eight first rounds of fifty documents find their room."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        async with running(FakeVllm(delay_ms=150), vllm_spec(chunk_texts=64), budget_ms=400) as stage:
            before = (stage.guarded.limit_texts, stage.guarded.limit_tokens)
            assert (await probe(stage, Deadline.after_ms(5000, loop.time))).code == ""
            assert (stage.guarded.limit_texts, stage.guarded.limit_tokens) == before
            documents = ["word " * 200] * 50
            rounds = [score(stage, "a query", documents, within_ms=400) for _ in range(8)]
            assert [len(scored.scores) for scored in await asyncio.gather(*rounds)] == [50] * 8

    run_virtual(play())
