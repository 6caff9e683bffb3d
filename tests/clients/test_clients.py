"""What users of rerank clients get when their client asks the sidecar: orders, documents and errors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import httpx
import pytest

from .asking import Answers, Found, Outcome, Raised, ask
from .conftest import MAX_BODY_BYTES, MAX_DOCUMENTS, Asked, Sidecars

pytestmark = pytest.mark.engines

_Sidecars = Mapping[str, Sidecars]

_QUERY: Final = 'giant pandas eat "bamboo" 대나무 🐼 every day'
_SHARED: Final = (3, 7, 0, 5, 1, 6, 2, 4)
"""How many words of the query each document shares."""
_DOCUMENTS: Final = [" ".join([*_QUERY.split()[:shared], f"#{place}"]) for place, shared in enumerate(_SHARED)]
_ORDER: Final = (7, 3, 5, 1, 0, 6, 4, 2)
"""The four that share most, turned round by the large stage, then the rest as the small stage has them."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client, whose form of request and answer it knows, and what its own code allows.

    ``counts``: it asks for the number of results that its user wants. ``echoes``: it can ask for documents, and not to
    have them. ``sends_headers``: its user can add headers. ``sends_none``: it asks even without documents. ``unread``:
    the refusals that it reads nothing of but the status, or not even that.
    """

    name: str
    dialect: str = "vllm"
    counts: bool = True
    echoes: bool = False
    sends_headers: bool = False
    sends_none: bool = True
    unread: frozenset[str] = frozenset()

    @property
    def family(self) -> str:
        """Return what clients of one process have in common: slow imports."""
        first = self.name.split()[0]
        return first if first in ("litellm", "llama-index", "langchain", "haystack") else "sdks"

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


_EVERY: Final = frozenset(
    {"no documents", "too many documents", "too large a body", "closed by the release", "closed by a header"}
)
_CLIENTS: Final = (
    Client("litellm huggingface", dialect="tei", counts=False, sends_headers=True),
    Client("litellm hosted_vllm", echoes=True, sends_headers=True),
    Client("litellm hosted_vllm async", echoes=True, sends_headers=True),
    Client("litellm infinity", dialect="infinity", echoes=True, sends_headers=True),
    Client("litellm cohere", echoes=True, sends_headers=True),
    Client("litellm jina_ai", echoes=True),
    Client("litellm voyage", echoes=True),
    Client("litellm together_ai", echoes=True),
    Client("cohere v1", echoes=True, sends_headers=True),
    Client("cohere v2", echoes=True, sends_headers=True),
    Client("voyageai", unread=frozenset({"closed by the release"})),
    Client("mixedbread", echoes=True, sends_headers=True),
    Client("rerankers cohere", counts=False, sends_none=False, unread=_EVERY),
    Client("rerankers jina", counts=False, sends_none=False, unread=_EVERY),
    Client("rerankers voyage", counts=False, sends_none=False, unread=_EVERY),
    Client("rerankers mixedbread", counts=False, sends_none=False, unread=_EVERY),
    Client("rerankers tei", dialect="tei", counts=False, sends_none=False, unread=_EVERY),
    Client("tei-client", dialect="tei", counts=False, echoes=True, sends_headers=True, unread=_EVERY),
    Client("llama-index tei", dialect="tei", sends_none=False, unread=_EVERY),
    Client("llama-index jina", sends_none=False),
    Client("llama-index cohere", sends_none=False),
    Client("langchain cohere", sends_none=False),
    Client("langchain jina", sends_none=False),
    Client("haystack tei", dialect="tei", sends_none=False),
    Client("haystack cohere"),
    Client("haystack jina", sends_none=False),
    Client("haystack vllm", sends_none=False),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A request that is refused, and with which status and words; they differ between dialects."""

    case: str
    told: tuple[int, str]
    elsewhere: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def told_to(self, client: Client) -> tuple[int, str]:
        """Return status and words in the client's dialect."""
        return self.elsewhere.get(client.dialect, self.told)

    def __str__(self) -> str:
        return self.case.replace(" ", "-")


_FAULTS: Final = (
    Fault("no documents", (400, "at least 1 item"), {"infinity": (422, "at least 1 item")}),
    Fault(
        "too many documents",
        (413, f"at most {MAX_DOCUMENTS} are accepted"),
        {
            "infinity": (422, f"at most {MAX_DOCUMENTS} are accepted"),
            "tei": (422, f"batch size {MAX_DOCUMENTS + 1} > maximum allowed batch size {MAX_DOCUMENTS}"),
        },
    ),
    Fault("too large a body", (413, f"at most {MAX_BODY_BYTES} bytes")),
    Fault("closed by the release", (503, "answer: stage_unreachable")),
    Fault("closed by a header", (503, "answer: stage_unreachable")),
)


def _meets(client: Client, fault: Fault) -> bool:
    """Tell whether the client's own code lets the request happen."""
    if fault.case == "closed by a header":
        return client.sends_headers
    return client.sends_none or fault.case != "no documents"


_REFUSALS: Final = [(client, fault) for client in _CLIENTS for fault in _FAULTS if _meets(client, fault)]
_READ: Final = [(client, fault) for client, fault in _REFUSALS if fault.case not in client.unread]


def _requests(client: Client, sidecars: _Sidecars) -> dict[str, dict[str, Any]]:
    """Return everything that a client is asked to send, by case."""
    of_dialect = sidecars["infinity" if client.dialect == "infinity" else "vllm"]
    planned = of_dialect.planned

    def request(url: str, documents: list[str] = _DOCUMENTS, **more: Any) -> dict[str, Any]:
        return {"url": url, "query": _QUERY, "documents": documents, **more}

    return {
        "all": request(planned),
        "three": request(planned, top=3),
        "with documents": request(planned, echo=True),
        "without documents": request(planned, echo=False),
        "degraded": request(of_dialect.degraded),
        "no documents": request(planned, []),
        "too many documents": request(planned, [f"document {place}" for place in range(MAX_DOCUMENTS + 1)]),
        "too large a body": request(planned, ["panda", "x" * MAX_BODY_BYTES]),
        "closed by the release": request(of_dialect.closed),
        "closed by a header": request(of_dialect.degraded, headers={"x-cascade-fail-closed": "1"}),
    }


def _left_out(client: Client) -> set[str]:
    """Return the cases that the client's own code does not allow."""
    allowed = {
        "three": client.counts,
        "with documents": client.echoes,
        "without documents": client.echoes,
        "closed by a header": client.sends_headers,
    }
    return {case for case, possible in allowed.items() if not possible}


def _answers(family: str, sidecars: _Sidecars, asked: Asked) -> Answers:
    """Return what the clients of a family got; the first call asks them."""
    if family not in asked.by_family:
        requests = {
            client.name: {
                case: request for case, request in _requests(client, sidecars).items() if case not in _left_out(client)
            }
            for client in _CLIENTS
            if client.family == family
        }
        asked.by_family[family] = ask(requests)
    return asked.by_family[family]


def _outcome(client: Client, case: str, sidecars: _Sidecars, asked: Asked) -> Outcome:
    return _answers(client.family, sidecars, asked).outcomes[client.name][case]


def _found(client: Client, case: str, sidecars: _Sidecars, asked: Asked) -> Found:
    outcome = _outcome(client, case, sidecars, asked)
    assert isinstance(outcome, Found), outcome
    return outcome


@pytest.fixture(scope="session")
def scores(sidecars: _Sidecars) -> dict[int, float]:
    """Return the score of each document, asked for on the native route."""
    body = {"query": _QUERY, "candidates": [{"text": text} for text in _DOCUMENTS]}
    reply = httpx.post(f"{sidecars['vllm'].planned}/v1/cascade/rerank", json=body, trust_env=False, timeout=30)
    results = reply.raise_for_status().json()["results"]
    assert tuple(item["index"] for item in results) == _ORDER
    return {item["index"]: item["score"] for item in results}


@pytest.mark.parametrize("client", _CLIENTS, ids=str)
def test_every_document_comes_back_in_order_with_its_score(
    client: Client, sidecars: _Sidecars, asked: Asked, scores: dict[int, float]
) -> None:
    """Asked for no number, a client gets every document once, best first, each with the score that it was given."""
    found = _found(client, "all", sidecars, asked)
    assert found.places == _ORDER
    assert found.scores == pytest.approx([scores[place] for place in _ORDER])


@pytest.mark.parametrize("client", [client for client in _CLIENTS if client.counts], ids=str)
def test_as_many_come_back_as_are_asked_for(
    client: Client, sidecars: _Sidecars, asked: Asked, scores: dict[int, float]
) -> None:
    """Asked for three, a client gets the best three."""
    found = _found(client, "three", sidecars, asked)
    assert found.places == _ORDER[:3]
    assert found.scores == pytest.approx([scores[place] for place in _ORDER[:3]])


@pytest.mark.parametrize("client", [client for client in _CLIENTS if client.echoes], ids=str)
def test_documents_come_back_when_asked_for(client: Client, sidecars: _Sidecars, asked: Asked) -> None:
    """A client that asks for documents gets each at its own place, as it was sent."""
    found = _found(client, "with documents", sidecars, asked)
    assert found.places == _ORDER
    assert found.documents == tuple(_DOCUMENTS[place] for place in _ORDER)


@pytest.mark.parametrize("client", [client for client in _CLIENTS if client.echoes], ids=str)
def test_no_documents_come_back_when_they_are_declined(client: Client, sidecars: _Sidecars, asked: Asked) -> None:
    """A client that asks for no documents gets the order without them."""
    found = _found(client, "without documents", sidecars, asked)
    assert found.places == _ORDER
    assert set(found.documents) == {None}


@pytest.mark.parametrize("client", _CLIENTS, ids=str)
def test_a_degraded_answer_is_just_an_order(client: Client, sidecars: _Sidecars, asked: Asked) -> None:
    """With both upstreams away, a client gets first-stage order with falling scores, and no error."""
    found = _found(client, "degraded", sidecars, asked)
    assert found.places == tuple(range(len(_DOCUMENTS)))
    assert all(before > after for before, after in pairwise(found.scores))


@pytest.mark.parametrize(("client", "fault"), _REFUSALS, ids=str)
def test_a_refusal_is_never_taken_for_an_order(client: Client, fault: Fault, sidecars: _Sidecars, asked: Asked) -> None:
    """Refused, a client raises, and where its exception has a status, it is ours."""
    outcome = _outcome(client, fault.case, sidecars, asked)
    assert isinstance(outcome, Raised)
    status, _ = fault.told_to(client)
    assert outcome.status in (None, status)


@pytest.mark.parametrize(("client", "fault"), _READ, ids=str)
def test_a_refusal_is_told_in_our_words(client: Client, fault: Fault, sidecars: _Sidecars, asked: Asked) -> None:
    """Refused, a client that reads refusals shows its user what the sidecar said."""
    outcome = _outcome(client, fault.case, sidecars, asked)
    assert isinstance(outcome, Raised)
    _, words = fault.told_to(client)
    assert words in outcome.told


@pytest.mark.parametrize("client", [client for client in _CLIENTS if not client.sends_none], ids=str)
def test_some_clients_ask_nothing_without_documents(client: Client, sidecars: _Sidecars, asked: Asked) -> None:
    """A client that sends nothing then hands over an empty order, or an exception of its own, not ours."""
    outcome = _outcome(client, "no documents", sidecars, asked)
    assert outcome == Found((), (), ()) or (isinstance(outcome, Raised) and "at least 1 item" not in outcome.told)


@pytest.mark.parametrize("family", sorted({client.family for client in _CLIENTS}))
def test_no_client_needs_another_machine(family: str, sidecars: _Sidecars, asked: Asked) -> None:
    """No client looks up or connects to another host, but LiteLLM's huggingface prefix, which does without the hub."""
    hub = {"huggingface.co"} if family == "litellm" else set()
    assert set(_answers(family, sidecars, asked).strayed) == hub
