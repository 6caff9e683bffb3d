"""Asking the sidecar: what leaves, and what happens without an answer."""

import asyncio
import json
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

import httpx
import pytest
import respx
from pydantic import SecretStr

from cascade.clients.options import Options
from cascade.clients.ordering import Candidate, Order, SidecarError
from cascade.clients.sidecar import rerank, rerank_async
from cascade.text import Text
from tests.e2e.processes import listening

from .fake_sidecar import FakeSidecar

_SECRETS: Final = ("hidden query", "hidden document", "hidden-key")
_KEY: Final = SecretStr("hidden-key")
_QUERY: Final = Text("hidden query")
_CANDIDATES: Final = (Candidate(Text("hidden document")), Candidate(Text("hidden document 2")))
_ROUTE: Final = "http://sidecar/base/v1/cascade/rerank"

_Rerank = Callable[[Options, Text, Sequence[Candidate]], Order]


def _in_loop(options: Options, query: Text, candidates: Sequence[Candidate]) -> Order:
    return asyncio.run(rerank_async(options, query, candidates))


@pytest.fixture(params=[rerank, _in_loop], ids=["thread", "loop"])
def ask(request: pytest.FixtureRequest) -> _Rerank:
    """Return each way to ask."""
    asking: _Rerank = request.param
    return asking


def _options(**options: Any) -> Options:
    return Options(**{"url": "http://sidecar/base", "api_key": None, **options})


@respx.mock
def test_the_order_of_the_sidecar_is_returned(ask: _Rerank) -> None:
    """The request goes to the native route behind the address, and the answer's order comes back."""
    fake = FakeSidecar()
    respx.post(_ROUTE).mock(side_effect=lambda request: fake.post(request.url.path[5:], json.loads(request.content), 0))
    order = ask(_options(timeout_s=3.5), _QUERY, _CANDIDATES)
    assert [(place.index, place.score) for place in order.places] == [(1, 1 / 2), (0, 1 / 3)]
    (call,) = respx.calls
    assert "authorization" not in call.request.headers
    assert call.request.headers["content-type"] == "application/json"
    assert set(call.request.extensions["timeout"].values()) == {3.5}


def test_proxies_of_the_environment_see_nothing(ask: _Rerank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents go to the sidecar and nowhere else, whatever the environment says of proxies."""
    answering, passing = FakeSidecar(), FakeSidecar()
    with listening(answering) as sidecar, listening(passing) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        order = ask(_options(url=sidecar), _QUERY, _CANDIDATES)
    assert [place.index for place in order.places] == [1, 0]
    assert (len(answering.posts), len(passing.seen)) == (1, 0)


@respx.mock
def test_the_key_is_a_bearer_token(ask: _Rerank) -> None:
    """A key is sent, and a refusal of it is told."""
    route = respx.post(_ROUTE).respond(401, json={"code": "unauthorized", "field": "authorization"})
    with pytest.raises(SidecarError, match=r"^status 401: unauthorized, authorization$"):
        ask(_options(api_key=_KEY), _QUERY, _CANDIDATES)
    assert route.calls.last.request.headers["authorization"] == "Bearer hidden-key"


@respx.mock
def test_nothing_is_asked_without_candidates(ask: _Rerank) -> None:
    """An empty list is its own order."""
    assert ask(_options(), _QUERY, []) == Order()
    assert not respx.calls


_REFUSALS = [
    (
        httpx.Response(422, json={"code": "schema", "field": "candidates.3.hidden", "message": "hidden"}),
        "schema, candidates",
    ),
    (httpx.Response(503, json={"code": "not_answered", "field": "answer"}), "not_answered, answer"),
    (httpx.Response(400, json={"code": "hidden", "field": "hidden"}), ""),
    (httpx.Response(400, json={"code": ["hidden"], "field": 3}), ""),
    (httpx.Response(502, text="<html>hidden</html>"), ""),
    (httpx.Response(500, json=["hidden"]), ""),
    (httpx.Response(500, text="[" * 100_000), ""),
    (httpx.Response(204), ""),
    (httpx.Response(307, headers={"location": "http://elsewhere/hidden"}), ""),
]


@respx.mock
@pytest.mark.parametrize(("response", "why"), _REFUSALS)
def test_a_refusal_is_told_in_words_that_are_known(ask: _Rerank, response: httpx.Response, why: str) -> None:
    """Status, code and field of the sidecar are told; what else an answer says is not, and no redirect is followed."""
    respx.post(_ROUTE).mock(return_value=response)
    with pytest.raises(SidecarError) as raised:
        ask(_options(), _QUERY, _CANDIDATES)
    assert str(raised.value) == f"status {response.status_code}" + (f": {why}" if why else "")
    assert raised.value.status == response.status_code
    assert raised.value.code == (why.partition(",")[0] or None)
    assert len(respx.calls) == 1


@respx.mock
@pytest.mark.parametrize(
    "fault", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.DecodingError]
)
def test_without_an_answer_the_error_is_free_of_text(ask: _Rerank, fault: type[httpx.HTTPError]) -> None:
    """What is raised holds neither the request nor a word of it, in any exception before it."""
    respx.post(_ROUTE).mock(side_effect=fault("hidden query"))
    with pytest.raises(SidecarError, match=rf"^no answer: {fault.__name__}$") as raised:
        ask(_options(api_key=_KEY), _QUERY, _CANDIDATES)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    assert raised.value.status is None
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    told = "".join(shown.format())
    assert "Text(<12 characters>)" in told
    assert not any(secret in told for secret in _SECRETS)


@respx.mock
@pytest.mark.parametrize("top_n", [None, 1])
def test_the_order_given_is_kept_where_that_is_asked_for(ask: _Rerank, top_n: int | None) -> None:
    """With ``on_error: keep`` nothing is lost and nothing moves, and the reason is told."""
    respx.post(_ROUTE).respond(503)
    order = ask(_options(on_error="keep", top_n=top_n), _QUERY, _CANDIDATES)
    assert [place.index for place in order.places] == [0, 1][:top_n]
    assert order.error == "status 503"
    assert order.degraded == ("no_answer",)


@respx.mock
def test_a_fault_of_the_data_is_kept_too(ask: _Rerank) -> None:
    """A score that is no number costs the reranking, not the answer."""
    order = ask(_options(on_error="keep"), _QUERY, [Candidate(Text("text"), scores={"bm25": "none"})])
    assert order.error == "candidates.0.scores.bm25: is not a number"
    assert not respx.calls


@respx.mock
async def test_a_cancelled_request_is_cancelled() -> None:
    """Cancelling is no error that is kept."""
    started = asyncio.Event()

    async def never(request: httpx.Request) -> httpx.Response:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    respx.post(_ROUTE).mock(side_effect=never)
    task = asyncio.create_task(rerank_async(_options(on_error="keep"), _QUERY, _CANDIDATES))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
