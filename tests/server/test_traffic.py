"""Which release decides a request, and what is told of it."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Route

from cascade.decision import Ranking
from cascade.errors import StageTimeout
from cascade.guard.seat import Bounds
from cascade.rollout.arms import place, unit_number
from cascade.rollout.guardrails import Settled
from cascade.server.app import public_app
from cascade.server.dialects.base import Parsed
from cascade.server.dialects.tei import TeiFormat
from cascade.server.http import Answer
from cascade.server.rerank import rerank_endpoint
from cascade.server.routes import RerankRoute
from cascade.telemetry.logs import configure_logging
from cascade.testing.clock import run_virtual
from cascade.types import Arm, Lane, Verdict
from tests.recorded import Kept
from tests.server.asgi import scope_of
from tests.server.releases import TEXTS, Models, another, bundled, served, stage_of
from tests.server.sidecar import BODIES, LEVELS, ROUTES, Sidecar

_SALT = bundled("candidate-1").loaded.digest
_CANARY = next(f"user-{n}" for n in range(100) if place(f"user-{n}", _SALT) < 0.5)
_STABLE = next(f"user-{n}" for n in range(100) if place(f"user-{n}", _SALT) >= 0.5)


async def _ask(sidecar: Sidecar, unit: str | None = None, query: str = "kingfisher", **headers: str) -> Any:
    told = headers | ({} if unit is None else {"x-cascade-unit": unit})
    response = await sidecar.post("/rerank", BODIES["tei"](query, TEXTS), told)
    assert response.status_code == 200, response.text
    return response


async def _split(sidecar: Sidecar, share: float = 0.5, **fields: Any) -> Any:
    candidate = await another(sidecar, **fields)
    sidecar.service.traffic.split(candidate, share)
    return candidate


async def test_with_one_release_nothing_tells_of_arms() -> None:
    """No header; the log line and the metrics say stable."""
    log = io.BytesIO()
    configure_logging("info", log)
    sidecar = served()
    response = await _ask(sidecar, _CANARY)
    assert "x-cascade-arm" not in response.headers
    assert orjson.loads(log.getvalue())["arm"] == "stable"
    told = await sidecar.metrics()
    assert told['cascade_arm_requests_total{arm="stable",outcome="answered"}'] == 1
    assert told['cascade_arm_share{arm="stable"}'] == 1
    assert told["cascade_rollout_step"] == -1


@pytest.mark.parametrize(("dialect", "path"), [(each, path) for each, paths in ROUTES.items() for path in paths])
async def test_a_unit_is_answered_by_its_arm_in_every_dialect(dialect: str, path: str) -> None:
    """Always the same one, whatever it asks; the header names the canary and the release that decided."""
    sidecar = served()
    await _split(sidecar)
    for unit, arm, release in ((_CANARY, "canary", "candidate-1"), (_STABLE, None, "stable-1")):
        for query in ("kingfisher", "bread"):
            response = await sidecar.post(path, BODIES[dialect](query, TEXTS), {"x-cascade-unit": unit})
            assert response.status_code == 200
            assert (response.headers.get("x-cascade-arm"), response.headers["x-cascade-release"]) == (arm, release)


async def test_without_a_unit_the_query_is_one() -> None:
    """The same query goes to the same arm; over many the share is kept. A blank header is none."""
    sidecar = served()
    await _split(sidecar, 0.25)
    queries = [f"query {number}" for number in range(200)]
    arms = [(await _ask(sidecar, query=query)).headers.get("x-cascade-arm") for query in queries]
    assert arms == ["canary" if place(query, _SALT) < 0.25 else None for query in queries]
    assert 30 <= arms.count("canary") <= 70
    assert [(await _ask(sidecar, "", query=query)).headers.get("x-cascade-arm") for query in queries[:20]] == arms[:20]


async def test_all_queries_of_a_body_go_to_one_arm() -> None:
    """That of the first: every large round of the answer is by one model."""
    models = Models()
    sidecar = served(models)
    await _split(sidecar, stages={"small": stage_of("small2"), "large": stage_of("large2")})
    first = next(f"q{n}" for n in range(100) if place(f"q{n}", _SALT) < 0.5)
    others = [f"q{n}" for n in range(100) if place(f"q{n}", _SALT) >= 0.5][:3]
    body = {"text_1": [first, *others], "text_2": TEXTS}
    response = await sidecar.post("/score", body)
    assert (response.status_code, response.headers["x-cascade-arm"]) == (200, "canary")
    assert len(models.of("small2").calls) == 4
    assert models.of("small").calls == []
    told = await sidecar.metrics()
    assert told['cascade_arm_requests_total{arm="canary",outcome="answered"}'] == 1
    assert told['cascade_arm_candidates_total{arm="canary"}'] == 4


def test_a_request_under_way_ends_with_the_release_that_it_began_with() -> None:
    """While it waits for its turn and while its stages are asked: a swap decides new requests alone."""

    async def play() -> None:
        models = Models(small={"delay_ms": 100})
        sidecar = served(models)
        traffic = sidecar.service.traffic
        began = asyncio.create_task(_ask(sidecar))
        await asyncio.sleep(0.05)
        old = traffic.activate(await another(sidecar, stages={"small": stage_of("quick")}, escalation="none"))
        assert (await _ask(sidecar)).headers["x-cascade-release"] == "candidate-1"
        closing = asyncio.create_task(old.aclose())
        assert (await began).headers["x-cascade-release"] == "stable-1"
        assert "x-cascade-degraded" not in (await began).headers
        await closing
        assert (models.of("small").closed, models.of("large").closed) == (1, 1)

    run_virtual(play())


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    swaps_ms=st.lists(st.integers(1, 30), max_size=6),
    asks_ms=st.lists(st.integers(0, 60), min_size=1, max_size=8),
    seats=st.integers(1, 3),
)
def test_however_releases_are_swapped_each_answer_is_wholly_of_one(
    swaps_ms: list[int], asks_ms: list[int], seats: int
) -> None:
    """The release that answers is the one of the moment it was asked, every stage of it, and nothing is degraded."""

    async def play() -> None:
        models = Models()
        for number in range(8):
            models.scripted[f"s{number}"] = {"delay_ms": 7.5}
            models.scripted[f"l{number}"] = {"delay_ms": 5.25}

        def fields(number: int) -> dict[str, Any]:
            return {"stages": {"small": stage_of(f"s{number}"), "large": stage_of(f"l{number}")}}

        bounds = Bounds(most=seats, most_waiting=100, most_long=1, long_cost=1e9)
        sidecar = served(models, bundle=bundled("r0", **fields(0)), bounds=bounds)
        traffic = sidecar.service.traffic
        await traffic.stable.start()
        closing: list[asyncio.Task[None]] = []
        answered: dict[str, int] = {}

        async def swap() -> None:
            for number, wait_ms in enumerate(swaps_ms, start=1):
                await asyncio.sleep((wait_ms + 0.125) / 1000)
                old = traffic.activate(await another(sidecar, f"r{number}", **fields(number)))
                closing.append(asyncio.create_task(old.aclose()))

        async def ask(wait_ms: int) -> None:
            await asyncio.sleep(wait_ms / 1000)
            name = traffic.stable.name
            body = {"query": "kingfisher", "candidates": [{"text": text} for text in TEXTS]}
            response = await sidecar.post("/v1/cascade/rerank", body)
            assert (response.headers["x-cascade-release"], response.json()["degraded"]) == (name, [])
            answered[name] = answered.get(name, 0) + 1

        await asyncio.gather(swap(), *(ask(wait_ms) for wait_ms in asks_ms))
        await asyncio.gather(*closing)
        numbers = range(len(swaps_ms) + 1)
        for number in numbers:  # each answer took one round of each stage of its release, and of no other
            expected = answered.get(f"r{number}", 0)
            assert [len(models.of(f"{stage}{number}").calls) for stage in "sl"] == [expected] * 2
        assert sum(answered.values()) == len(asks_ms)
        assert [models.of(f"s{number}").closed for number in numbers] == [1] * len(swaps_ms) + [0]
        await traffic.stable.aclose()

    run_virtual(play())


async def test_limits_and_budgets_are_those_of_the_release_that_decides() -> None:
    """Documents, tokens and time, whichever of the two allows more."""
    sidecar = served(bundle=bundled(limits={"max_documents": 4}))
    await _split(sidecar, limits={"max_documents": 2, "max_candidates": 2})
    for unit, texts, status in ((_STABLE, 4, 200), (_STABLE, 5, 422), (_CANARY, 2, 200), (_CANARY, 3, 422)):
        body = BODIES["tei"]("kingfisher", (TEXTS * 2)[:texts])
        assert (await sidecar.post("/rerank", body, {"x-cascade-unit": unit})).status_code == status
    wider = served(bundle=bundled(limits={"max_documents": 2, "max_candidates": 2}))
    await _split(wider, limits={"max_documents": 4, "max_request_tokens": 30}, budgets={
        "total_ms": 777.0, "small_ms": 400.0, "large_ms": 300.0, "reserve_ms": 20.0,
    })  # fmt: skip
    for unit, texts, status in ((_STABLE, 3, 422), (_CANARY, 4, 200), (_CANARY, 5, 422)):
        body = BODIES["tei"]("kingfisher", (TEXTS * 2)[:texts])
        assert (await wider.post("/rerank", body, {"x-cascade-unit": unit})).status_code == status
    long = BODIES["tei"]("kingfisher " * 60, TEXTS[:2])
    assert (await wider.post("/rerank", long, {"x-cascade-unit": _STABLE})).status_code == 200
    assert (await wider.post("/rerank", long, {"x-cascade-unit": _CANARY})).status_code == 422
    seen: list[tuple[Arm, float]] = []
    wider.service.traffic.outcomes = lambda settled: seen.append(
        (settled.arm, 0.0 if settled.decision is None else settled.decision.deadline_ms)
    )
    for unit in (_STABLE, _CANARY):
        await wider.post("/rerank", BODIES["tei"]("q", TEXTS[:2]), {"x-cascade-unit": unit})
    assert seen == [(Arm.STABLE, 1000.0), (Arm.CANARY, 777.0)]
    assert wider.service.traffic.total_ms == 1000.0


async def test_every_decided_request_is_told_once_with_its_arm() -> None:
    """Answered, or refused because its caller wanted an error; what listens may fail, and costs no answer."""
    models = Models(large2={"fails": StageTimeout})
    sidecar = served(models)
    await _split(sidecar, stages={"small": stage_of("small"), "large": stage_of("large2")})
    told: list[tuple[Arm, str, str, bool]] = []

    def listen(settled: Settled) -> None:
        assert settled.decision is not None
        told.append((settled.arm, settled.decision.release, settled.digest, settled.answered))
        raise ValueError("kingfisher")

    sidecar.service.traffic.outcomes = listen
    await _ask(sidecar, _STABLE)
    await _ask(sidecar, _CANARY)
    headers = {"x-cascade-unit": _CANARY, "x-cascade-fail-closed": "1"}
    refused = await sidecar.post("/rerank", BODIES["tei"]("q", TEXTS), headers)
    assert (refused.status_code, refused.headers["x-cascade-arm"]) == (503, "canary")
    assert (await sidecar.post("/rerank", {"query": "q"})).status_code == 400
    stable, candidate = (each.digest for each in sidecar.service.traffic.releases)
    assert told == [
        (Arm.STABLE, "stable-1", stable, True),
        (Arm.CANARY, "candidate-1", candidate, True),
        (Arm.CANARY, "candidate-1", candidate, False),
    ]
    metrics = await sidecar.metrics()
    assert metrics["cascade_internal_faults_total"] == 3
    assert {name: value for name, value in metrics.items() if "arm_requests_total" in name} == {
        'cascade_arm_requests_total{arm="stable",outcome="answered"}': 1,
        'cascade_arm_requests_total{arm="stable",outcome="refused"}': 0,
        'cascade_arm_requests_total{arm="canary",outcome="answered"}': 1,
        'cascade_arm_requests_total{arm="canary",outcome="refused"}': 1,
    }
    assert metrics['cascade_arm_degraded_total{arm="canary"}'] == 2
    assert metrics['cascade_arm_degraded_total{arm="stable"}'] == 0
    assert metrics['cascade_arm_large_pairs_total{arm="stable"}'] == 4
    assert metrics['cascade_arm_duration_seconds_count{arm="canary"}'] == 2


@pytest.mark.parametrize(
    "limits", [{"max_request_tokens": 3}, {"max_candidates": 2, "max_documents": 2}], ids=["tokens", "documents"]
)
async def test_what_only_the_candidate_does_not_take_is_told_of_its_arm(limits: dict[str, int]) -> None:
    """A release with narrower limits fails callers that the stable one serves; guardrails hear of it."""
    sidecar = served()
    await _split(sidecar, limits=limits)
    told: list[Settled] = []
    sidecar.service.traffic.outcomes = told.append
    body = BODIES["tei"]("kingfisher", TEXTS)
    refused = await sidecar.post("/rerank", body, {"x-cascade-unit": _CANARY})
    assert refused.status_code in {413, 422}
    assert told == [Settled(Arm.CANARY, _SALT, None, answered=False, unit=unit_number(place(_CANARY, _SALT)))]
    assert (await sidecar.post("/rerank", body, {"x-cascade-unit": _STABLE})).status_code == 200
    assert [(each.arm, each.answered) for each in told[1:]] == [(Arm.STABLE, True)]
    metrics = await sidecar.metrics()
    assert metrics['cascade_arm_requests_total{arm="canary",outcome="refused"}'] == 1


async def test_what_ends_in_a_fault_of_ours_is_told_of_its_arm() -> None:
    """A candidate whose answers cannot be written down gets 500 out: guardrails must hear of it, else it would stay for ever."""
    models = Models(broken={"score_of": lambda query, text: 10**400})  # no float has room for it
    sidecar = served(models)
    await _split(sidecar, stages={"small": stage_of("broken")}, escalation="none")
    told: list[Settled] = []
    sidecar.service.traffic.outcomes = told.append
    answer = await sidecar.post("/rerank", BODIES["tei"]("kingfisher", TEXTS), {"x-cascade-unit": _CANARY})
    assert answer.status_code == 500
    assert told == [Settled(Arm.CANARY, _SALT, None, answered=False, unit=unit_number(place(_CANARY, _SALT)))]


async def test_an_answer_that_cannot_be_written_is_told_as_a_fault_of_its_arm() -> None:
    """The caller gets 500, whatever was decided."""

    class Unwritable(TeiFormat):
        def render(self, ranking: Ranking, parsed: Parsed) -> Answer:
            raise ArithmeticError

    sidecar = served()
    await _split(sidecar)
    told: list[Settled] = []
    sidecar.service.traffic.outcomes = told.append
    tei = Unwritable()
    route = RerankRoute("/rerank", lambda body: tei, "", (tei,))
    app = Starlette(routes=[Route("/rerank", rerank_endpoint(sidecar.service, route), methods=["POST"])])
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sidecar.test") as client:
        body = BODIES["tei"]("kingfisher", TEXTS)
        answer = await client.post("/rerank", json=body, headers={"x-cascade-unit": _CANARY})
    assert answer.status_code == 500
    assert [(each.arm, each.answered) for each in told] == [(Arm.CANARY, False)]


def test_a_caller_who_left_is_told_with_its_arm_and_how_long_it_waited() -> None:
    """A slow candidate whose callers leave would else be judged by those that stayed; no request is counted as refused for it."""

    async def play() -> tuple[list[Settled], dict[str, float]]:
        sidecar = served(Models(small={"delay_ms": 500}))
        await _split(sidecar)
        told: list[Settled] = []
        sidecar.service.traffic.outcomes = told.append
        body = orjson.dumps(BODIES["tei"]("kingfisher", TEXTS))
        messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            await asyncio.sleep(0.3 if len(messages) == 1 else 0.0)
            return messages.pop()

        async def send(message: Any) -> None:
            """Send to nobody."""

        await public_app(sidecar.service)(scope_of("/rerank", {"x-cascade-unit": _CANARY}), receive, send)
        return told, await sidecar.metrics()

    told, metrics = run_virtual(play())
    unit = unit_number(place(_CANARY, _SALT))
    (left,) = told
    assert left == Settled(Arm.CANARY, _SALT, None, answered=False, unit=unit, left_after_ms=left.left_after_ms)
    assert left.left_after_ms == pytest.approx(300.0)
    assert metrics["cascade_abandoned_total"] == 1
    assert metrics['cascade_arm_abandoned_total{arm="canary"}'] == 1
    assert metrics['cascade_arm_abandoned_total{arm="stable"}'] == 0
    assert metrics['cascade_arm_requests_total{arm="canary",outcome="refused"}'] == 0


async def test_what_is_told_of_a_body_says_how_many_queries_and_whose_deadline() -> None:
    """Guardrails hold releases to the caller's deadline, and to costs by query."""
    sidecar = served()
    await _split(sidecar)
    told: list[Settled] = []
    sidecar.service.traffic.outcomes = told.append
    await _ask(sidecar)
    await _ask(sidecar, **{"x-request-timeout-ms": "900"})
    await sidecar.post("/v1/cascade/rerank", BODIES["native"]("q", TEXTS) | {"deadline_ms": 900})
    await sidecar.post("/score", {"text_1": ["one", "two", "three"], "text_2": TEXTS[:3]})
    assert [(each.queries, each.states_deadline) for each in told] == [(1, False), (1, True), (1, True), (3, False)]
    units = ("kingfisher", "kingfisher", "q", "one")  # without the header the first query is the unit
    assert [each.unit for each in told] == [unit_number(place(unit, _SALT)) for unit in units]


def test_a_canary_that_waited_over_a_completion_is_a_canary_in_every_place() -> None:
    """Arm and propensity of a record are of one moment: that in which the request was dealt, before it waited."""

    async def play() -> None:
        kept = Kept()
        bounds = Bounds(most=1, most_waiting=9, most_long=1, long_cost=1e9)
        sidecar = served(Models(small={"delay_ms": 100}), bounds=bounds, recorder=kept)
        traffic = sidecar.service.traffic
        candidate = await _split(sidecar, 0.25)
        told: list[Settled] = []
        traffic.outcomes = told.append
        unit = next(f"user-{n}" for n in range(100) if place(f"user-{n}", _SALT) < 0.25)
        waits = [asyncio.create_task(_ask(sidecar, unit)) for _ in range(2)]
        await asyncio.sleep(0.05)
        traffic.activate(candidate)
        for response in await asyncio.gather(*waits):
            assert response.headers["x-cascade-arm"] == "canary"
        assert "x-cascade-arm" not in (await _ask(sidecar, unit)).headers
        arms = [(each.decision.arm, each.assigned.arm, each.assigned.probability) for each in kept.decided]
        assert arms == [(Arm.CANARY, Arm.CANARY, 0.25)] * 2 + [(Arm.STABLE, Arm.STABLE, 1.0)]
        assert [each.arm for each in told] == [Arm.CANARY, Arm.CANARY, Arm.STABLE]
        metrics = await sidecar.metrics()
        assert metrics['cascade_arm_requests_total{arm="canary",outcome="answered"}'] == 2

    run_virtual(play())


@pytest.mark.parametrize(
    ("fields", "share", "level"),
    [
        ({}, 0.05, "degraded-1"),
        ({}, 0.0, "normal"),  # it has no load of its own
        ({"stages": {"small": stage_of("small"), "large": stage_of("large2")}}, 0.05, "normal"),
    ],
)
async def test_releases_in_front_of_the_same_servers_shed_load_alike(
    fields: dict[str, Any], share: float, level: str
) -> None:
    """Else one sheds for both, and guardrails hold its degraded answers against the other's; with servers of its own each has a load of its own."""
    sidecar = served(bundle=bundled(levels=LEVELS))
    traffic = sidecar.service.traffic
    candidate = await _split(sidecar, share, levels=LEVELS, **fields)
    traffic.stable.stepping.pin("degraded-1")
    assert candidate.deciding().level.name == level
    traffic.unsplit()
    assert candidate.deciding().level.name == level  # what both shed is not taken up at once


@pytest.mark.parametrize(("mode", "loaded"), [("observe", True), ("cascade", False)])
async def test_what_is_scored_beside_answers_stops_by_the_load_of_a_candidate_that_alone_does_so(
    mode: str, *, loaded: bool
) -> None:
    """Neither release has levels; one in mode observe has something to leave off all the same."""
    sidecar = served()
    candidate = await _split(sidecar, mode=mode)
    for _ in range(10):
        candidate.pressure.waited(500.0)
    await asyncio.sleep(0)
    candidate.stepping.look()
    assert candidate.stepping.is_loaded is loaded


def test_a_candidate_without_time_for_the_servers_of_both_steps_nobody_down() -> None:
    """Its misses are of its budgets, not of load: the stable release is not degraded for them, nor are they shed unseen."""

    async def play() -> None:
        sidecar = served(Models(large={"delay_ms": 25}), bundle=bundled(levels=LEVELS))
        traffic = sidecar.service.traffic
        budgets = {"total_ms": 90, "small_ms": 30, "large_ms": 10, "reserve_ms": 7}
        candidate = await _split(sidecar, levels=LEVELS, budgets=budgets)
        for number in range(120):
            await _ask(sidecar, f"user-{number}")
        for release in traffic.releases:
            release.stepping.look()
        assert [release.stepping.level for release in traffic.releases] == [0, 0]
        assert (await _ask(sidecar, _CANARY)).headers["x-cascade-degraded"] == "deadline_too_short"
        assert "x-cascade-degraded" not in (await _ask(sidecar, _STABLE)).headers
        traffic.activate(candidate)
        await asyncio.sleep(1)
        for number in range(120):
            await _ask(sidecar, f"user-{number}")
        traffic.stable.stepping.look()
        assert traffic.stable.stepping.level > 0  # by itself again

    run_virtual(play())


def test_an_answer_after_its_deadline_is_counted_as_late() -> None:
    """A body that came late left none of its time."""

    async def play() -> None:
        sidecar = served()
        await _ask(sidecar, **{"x-request-timeout-ms": "1000"})
        assert (await sidecar.metrics())['cascade_arm_late_total{arm="stable"}'] == 0
        told: list[Settled] = []
        sidecar.service.traffic.outcomes = told.append
        await _ask(sidecar)
        (first,) = told
        assert first.decision is not None
        late = replace(first.decision, total_ms=first.decision.deadline_ms + 1)
        sidecar.service.traffic.settled(replace(first, decision=late))
        assert (await sidecar.metrics())['cascade_arm_late_total{arm="stable"}'] == 1

    run_virtual(play())


async def test_h1_metrics_and_status_name_what_is_active() -> None:
    """Both while one is being tried, one after it was taken back, the other after it was activated."""
    sidecar = served()
    traffic = sidecar.service.traffic

    async def active() -> list[tuple[str, str]]:
        lines = (await sidecar.admin.get("/metrics")).text.splitlines()
        info = [line for line in lines if line.startswith("cascade_release_info{")]
        return [(line.split('release="')[1].split('"')[0], line.split('arm="')[1].split('"')[0]) for line in info]

    assert await active() == [("stable-1", "stable")]
    candidate = await _split(sidecar, 0.05)
    assert await active() == [("stable-1", "stable"), ("candidate-1", "canary")]
    told = (await sidecar.admin.get("/status")).json()
    assert (told["release"], told["candidate"]["release"], told["candidate"]["share"]) == (
        "stable-1", "candidate-1", 0.05,
    )  # fmt: skip
    assert set(told["candidate"]["stages"]) == {"small", "large"}
    assert (await sidecar.metrics())['cascade_arm_share{arm="canary"}'] == 0.05
    gone = traffic.unsplit()
    assert (gone, traffic.unsplit()) == (candidate, None)
    assert await active() == [("stable-1", "stable")]
    traffic.split(candidate, 1.0)
    old = traffic.activate(candidate)
    assert old.name == "stable-1"
    assert await active() == [("candidate-1", "stable")]
    assert (traffic.candidate, traffic.share, traffic.is_split) == (None, 0.0, False)
    assert (await sidecar.admin.get("/status")).json()["candidate"] is None


async def test_what_clients_are_told_of_the_model_follows_the_stable_release() -> None:
    """Not a candidate: `/info` and `/v1/models` change with the swap."""
    sidecar = served()
    candidate = await _split(sidecar, 0.5)

    async def named() -> tuple[str, str]:
        info, models = await sidecar.public.get("/info"), await sidecar.public.get("/v1/models")
        return info.json()["served_model_name"], models.json()["data"][0]["id"]

    assert await named() == ("stable-1", "stable-1")
    sidecar.service.traffic.activate(candidate)
    assert await named() == ("candidate-1", "candidate-1")


async def test_a_split_that_makes_no_sense_is_refused() -> None:
    """The stable release is no candidate of its own, two are never tried at once, and a share is a share."""
    sidecar = served()
    traffic = sidecar.service.traffic
    candidate, other = await another(sidecar), await another(sidecar, "candidate-2")
    for wrong in (traffic.stable, other):
        traffic.split(candidate, 0.1)
        with pytest.raises(ValueError, match="tried"):
            traffic.split(wrong, 0.1)
    for share in (-0.1, 1.1):
        with pytest.raises(ValueError, match="share"):
            traffic.split(candidate, share)
    with pytest.raises(ValueError, match="stable release already"):
        traffic.activate(traffic.stable)
    assert (traffic.candidate, traffic.share) == (candidate, 0.1)


async def test_activating_another_release_leaves_the_candidate_in_its_place() -> None:
    """An emergency does not end what is being tried; that is another decision."""
    sidecar = served()
    traffic = sidecar.service.traffic
    candidate = await _split(sidecar, 0.5)
    traffic.activate(await another(sidecar, "urgent-1"))
    assert (traffic.stable.name, traffic.candidate, traffic.share) == ("urgent-1", candidate, 0.5)
    assert (await _ask(sidecar, _CANARY)).headers["x-cascade-release"] == "candidate-1"
    assert (await _ask(sidecar, _STABLE)).headers["x-cascade-release"] == "urgent-1"


async def test_each_release_is_recorded_with_how_likely_its_arm_was() -> None:
    """What is left to the stable release, and the canary's share."""
    sidecar = served()
    seen = []
    candidate = await _split(sidecar, 0.2)
    for release in (sidecar.service.traffic.stable, candidate):
        release.tap.offer = lambda request, ranking, assigned: seen.append((ranking.decision.arm, assigned.probability))
    units = [f"user-{number}" for number in range(50)]
    for unit in units:
        await _ask(sidecar, unit)
    assert set(seen) == {(Arm.STABLE, 0.8), (Arm.CANARY, 0.2)}
    sidecar.service.traffic.unsplit()
    await _ask(sidecar)
    assert seen[-1] == (Arm.STABLE, 1.0)


async def test_the_units_name_and_the_query_are_logged_nowhere() -> None:
    """Neither in a line nor in the metrics nor in the status."""
    log = io.BytesIO()
    configure_logging("info", log)
    sidecar = served()
    await _split(sidecar)
    for number in range(20):
        await _ask(sidecar, f"osprey-{number}", query=f"goosander {number}")
    exposed = (await sidecar.admin.get("/metrics")).content + (await sidecar.admin.get("/status")).content
    for secret in (b"osprey", b"goosander"):
        assert secret not in log.getvalue() + exposed


@pytest.mark.parametrize("pinned_first", [True, False])
async def test_a_pinned_level_is_kept_to_by_every_release_that_has_it(*, pinned_first: bool) -> None:
    """A candidate that has none of that name steps by itself; what is let go of is let go of in both."""
    sidecar = served(bundle=bundled(levels=LEVELS))
    traffic = sidecar.service.traffic

    async def pin(level: str | None) -> int:
        return (await sidecar.admin.put("/level", content=orjson.dumps({"level": level}))).status_code

    if pinned_first:
        assert await pin("degraded-2") == 200
        candidate = await _split(sidecar, levels=LEVELS)
    else:
        candidate = await _split(sidecar, levels=LEVELS)
        assert await pin("degraded-2") == 200
    assert [(await _ask(sidecar, unit)).headers["x-cascade-level"] for unit in (_CANARY, _STABLE)] == ["degraded-2"] * 2
    assert await pin("no-such") == 422
    assert await pin(None) == 200
    assert [release.stepping.told()["pinned"] for release in traffic.releases] == [False, False]
    traffic.unsplit()
    assert await pin("degraded-1") == 200
    own = (LEVELS[0], {"name": "its-own", "escalation": "none"})
    plain = await another(sidecar, levels=own)
    traffic.split(plain, 0.5)
    assert (traffic.stable.stepping.told()["pinned"], plain.stepping.told()["pinned"]) == (True, False)
    traffic.activate(plain)
    assert await pin("its-own") == 200
    assert await pin("degraded-1") == 422
    await candidate.aclose()


async def test_the_level_that_an_operator_started_with_is_kept_to_by_what_comes_later() -> None:
    """Setting and route do the same; the log warns where a release has none of that name."""
    log = io.BytesIO()
    configure_logging("info", log)
    sidecar = served(bundle=bundled(levels=LEVELS), level="degraded-1")
    traffic = sidecar.service.traffic
    traffic.activate(await another(sidecar, "next-1", levels=LEVELS))
    assert traffic.stable.pipeline.level.name == "degraded-1"
    traffic.activate(await another(sidecar, "next-2"))
    assert traffic.stable.pipeline.level.name == "normal"
    events = [orjson.loads(line) for line in log.getvalue().splitlines()]
    assert [
        (each["release"], each["load_level"]) for each in events if each["event"] == "no level of the pinned name"
    ] == [("next-2", "degraded-1")]


def test_each_release_steps_by_itself_and_all_are_told_of_the_queue() -> None:
    """The candidate's misses are its own, and its level is in no gauge of the stable one; waits are everybody's."""

    async def play() -> None:
        models = Models(large2={"fails": StageTimeout})
        sidecar = served(models, bundle=bundled(levels=LEVELS))
        traffic = sidecar.service.traffic
        stages = {"small": stage_of("small"), "large": stage_of("large2")}
        candidate = await _split(sidecar, levels=LEVELS, stages=stages)
        for number in range(120):
            await _ask(sidecar, f"user-{number}")
        for release in traffic.releases:
            release.stepping.look()
        assert traffic.stable.stepping.level == 0 < candidate.stepping.level
        assert (await sidecar.metrics())["cascade_level"] == 0
        assert (await sidecar.metrics())['cascade_level_steps_total{why="misses"}'] == 0
        traffic.stable.pressure.look()
        for _ in range(20):
            traffic._waits.settled(*_waited(5000.0))
        assert [release.pressure.look().min_wait_ms for release in traffic.releases] == [5000.0, 5000.0]
        traffic.activate(candidate)
        assert (await sidecar.metrics())["cascade_level"] == candidate.stepping.level

    run_virtual(play())


def _waited(wait_ms: float) -> Any:
    return Verdict.WAITED, Lane.SHORT, None, wait_ms / 1000


async def test_tenants_are_held_to_the_limits_of_the_stable_release_of_the_moment() -> None:
    """A new release is no fresh start for what was used of an equal rate; another rate holds from the swap on."""
    limits = {"tenants": {"acme": {"requests_per_second": 0.001, "burst": 2}}}
    sidecar = served(bundle=bundled(limits=limits))
    traffic = sidecar.service.traffic

    async def ask() -> int:
        body = {"query": "q", "candidates": [{"text": "a"}], "tenant": "acme"}
        return (await sidecar.post("/v1/cascade/rerank", body)).status_code

    assert await ask() == 200
    traffic.activate(await another(sidecar, "same-1", limits=limits))
    assert [await ask(), await ask()] == [200, 429]
    wider = {"tenants": {"acme": {"requests_per_second": 0.001, "burst": 3, "concurrent": 5}}}
    candidate = await _split(sidecar, 1.0, limits=wider)
    assert await ask() == 429
    traffic.activate(candidate)
    assert [await ask() for _ in range(4)] == [200, 200, 200, 429]
    traffic.activate(await another(sidecar, "free-1"))
    assert [await ask() for _ in range(4)] == [200] * 4


async def test_series_of_tenants_that_no_release_names_any_more_are_gone() -> None:
    """They would stay for as long as the process lives; those that are named still go on."""

    def named(*names: str) -> dict[str, Any]:
        return {"tenants": {name: {"concurrent": 5} for name in names}}

    async def shown() -> set[str]:
        return {name.split('"')[1] for name in await sidecar.metrics() if name.startswith("cascade_tenant_requests_t")}

    sidecar = served(bundle=bundled(limits=named("acme", "beta")))
    traffic = sidecar.service.traffic
    body = {"query": "q", "candidates": [{"text": "a"}], "tenant": "acme"}
    await sidecar.post("/v1/cascade/rerank", body)
    assert await shown() == {"acme", "beta", "other"}
    traffic.activate(await another(sidecar, "one-1", limits=named("acme")))
    assert await shown() == {"acme", "other"}
    assert (await sidecar.metrics())['cascade_tenant_requests_total{tenant="acme",verdict="admitted"}'] == 1
    traffic.activate(await another(sidecar, "none-1"))
    assert await shown() == set()


async def test_in_mode_observe_a_candidate_answers_too() -> None:
    """The stable release observes, the candidate is a cascade: each does as it says."""
    models = Models()
    sidecar = served(models, bundle=bundled(mode="observe"))
    await _split(sidecar)
    await _ask(sidecar, _STABLE)
    assert (len(models.of("small").calls), len(models.of("large").calls)) == (0, 1)
    await _ask(sidecar, _CANARY)
    assert (len(models.of("small").calls), len(models.of("large").calls)) == (1, 2)


async def test_stages_that_a_release_does_not_have_are_not_shown_any_more() -> None:
    """After a swap to a release without a large stage no gauge tells of one."""
    sidecar = served()
    assert 'cascade_stage_unusable{stage="large"}' in await sidecar.metrics()
    traffic = sidecar.service.traffic
    traffic.activate(await another(sidecar, stages={"small": stage_of("small")}, escalation="none"))
    shown = await sidecar.metrics()
    assert 'cascade_stage_unusable{stage="large"}' not in shown
    assert shown['cascade_stage_unusable{stage="small"}'] == 0
