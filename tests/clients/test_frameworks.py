"""The room `cascade.clients` inside the real frameworks, against real sidecars and one that remembers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.e2e.processes import listening
from tests.engines.servers import free_port

from .asking import run
from .conftest import Sidecars
from .fake_sidecar import FakeSidecar

pytestmark = pytest.mark.engines

_ROOT: Final = Path(__file__).resolve().parents[2]
_DRIVER: Final = Path(__file__).resolve().parent / "frameworks_driver.py"
_FRAMEWORKS: Final = ("langchain", "llamaindex", "haystack")
_SCORED: Final = ("llamaindex", "haystack")
_QUERY: Final = "pandas eat bamboo every day"
_SHARED: Final = (3, 2, 0, 5, 1, 4)
_DOCUMENTS: Final[list[dict[str, Any]]] = [
    {"text": " ".join([*_QUERY.split()[:shared], f"#hidden{place}"]), "score": 1 / (place + 1), "id": f"d{place}"}
    for place, shared in enumerate(_SHARED)
]
_ORDER: Final = (1, 0, 5, 3, 4, 2)
"""The four that share most, turned round by the large stage, then the rest as the small stage has them."""
_STAGES: Final = ("large",) * 4 + ("small",) * 2
_KEY: Final = "a-key"
_PARTS: Final[list[dict[str, Any]]] = [
    {"text": "first", "id": "a", "score": 0.5, "metadata": {"lexical": 12.5}},
    {"text": "second", "id": "b", "score": None, "metadata": {"lexical": None}},
    {"text": "same id", "id": "a", "score": "nan", "metadata": {"lexical": "inf"}},
    {"text": " ", "id": "blank", "score": 0, "metadata": {}},
]


def _cases(framework: str, sidecars: Sidecars, fake: str, keyed: str) -> dict[str, dict[str, Any]]:
    """Return everything that a framework is asked to do; the query names the case where the fake is asked."""

    def ask(url: str, documents: list[dict[str, Any]] = _DOCUMENTS, **more: Any) -> dict[str, Any]:
        options = {"url": url, **more.pop("options", {})}
        return {"framework": framework, "query": _QUERY, "documents": documents, "options": options, **more}

    top = "top_k" if framework == "haystack" else "top_n"
    away = f"http://127.0.0.1:{free_port()}"
    options = {"deadline_ms": 250, "tenant": "acme", "priority": 1, "channels": {"bm25": "lexical"}}
    return {
        "planned": ask(sidecars.planned),
        "planned in a loop": ask(sidecars.planned, in_loop=True),
        "three": ask(sidecars.planned, options={top: 3}),
        "three in a loop": ask(sidecars.planned, options={top: 3}, in_loop=True),
        "repeated": ask(sidecars.planned, [_DOCUMENTS[0]] * 3),
        "degraded": ask(sidecars.degraded),
        "closed": ask(sidecars.closed),
        "closed in a loop": ask(sidecars.closed, in_loop=True),
        "closed and kept": ask(sidecars.closed, options={"on_error": "keep", top: 4}),
        "away": ask(away),
        "away and kept": ask(away, options={"on_error": "keep"}),
        "away and kept in a loop": ask(away, options={"on_error": "keep"}, in_loop=True),
        "blank query": ask(sidecars.planned, query=" "),
        "sent": ask(fake, _PARTS, query=f"{framework} sent", options=options),
        "sent otherwise": ask(fake, _PARTS[:1], query=f"{framework} otherwise", options={"metadata_key": "told"}),
        "empty": ask(fake, [], query=f"{framework} empty"),
        "none wanted": ask(fake, options={top: 0}),
        "key given": ask(keyed, key=_KEY),
        "key of the environment": ask(keyed, variables={"CASCADE_API_KEY": _KEY}),
        "wrong key": ask(keyed, key="another-hidden"),
        "saved": ask(fake, save=True, variables={"CASCADE_API_KEY": "hidden"}, options={top: 7, **options}),
    }


@pytest.fixture(scope="module")
def fake() -> FakeSidecar:
    """Return a sidecar that remembers what it was asked."""
    return FakeSidecar()


@pytest.fixture(scope="module")
def outcomes(sidecars: Mapping[str, Sidecars], fake: FakeSidecar) -> dict[str, dict[str, Any]]:
    """Return what came of every case, by framework and case; one process asks them all."""
    with listening(fake) as remembering, listening(FakeSidecar(key=_KEY)) as keyed:
        cases = {
            f"{framework}/{case}": request
            for framework in _FRAMEWORKS
            for case, request in _cases(framework, sidecars["vllm"], remembering, keyed).items()
        }
        cases["llamaindex/no query"] = cases["llamaindex/planned"] | {"query": None}
        cases["haystack/one run"] = cases["haystack/planned"] | {"top": 2}
        cases["haystack/none in one run"] = cases["haystack/planned"] | {"top": 0}
        cases["haystack/key saved"] = cases["haystack/saved"] | {"key": "hidden", "variables": {}}
        cases["haystack/no score sent"] = cases["haystack/sent"] | {"query": "no score sent"}
        cases["haystack/no score sent"]["options"] = cases["haystack/sent"]["options"] | {"channel": None}
        told = json.loads(run([_DRIVER], json.dumps(cases).encode(), {"PYTHONPATH": str(_ROOT)}))
    by_framework: dict[str, dict[str, Any]] = {}
    for name, outcome in told.items():
        framework, _, case = name.partition("/")
        by_framework.setdefault(framework, {})[case] = outcome
    return by_framework


def _found(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    assert "found" in outcome, outcome
    found: list[dict[str, Any]] = outcome["found"]
    return found


def _places(outcome: dict[str, Any]) -> tuple[int, ...]:
    return tuple(item["place"] for item in _found(outcome))


@pytest.fixture(scope="module")
def scores(sidecars: Mapping[str, Sidecars]) -> list[float]:
    """Return the scores down the planned order, asked for on the native route."""
    body = {"query": _QUERY, "candidates": [{"text": document["text"]} for document in _DOCUMENTS]}
    url = f"{sidecars['vllm'].planned}/v1/cascade/rerank"
    results = httpx.post(url, json=body, trust_env=False, timeout=30).raise_for_status().json()["results"]
    assert tuple(item["index"] for item in results) == _ORDER
    return [item["score"] for item in results]


@pytest.mark.parametrize("framework", _FRAMEWORKS)
@pytest.mark.parametrize(
    ("case", "wanted"), [("planned", 6), ("planned in a loop", 6), ("three", 3), ("three in a loop", 3)]
)
def test_documents_come_back_in_the_sidecars_order_with_its_scores(
    framework: str, case: str, wanted: int, outcomes: dict[str, dict[str, Any]], scores: list[float]
) -> None:
    """Each document is at its place, with score, stage, release and decision; those given did not change."""
    outcome = outcomes[framework][case]
    assert _places(outcome) == _ORDER[:wanted]
    for item, score, stage in zip(_found(outcome), scores, _STAGES, strict=False):
        assert item["score"] == pytest.approx(score)
        assert item["told"] == {
            "stage": stage,
            "score": item["score"],
            "decision_id": item["told"]["decision_id"],
            "release": "clients",
            "degraded": [],
        }
    assert len({item["told"]["decision_id"] for item in _found(outcome)}) == 1
    assert outcome["given_unchanged"]
    assert "hidden" not in outcome["shown"]


@pytest.mark.parametrize("framework", _FRAMEWORKS)
def test_a_document_given_three_times_comes_back_three_times(
    framework: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    """Documents with one id are not taken for one."""
    assert sorted(_places(outcomes[framework]["repeated"])) == [0, 1, 2]


@pytest.mark.parametrize("framework", _FRAMEWORKS)
def test_a_degraded_answer_says_so(framework: str, outcomes: dict[str, dict[str, Any]]) -> None:
    """With both stages away, first-stage order comes back, and each document tells why."""
    outcome = outcomes[framework]["degraded"]
    assert _places(outcome) == tuple(range(6))
    for item in _found(outcome):
        assert item["told"]["degraded"] == ["stage_unreachable"]
        assert item["told"]["stage"] == "retrieval"
        assert "error" not in item["told"]


_WHYS: Final = {
    "closed": "status 503: not_answered, answer",
    "closed in a loop": "status 503: not_answered, answer",
    "away": "no answer: ConnectError",
    "blank query": "status 422: schema, query",
    "wrong key": "status 401: unauthorized, authorization",
}


@pytest.mark.parametrize("framework", _FRAMEWORKS)
@pytest.mark.parametrize("case", _WHYS)
def test_without_an_answer_a_framework_raises_without_text(
    framework: str, case: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    """What the user sees names the reason, and holds no text and no key; no exception of the client's is behind ours."""
    outcome = outcomes[framework][case]
    assert outcome["raised"][-1] == "SidecarError"
    assert _WHYS[case] in outcome["told"]
    assert "hidden" not in outcome["told"]


@pytest.mark.parametrize("framework", _FRAMEWORKS)
@pytest.mark.parametrize("case", ["closed and kept", "away and kept", "away and kept in a loop"])
def test_the_order_given_is_kept_with_its_scores(
    framework: str, case: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    """Where that is asked for, documents stay as they came, and say that they were not reranked."""
    wanted = 4 if case == "closed and kept" else 6
    outcome = outcomes[framework][case]
    assert _places(outcome) == tuple(range(wanted))
    for place, item in enumerate(_found(outcome)):
        assert item["score"] == (1 / (place + 1) if framework in _SCORED else None)
        assert item["told"]["degraded"] == ["no_answer"]
        assert item["told"]["error"] == _WHYS["closed" if case == "closed and kept" else "away"]


@pytest.mark.parametrize("framework", _FRAMEWORKS)
def test_ids_scores_and_options_are_sent(
    framework: str, outcomes: dict[str, dict[str, Any]], fake: FakeSidecar
) -> None:
    """The sidecar gets the text of each document, its id once, and the first-stage scores that there are."""
    assert _places(outcomes[framework]["sent"]) == (3, 2, 1, 0)
    own = [{"first_stage": 0.5}, {}, {}, {"first_stage": 0.0}] if framework in _SCORED else [{}] * 4
    lexical: list[dict[str, float]] = [{"bm25": 12.5}, {}, {}, {}]
    assert fake.body_of(f"{framework} sent") == {
        "query": f"{framework} sent",
        "candidates": [
            {"text": part["text"], "id": name, "scores": scores | more}
            for part, name, scores, more in zip(_PARTS, ("a", "b", None, "blank"), lexical, own, strict=True)
        ],
        "deadline_ms": 250.0,
        "tenant": "acme",
        "priority": 1,
    }


def test_a_score_of_the_documents_own_need_not_be_sent(outcomes: dict[str, dict[str, Any]], fake: FakeSidecar) -> None:
    """Without a channel for it, only those of the metadata are."""
    assert _places(outcomes["haystack"]["no score sent"]) == (3, 2, 1, 0)
    sent = fake.body_of("no score sent")["candidates"]
    assert [candidate["scores"] for candidate in sent] == [{"bm25": 12.5}, {}, {}, {}]


@pytest.mark.parametrize("framework", _FRAMEWORKS)
def test_metadata_goes_under_the_key_that_was_chosen(framework: str, outcomes: dict[str, dict[str, Any]]) -> None:
    """The key is the user's choice."""
    (item,) = _found(outcomes[framework]["sent otherwise"])
    assert item["told"]["release"] == "fake"


def test_models_are_not_shown_what_was_told(outcomes: dict[str, dict[str, Any]]) -> None:
    """What LlamaIndex puts before a language or embedding model leaves it out."""
    for case in ("planned", "degraded", "away and kept", "sent otherwise"):
        assert all(item["hidden"] for item in _found(outcomes["llamaindex"][case]))


@pytest.mark.parametrize("framework", _FRAMEWORKS)
def test_no_documents_are_no_request(framework: str, outcomes: dict[str, dict[str, Any]], fake: FakeSidecar) -> None:
    """An empty list comes back without asking."""
    assert _found(outcomes[framework]["empty"]) == []
    assert f"{framework} empty" not in {seen.body["query"] for seen in fake.posts}


@pytest.mark.parametrize(
    ("framework", "case", "told"),
    [
        ("langchain", "none wanted", "top_n"),
        ("llamaindex", "none wanted", "top_n"),
        ("haystack", "none wanted", "top_k: must be at least 1"),
        ("haystack", "none in one run", "top_k: must be at least 1"),
        ("llamaindex", "no query", "a query is needed"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    framework: str, case: str, told: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    """No documents wanted, or no query, is a mistake that is named."""
    outcome = outcomes[framework][case]
    assert outcome["raised"] in (["ValueError"], ["ValidationError"])
    assert told in outcome["told"]


def test_a_run_of_haystacks_has_a_number_of_its_own(outcomes: dict[str, dict[str, Any]]) -> None:
    """``top_k`` of a run goes before that of the component."""
    assert _places(outcomes["haystack"]["one run"]) == _ORDER[:2]


@pytest.mark.parametrize("framework", _FRAMEWORKS)
@pytest.mark.parametrize("case", ["key given", "key of the environment"])
def test_the_key_is_sent(framework: str, case: str, outcomes: dict[str, dict[str, Any]]) -> None:
    """A sidecar that asks for a key gets it."""
    assert _places(outcomes[framework][case]) == (5, 4, 3, 2, 1, 0)


@pytest.mark.parametrize("framework", _FRAMEWORKS)
def test_it_is_the_same_after_loading_and_the_key_is_not_saved(
    framework: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    """Every option survives the framework's own way of saving; the key is read from the environment again."""
    outcome = outcomes[framework]["saved"]
    assert outcome["same"]
    assert outcome["key"] == "hidden"
    assert "hidden" not in outcome["saved"]
    for option in ("acme", "lexical", "7", "250"):
        assert option in outcome["saved"]


def test_haystack_saves_no_key_that_was_given_as_it_is(outcomes: dict[str, dict[str, Any]]) -> None:
    """A token in a pipeline is refused rather than written down."""
    outcome = outcomes["haystack"]["key saved"]
    assert "Cannot serialize token-based secret" in outcome["told"]
    assert "hidden" not in outcome["told"]
