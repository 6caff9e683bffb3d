"""Admission over HTTP, on virtual time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cascade.guard.seat import Bounds
from cascade.server.access import Access
from cascade.server.app import public_app
from cascade.server.keys import hash_of
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from tests.server.asgi import post_slowly, scope_of
from tests.server.sidecar import BODIES, LEVELS, ROUTES, Sidecar, dumps, release_of, sidecar

_ALL: Final = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths]
_TEXTS: Final = ["one", "query"]
_ONE: Final = Bounds(most=1, most_waiting=1, most_long=1, long_cost=1e9)


def _slow(bounds: Bounds = _ONE, **settings: Any) -> Sidecar:
    """Return a sidecar whose small stage takes 100 ms of a deadline of a second, and that has no large one."""
    release = settings.pop("release", None) or release_of(levels=[{"name": "normal"}], escalation="none", **_SMALL)
    return sidecar(ScriptedStage(overlap, delay_ms=100), release=release, bounds=bounds, **settings)


_SMALL: Final = {"stages": {"small": {"adapter": "tei", "url": "http://x", "engine": "tei/1.9", "model": "m"}}}


def _release(**fields: Any) -> Any:
    return release_of(escalation="none", **_SMALL, **fields)


async def _together(
    served: Sidecar, path: str, bodies: list[Any], headers: dict[str, str] | None = None
) -> list[httpx.Response]:
    """Send bodies one after the other without waiting for the answers."""
    tasks = []
    for body in bodies:
        tasks.append(asyncio.create_task(served.post(path, body, headers)))
        for _ in range(20):
            await asyncio.sleep(0)
    return await asyncio.gather(*tasks)


def _opened(tenant: str | None) -> Access:
    """Return who lets in the key "key", of a tenant."""
    entry = {"name": "one", "sha256": hash_of("key").hex()} | ({"tenant": tenant} if tenant else {})
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(dumps({"keys": [entry]}))
        file.flush()
        return Access(Path(file.name), "keys_file", now=lambda: 0.0)


def _played(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(test())


@pytest.mark.parametrize(("dialect", "path"), _ALL)
def test_b4_where_the_queue_is_full_the_answer_is_first_stage_order_in_every_dialect(dialect: str, path: str) -> None:
    """One is under way, one waits its turn, and the third is answered at once: 200, the whole order, and why."""

    async def play() -> None:
        served = _slow()
        first, second, third = await _together(served, path, [BODIES[dialect]("query", _TEXTS)] * 3)
        assert [answer.status_code for answer in (first, second, third)] == [200] * 3
        for answer in (first, second):
            assert answer.headers["x-cascade-stage"] == "small"
            assert "x-cascade-degraded" not in answer.headers
        assert third.headers["x-cascade-stage"] == "retrieval"
        assert third.headers["x-cascade-degraded"] == "load_level"
        assert third.headers["x-cascade-score"] == "rank"
        assert len(served.small.calls) == 2
        metrics = await served.metrics()
        for verdict in ("admitted", "waited", "displaced"):
            assert metrics[f'cascade_admission_total{{lane="short",verdict="{verdict}"}}'] == 1
        assert metrics['cascade_queue_seconds_sum{lane="short"}'] == pytest.approx(0.1)
        assert metrics['cascade_queue_length{lane="short"}'] == metrics['cascade_seats_held{lane="short"}'] == 0

    _played(play)


@pytest.mark.parametrize(("dialect", "path"), _ALL)
def test_b9_a_caller_that_wants_an_error_then_is_told_when_to_come_back(dialect: str, path: str) -> None:
    """503 with Retry-After, and the reason."""

    async def play() -> None:
        served = _slow()
        headers = {"x-cascade-fail-closed": "1"}
        *_, refused = await _together(served, path, [BODIES[dialect]("query", _TEXTS)] * 3, headers)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers["x-cascade-degraded"] == "load_level"

    _played(play)


def test_a_request_that_cannot_begin_in_time_is_answered_before_its_deadline() -> None:
    """It waits until it is too late for a stage, not until a seat is free; the decision says that it never began."""

    async def play() -> None:
        served = _slow(Bounds(1, 9, 1, 1e9))
        served.small.delay_ms = 350
        loop = asyncio.get_running_loop()
        first = asyncio.create_task(served.post("/rerank", BODIES["tei"]("query", _TEXTS)))
        await asyncio.sleep(0.01)
        body = {**BODIES["native"]("query", _TEXTS), "deadline_ms": 200, "explain": True}
        answer = await served.post("/v1/cascade/rerank", body)
        assert loop.time() <= 0.01 + 0.2
        assert answer.json()["degraded"] == ["load_level"]
        assert answer.json()["explain"]["depth_reason"] == "not-admitted"
        assert answer.json()["explain"]["rounds"] == []
        assert (await first).headers["x-cascade-stage"] == "small"
        assert (await served.metrics())['cascade_admission_total{lane="short",verdict="expired"}'] == 1

    _played(play)


def test_the_earliest_deadline_of_the_first_class_has_the_first_turn() -> None:
    """Classes and deadlines come from the body, in the native format and in vLLM's."""

    async def play() -> None:
        served = _slow(Bounds(1, 9, 1, 1e9))
        bodies = [
            {"query": "first", "documents": ["a"]},
            {"query": "second class", "documents": ["b"], "priority": 1},
            {"query": "last class", "documents": ["c"], "priority": 100},
            {"query": "first class", "documents": ["d"], "priority": -5},
        ]
        await _together(served, "/v1/rerank", bodies)
        assert served.small.calls == [["a"], ["d"], ["b"], ["c"]]
        native = [
            {**BODIES["native"]("query", [text]), "deadline_ms": ms}
            for text, ms in (("a", 900), ("b", 900), ("c", 800))
        ]
        served.small.calls.clear()
        await _together(served, "/v1/cascade/rerank", native)
        assert served.small.calls == [["a"], ["c"], ["b"]]

    _played(play)


def test_long_requests_do_not_keep_short_ones_waiting() -> None:
    """Of two seats long ones have one: the second long body waits, the short one behind it does not."""

    async def play() -> None:
        served = _slow(Bounds(2, 9, 1, 300.0))
        long = BODIES["tei"]("query", ["x" * 400])
        loop = asyncio.get_running_loop()
        slow = asyncio.create_task(_together(served, "/rerank", [long, long]))
        await asyncio.sleep(0.001)
        await served.post("/rerank", BODIES["tei"]("query", ["a"]))
        assert loop.time() < 0.15
        await slow
        assert loop.time() == pytest.approx(0.2, abs=0.01)

    _played(play)


def test_a_waiting_request_is_decided_by_what_serves_when_its_turn_comes() -> None:
    """A level that was stepped to while it waited decides it from beginning to end."""

    async def play() -> None:
        served = _slow(release=_release(levels=[LEVELS[0], LEVELS[3]]))
        first = asyncio.create_task(served.post("/rerank", BODIES["tei"]("query", _TEXTS)))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(served.post("/rerank", BODIES["tei"]("query", _TEXTS)))
        await asyncio.sleep(0.01)
        served.service.traffic.pin("degraded-3")
        assert "x-cascade-level" not in (await first).headers
        assert (await second).headers["x-cascade-level"] == "degraded-3"
        assert len(served.small.calls) == 1

    _played(play)


def test_c1_a_client_that_leaves_the_queue_frees_its_place() -> None:
    """Its request never reaches a stage, and the place is another's."""

    async def play() -> None:
        served = _slow()
        first = asyncio.create_task(served.post("/rerank", BODIES["tei"]("query", _TEXTS)))
        await asyncio.sleep(0.01)
        messages = [{"type": "http.request", "body": dumps(BODIES["tei"]("gone", _TEXTS)), "more_body": False}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await asyncio.sleep(0.02)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            pass

        await public_app(served.service)(scope_of("/rerank"), receive, send)
        second = await served.post("/rerank", BODIES["tei"]("query", ["z"]))
        assert second.headers["x-cascade-stage"] == "small"
        await first
        assert served.small.calls == [_TEXTS, ["z"]]
        assert (await served.metrics())['cascade_admission_total{lane="short",verdict="abandoned"}'] == 1

    _played(play)


_TENANTS: Final = {"acme": {"requests_per_second": 1.0, "burst": 1}, "beta": {"concurrent": 0}}


@pytest.mark.parametrize("tenant", ["acme", "beta"])
def test_a_tenant_beyond_its_quota_gets_429_and_others_do_not(tenant: str) -> None:
    """With Retry-After, and counted by the names that the release has alone."""

    async def play() -> None:
        served = _slow(release=_release(limits={"tenants": _TENANTS}), bounds=Bounds(9, 9, 9, 1e9))

        async def ask(tenant: str) -> httpx.Response:
            return await served.post("/v1/cascade/rerank", {**BODIES["native"]("query", _TEXTS), "tenant": tenant})

        if tenant == "acme":
            assert (await ask(tenant)).status_code == 200
        refused = await ask(tenant)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (refused.json()["code"], refused.json()["field"]) == ("over_quota", "tenant")
        assert (await ask("made-up")).status_code == 200
        metrics = await served.metrics()
        assert metrics['cascade_tenant_requests_total{tenant="other",verdict="admitted"}'] == 1
        assert metrics['cascade_rejected_total{dialect="native",status="429"}'] == 1
        assert not any("made-up" in name for name in metrics)

    _played(play)


def test_more_requests_than_can_be_held_get_503_before_their_body_is_read() -> None:
    """The first is held while its body has not come; the second is refused though nothing of its body has."""

    async def play() -> None:
        served = _slow(max_requests=1)
        app = public_app(served.service)
        held = asyncio.create_task(post_slowly(app, "/rerank", b'{"query": "q", ', rest=(0.5, b'"texts": ["a"]}')))
        await asyncio.sleep(0.01)
        refused = await post_slowly(app, "/rerank", b"")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert asyncio.get_running_loop().time() < 0.1
        assert (await held).status_code == 200
        assert (await served.post("/rerank", BODIES["tei"]("q", ["a"]))).status_code == 200

    _played(play)


@pytest.mark.parametrize(
    ("dialect", "path", "status"),
    [
        ("native", "/v1/cascade/rerank", 413),
        ("tei", "/rerank", 422),
        ("vllm", "/v1/rerank", 413),
        ("vllm-score", "/score", 413),
    ],
)
async def test_more_tokens_than_the_release_takes_are_refused(dialect: str, path: str, status: int) -> None:
    """Counted by estimate in the query and what may be scored; documents behind that do not count."""
    served = sidecar(release=release_of(limits={"max_request_tokens": 100, "max_candidates": 2}))
    words = "word " * 35  # 50 tokens of 3.5 characters
    refused = await served.post(path, BODIES[dialect]("query", [words, words]))
    assert refused.status_code == status
    assert "at most about 100 tokens are accepted" in refused.text
    assert (await served.post(path, BODIES[dialect]("query", [words, "a", words]))).status_code == 200
    assert (await served.post(path, BODIES[dialect]("query", ["a"]))).status_code == 200


def test_h6_at_the_end_leftovers_are_answered_with_the_best_order_so_far() -> None:
    """Under way: the small order without the large stage's; waiting and coming: first-stage order; all are told why."""

    async def play() -> None:
        served = sidecar(ScriptedStage(overlap), ScriptedStage(overlap, delay_ms=400), bounds=_ONE)
        body = BODIES["tei"]("query", _TEXTS)
        tasks = [asyncio.create_task(served.post("/rerank", body)) for _ in range(2)]
        await asyncio.sleep(0.05)
        served.service.draining = True
        served.service.admission.close()
        served.service.under_way.end()
        under_way, waiting = await asyncio.gather(*tasks)
        late = await served.post("/rerank", body)
        assert asyncio.get_running_loop().time() == pytest.approx(0.05)
        assert under_way.headers["x-cascade-stage"] == "small"
        assert [item["index"] for item in under_way.json()] == [1, 0]
        assert served.large.cancelled == 1
        for answer in (waiting, late):
            assert answer.headers["x-cascade-stage"] == "retrieval"
            assert [item["index"] for item in answer.json()] == [0, 1]
        for answer in (under_way, waiting, late):
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
            assert answer.headers["x-cascade-degraded"] == "deadline_too_short"

    _played(play)


def _pairs(queries: int, documents: int) -> dict[str, list[str]]:
    """Return a body of `/score` with so many documents for each of so many queries."""
    every = [f"query {number}" for number in range(queries) for _ in range(documents)]
    return {"text_1": every, "text_2": [f"text {number}" for number in range(len(every))]}


@pytest.mark.parametrize("path", ROUTES["vllm-score"])
def test_each_query_of_a_body_is_charged_to_its_tenants_quota(path: str) -> None:
    """Three queries of a burst of four leave one; a query with three documents takes one."""

    async def play() -> None:
        tenants = {"acme": {"requests_per_second": 1.0, "burst": 4}}
        served = _slow(release=_release(limits={"tenants": tenants}), bounds=Bounds(9, 9, 9, 1e9))
        served.service.access = _opened("acme")
        headers = {"authorization": "Bearer key"}
        assert (await served.post(path, _pairs(3, 1), headers)).status_code == 200
        refused = await served.post(path, _pairs(3, 1), headers)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert (await served.post(path, _pairs(1, 3), headers)).status_code == 200

    _played(play)


@pytest.mark.parametrize(
    ("queries", "documents", "depth", "seats"), [(1, 40, 10, 1), (4, 10, 10, 4), (4, 20, 10, 4), (40, 1, 10, 4), (3, 5, 10, 2)]
)  # fmt: skip
def test_a_body_takes_as_many_seats_as_what_may_be_scored_of_it_fills(
    queries: int, documents: int, depth: int, seats: int
) -> None:
    """A seat is worth the depth in pairs; one query has one seat."""

    async def play() -> None:
        served = _slow(release=_release(depth=depth), bounds=Bounds(9, 9, 9, 1e9))
        asking = asyncio.create_task(served.post("/score", _pairs(queries, documents)))
        await asyncio.sleep(0.05)
        assert served.service.admission.in_flight == seats
        assert (await asking).status_code == 200
        assert served.service.admission.in_flight == 0

    _played(play)


def test_who_has_no_key_is_not_among_the_requests_held() -> None:
    """Refused callers whose bodies never come leave room for one that is let in, and are told 401 where there is none."""

    async def play() -> None:
        served = _slow(max_requests=1)
        served.service.access = _opened(None)
        app = public_app(served.service)
        refused = [asyncio.create_task(post_slowly(app, "/rerank", b"", rest=(9.0, b"{}"))) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert served.service.held == 0
        body, headers = BODIES["tei"]("q", ["a"]), {"authorization": "Bearer key"}
        let_in = asyncio.create_task(served.post("/rerank", body, headers))
        await asyncio.sleep(0.05)
        assert served.service.held == 1
        assert (await served.post("/v1/rerank", BODIES["vllm"]("q", ["a"]))).status_code == 401
        assert (await served.post("/rerank", body, headers)).status_code == 503
        assert (await let_in).status_code == 200
        assert [answer.status_code for answer in await asyncio.gather(*refused)] == [401] * 5

    _played(play)
