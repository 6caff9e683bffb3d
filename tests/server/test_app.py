"""The public listener beside reranking: refusals, health, descriptions, and faults of ours."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import httpx
import orjson
import pytest

from cascade.errors import StageOverloaded
from cascade.policy.release import parse_release
from cascade.server.app import public_app
from cascade.telemetry.logs import configure_logging
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from tests.server.asgi import scope_of
from tests.server.sidecar import BODIES, ROUTES, release_of, sidecar

_ALL: Final = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths]
_PATHS: Final = sorted({path for _, path in _ALL})
_MEGABYTE: Final = 1_000_000


@pytest.mark.parametrize("path", sorted(set(_PATHS) - {"/"}))
async def test_a_rerank_route_takes_post_only(path: str) -> None:
    """GET is 405 with what is allowed, as JSON with the keys that clients read."""
    response = await sidecar().public.get(path)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json() == dict.fromkeys(("error", "message", "detail"), "Method Not Allowed")


@pytest.mark.parametrize("path", ["/v3/rerank", "/metrics", "/status", "/v1/rerank/x"])
async def test_an_unknown_path_is_404(path: str) -> None:
    """Unknown paths are 404 as JSON; the admin's are not on the public listener."""
    response = await sidecar().public.post(path, content=b"{}")
    assert response.status_code == 404
    assert response.json() == dict.fromkeys(("error", "message", "detail"), "Not Found")


@pytest.mark.parametrize("path", ["/rerank/", "/v1/rerank/", "/v1/cascade/rerank/", "/livez/"])
async def test_a_path_with_a_slash_too_many_is_not_redirected(path: str) -> None:
    """A redirected POST loses its body at many clients: the path is 404, on the admin listener too."""
    served = sidecar()
    response = await served.public.post(path, content=b"{}")
    assert response.status_code == 404
    assert response.json()["detail"] == "Not Found"
    admin = await served.admin.get("/status/")
    assert (admin.status_code, admin.json()["detail"]) == (404, "Not Found")


@pytest.mark.parametrize("path", ["/health", "/readyz", "/ping", "/"])
async def test_h6_readiness_follows_the_service(path: str) -> None:
    """Readiness is 503 before start and while stopping, 200 between; 200 has an empty body, as TEI's."""
    served = sidecar()
    served.service.ready = False
    assert (await served.public.get(path)).status_code == 503
    served.service.ready = True
    response = await served.public.get(path)
    assert (response.status_code, response.content) == (200, b"")


async def test_h6_requests_are_served_while_readiness_fails() -> None:
    """A request that comes after readiness failed is answered in full, and liveness stays 200."""
    served = sidecar()
    served.service.ready = False
    response = await served.post("/rerank", BODIES["tei"]("b", ["a", "b"]))
    assert [item["index"] for item in response.json()] == [1, 0]
    live = await served.public.get("/livez")
    assert (live.status_code, live.json()) == (200, {"live": True})


def test_h5_liveness_answers_while_every_stage_is_busy() -> None:
    """With 200 requests held at a stage, ``/livez`` answers at once."""

    async def ask() -> float:
        slow = ScriptedStage(lambda q, t: 0.0, delay_ms=300)
        served = sidecar(slow, slow)
        async with asyncio.TaskGroup() as group:
            for _ in range(200):
                group.create_task(served.post("/rerank", BODIES["tei"]("q", ["a"])))
            await asyncio.sleep(0.01)
            began = served.service.clock()
            assert (await served.public.get("/livez")).status_code == 200
            return served.service.clock() - began

    assert run_virtual(ask()) < 0.1


async def test_info_describes_a_reranker_with_the_release_s_limits() -> None:
    """``/info`` has every key of TEI's, the large stage's model, the shortest length and the most texts."""
    served = sidecar(release=release_of(limits={"max_documents": 77}))
    assert (await served.public.get("/info")).json() == {
        "model_id": "test/large",
        "model_sha": "abc123",
        "model_dtype": "float16",
        "served_model_name": "test-1",
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_concurrent_requests": 77,
        "max_input_length": 512,
        "max_batch_tokens": 16384,
        "max_batch_requests": None,
        "max_client_batch_size": 77,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": "1.9.3",
        "sha": None,
        "docker_label": "cascade-0.1.0",
    }


async def test_models_lists_the_release() -> None:
    """``/v1/models`` has one card as vLLM shapes it."""
    body = (await sidecar().public.get("/v1/models")).json()
    (card,) = body["data"]
    assert body["object"] == "list"
    assert isinstance(card.pop("created"), int)
    assert card == {
        "id": "test-1",
        "object": "model",
        "owned_by": "cascade",
        "root": "test/large",
        "parent": None,
        "max_model_len": 512,
        "permission": [],
    }


async def test_a_release_without_stages_describes_itself() -> None:
    """Without a stage ``/info`` and ``/v1/models`` still have every key, with values of their types."""
    release = parse_release(
        {
            "release": "bare",
            "stages": {},
            "depth": 0,
            "escalation": "none",
            "budgets": {"total_ms": 100.0, "small_ms": 1.0, "large_ms": 1.0, "reserve_ms": 1.0},
        }
    )
    served = sidecar(release=release, stages={})
    info = (await served.public.get("/info")).json()
    assert (info["model_id"], info["model_sha"], info["model_dtype"]) == ("none", None, "none")
    assert info["max_input_length"] == 512
    (card,) = (await served.public.get("/v1/models")).json()["data"]
    assert (card["root"], card["max_model_len"]) == ("bare", 512)
    response = await served.post("/rerank", BODIES["tei"]("q", ["a", "b"]))
    assert [item["index"] for item in response.json()] == [0, 1]
    assert "x-cascade-degraded" not in response.headers


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_d8_ten_thousand_candidates_are_answered_where_the_release_takes_them(dialect: str, path: str) -> None:
    """All are answered, each once; the depth bounds what is scored."""
    served = sidecar(release=release_of(limits={"max_documents": 10_000}))
    texts = [f"{number}" for number in range(10_000)]
    response = await served.post(path, BODIES[dialect]("q", texts), {"x-request-timeout-ms": "60000"})
    answer = response.json()
    items = answer if dialect == "tei" else answer["data" if dialect == "vllm-score" else "results"]
    assert sorted(item["index"] for item in items) == list(range(10_000))
    assert len(served.small.calls[0]) == 50


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_d8_documents_of_nothing_that_is_seen_are_not_scored(dialect: str, path: str) -> None:
    """Controls and zero-width characters are blank as white space is: an empty document may be scored above all others."""
    response = await sidecar().post(path, BODIES[dialect]("q", ["\u200b", "seen", "\0 \ufeff"]))
    assert (response.status_code, response.headers["x-cascade-excluded"]) == (200, "2")


async def test_a_query_of_nothing_that_is_seen_is_blank() -> None:
    """It is refused as one of white space is, where the format refuses that."""
    response = await sidecar().post("/v1/cascade/rerank", BODIES["native"]("\u200b\0", ["a"]))
    assert (response.status_code, "query: must not be blank" in response.text) == (422, True)


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_ten_thousand_candidates_are_refused_with_the_limit_named(dialect: str, path: str) -> None:
    """Over the hard cap the request is refused: 422 as TEI does, else 413; the most accepted is told."""
    response = await sidecar().post(path, BODIES[dialect]("q", ["a"] * 10_000))
    assert response.status_code == (422 if dialect == "tei" else 413)
    assert "2048" in response.text


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_a_document_of_five_megabytes_is_answered(dialect: str, path: str) -> None:
    """A long document is one document: scored, answered, and clipped by the stage alone."""
    served = sidecar()
    body = BODIES[dialect]("needle", ["hay", "needle " * (5 * _MEGABYTE // 7)])
    response = await served.post(path, body, {"x-request-timeout-ms": "60000"})
    assert response.status_code == 200
    assert len(served.small.calls[0][1]) == 5 * _MEGABYTE // 7 * 7


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_a_body_at_the_limit_is_taken_and_one_byte_more_refused(dialect: str, path: str) -> None:
    """The limit counts bytes of the body and is told in the refusal."""
    served = sidecar(max_body_bytes=1024)
    body = httpx.Request("POST", "http://x", json=BODIES[dialect]("q", ["a"])).content
    at_limit = body + b" " * (1024 - len(body))
    assert (await served.post(path, at_limit)).status_code == 200
    refused = await served.post(path, at_limit + b" ")
    assert refused.status_code == 413
    assert "at most 1024 bytes are accepted" in refused.text


@pytest.mark.parametrize("path", _PATHS)
async def test_a_chunked_body_without_length_is_bounded_too(path: str) -> None:
    """A body whose size nobody announced is refused as soon as it is over the limit, and not read on."""
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'{"query": "q", "texts": ["'
        while sent < 50:
            sent += 1
            yield b"a" * 1000
        yield b'"]}'

    response = await sidecar(max_body_bytes=4000).public.post(path, content=chunks())
    assert response.status_code == 413
    assert sent < 10


async def test_a_refused_body_still_tells_the_dialect_on_the_shared_route() -> None:
    """On ``/rerank`` a caller of TEI gets TEI's error and one of vLLM vLLM's, though the body was not parsed."""
    served = sidecar(max_body_bytes=1024)
    tei = await served.post("/rerank", b'{"query": "q", "texts": ["' + b"a" * 2000)
    vllm = await served.post("/rerank", b'{"query": "q", "documents": ["' + b"a" * 2000)
    assert tei.headers["content-type"] == "text/plain; charset=utf-8"
    assert vllm.json()["error"]["code"] == 413
    broken = await served.post("/rerank", b'{"query": "q", "texts": ["a"')
    assert broken.text.startswith("Failed to parse the request body as JSON: ")
    unread = await served.post("/rerank", BODIES["tei"]("q", ["a"]), {"content-encoding": "gzip"})
    assert unread.json()["error"]["code"] == 415  # nothing was read that tells


async def test_a_document_about_texts_does_not_change_the_dialect() -> None:
    """The word in a document is not the key: a vLLM request stays one, well formed or not."""
    served = sidecar()
    body = {"query": "q", "documents": ['he said "texts" twice']}
    assert "results" in (await served.post("/rerank", body)).json()
    broken = await served.post("/rerank", httpx.Request("POST", "http://x", json=body).content[:-1])
    assert broken.json()["error"]["code"] == 400


async def _ignore(message: Any) -> None:
    """Send to nobody."""


async def _never_leaves() -> Any:
    """Wait for ever, as a connection that stays open does."""
    await asyncio.get_running_loop().create_future()


def _posting(body: bytes, then: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return a connection that sends a body whole, and after it what ``then`` gives."""
    messages: Iterator[dict[str, Any]] = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        return next(messages, None) or await then()

    return receive


async def test_a_client_that_goes_away_in_its_body_is_abandoned() -> None:
    """A connection that closes before the end of the body is counted, and no stage is asked."""
    stage = ScriptedStage(lambda q, t: 0.0)
    served = sidecar(stage)
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": b'{"texts":', "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> Any:
        return next(messages)

    await public_app(served.service)(scope_of("/rerank"), receive, _ignore)
    assert (await served.metrics())["cascade_abandoned_total"] == 1
    assert stage.calls == []


async def test_c1_a_client_that_goes_away_cancels_what_is_under_way() -> None:
    """A disconnection while a stage scores cancels the stage's call at once; nothing polls for it."""
    stage = ScriptedStage(lambda q, t: 0.0, delay_ms=600_000)
    served = sidecar(stage)

    async def leave() -> Any:
        for _ in range(20):  # turns of the loop, in which the stage is called
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    receive = _posting(orjson.dumps(BODIES["tei"]("q", ["a"])), leave)
    await public_app(served.service)(scope_of("/rerank"), receive, _ignore)
    assert (len(stage.calls), stage.cancelled) == (1, 1)
    counted = await served.metrics()
    assert counted["cascade_abandoned_total"] == 1
    assert counted["cascade_in_flight"] == 0


async def test_c1_a_request_that_is_cancelled_from_outside_is_not_abandoned() -> None:
    """Whoever ends the server gets the cancellation back: the stage's call ends, no client is said to have left."""
    stage = ScriptedStage(lambda q, t: 0.0, delay_ms=600_000)
    served = sidecar(stage)
    receive = _posting(orjson.dumps(BODIES["tei"]("q", ["a"])), _never_leaves)
    request = asyncio.create_task(public_app(served.service)(scope_of("/rerank"), receive, _ignore))
    for _ in range(20):  # turns of the loop, in which the stage is called
        await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert (len(stage.calls), stage.cancelled) == (1, 1)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (await served.metrics())["cascade_abandoned_total"] == 0


async def test_an_answered_request_leaves_no_task_behind() -> None:
    """What watches the connection ends with the answer."""
    served = sidecar()
    receive = _posting(orjson.dumps(BODIES["tei"]("q", ["a"])), _never_leaves)
    await public_app(served.service)(scope_of("/rerank"), receive, _ignore)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_fault_of_ours_is_500_without_content_and_is_counted() -> None:
    """A fault outside of the pipeline's boundary is a plain 500 in JSON; nothing of the request is in it."""
    served = sidecar()
    served.service.clock = None  # type: ignore[assignment] # nothing works without a clock
    response = await served.post("/rerank", BODIES["tei"]("canary", ["canary"]))
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/json"
    assert response.json() == dict.fromkeys(("error", "message", "detail"), "internal error")
    assert (await served.metrics())["cascade_internal_faults_total"] == 1


async def test_a8_a_fault_in_a_stage_costs_quality_and_is_counted() -> None:
    """An exception nobody planned in a stage degrades the answer, which is still whole."""
    served = sidecar(ScriptedStage(lambda q, t: 0.0, fails=RuntimeError("canary")))
    response = await served.post("/rerank", BODIES["tei"]("q", ["a", "b"]))
    assert [item["index"] for item in response.json()] == [0, 1]
    assert response.headers["x-cascade-degraded"] == "internal_error"
    assert (await served.metrics())["cascade_internal_faults_total"] == 1


class _FullDisk(io.BytesIO):
    def write(self, *_: Any) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("closed", [False, True])
async def test_a8_a_log_that_cannot_be_written_costs_no_answer(closed: bool) -> None:
    """With the disk full or the stream closed the answer goes out as ever, and the fault is counted."""
    stream = _FullDisk()
    configure_logging("info", stream)
    if closed:
        stream.close()
    served = sidecar()
    response = await served.post("/rerank", BODIES["tei"]("b", ["a", "b"]))
    assert response.status_code == 200
    assert [item["index"] for item in response.json()] == [1, 0]
    samples = await served.metrics()
    assert samples["cascade_internal_faults_total"] == 1
    assert samples['cascade_requests_total{dialect="tei",stage="large"}'] == 1


async def test_refusals_are_counted_by_dialect_and_status() -> None:
    """Each refusal counts once under the dialect that answered; answers do not."""
    served = sidecar()
    await served.post("/v1/cascade/rerank", {"query": ""})
    await served.post("/rerank", {"query": "q", "texts": []})
    await served.post("/v1/rerank", b"{")
    await served.post("/score", {"text_1": "q", "text_2": ["a"]})
    down = {"x-request-timeout-ms": "0", "x-cascade-fail-closed": "1"}
    await served.post("/v1/score", {"text_1": "q", "text_2": ["a"]}, down)
    counted = {name: value for name, value in (await served.metrics()).items() if "rejected" in name and value}
    assert counted == {
        'cascade_rejected_total{dialect="native",status="422"}': 1,
        'cascade_rejected_total{dialect="tei",status="400"}': 1,
        'cascade_rejected_total{dialect="vllm",status="400"}': 1,
        'cascade_rejected_total{dialect="vllm-score",status="503"}': 1,
    }


async def test_requests_under_way_are_counted_while_they_run() -> None:
    """The gauge rises with a request and falls after it, after a refusal too."""
    started = asyncio.Event()
    finish = asyncio.Event()

    class Held(ScriptedStage):
        async def score(self, *args: Any, **kwargs: Any) -> Any:
            started.set()
            await finish.wait()
            return await ScriptedStage.score(self, *args, **kwargs)

    served = sidecar(Held(lambda q, t: 0.0))
    asked = asyncio.create_task(served.post("/rerank", BODIES["tei"]("q", ["a"])))
    await started.wait()
    assert (await served.metrics())["cascade_in_flight"] == 1
    finish.set()
    assert (await asked).status_code == 200
    await served.post("/rerank", b"{")
    assert (await served.metrics())["cascade_in_flight"] == 0


async def test_b9_fail_closed_by_the_release_is_503_with_retry_after() -> None:
    """A release that falls back to an error answers 503 on every dialect, and when to come again."""
    down = ScriptedStage(lambda q, t: 0.0, fails=StageOverloaded)
    served = sidecar(down, down, release=release_of(fallback="error"))
    for dialect, paths in ROUTES.items():
        response = await served.post(paths[0], BODIES[dialect]("q", ["a"]))
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert "stage_overloaded" in response.text
