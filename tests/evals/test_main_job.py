"""The main job end to end: a running sidecar on the default release, over real text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import httpx
import pytest

from cascade.metrics import ndcg
from cascade.replay.collection import Collection, load_collection
from cascade.replay.first_stage import FirstStage
from evals.first_stage import shared_data
from evals.main_job import interval, summary, variants
from evals.sidecar import running_sidecar

pytestmark = pytest.mark.long

_OWN = Path(__file__).parents[2] / "evals" / "collections" / "lighthouse"


@pytest.fixture(scope="module")
def sidecar() -> Iterator[str]:
    """Run the sidecar on the packaged default release; give its public address."""
    with running_sidecar() as (public, _):
        yield public


def _run(sidecar: str, collection: Collection, queries: int) -> tuple[list[float], list[float]]:
    """Rerank the first judged queries; return nDCG@10 of BM25 and of the sidecar, query by query."""
    first_stage = FirstStage(collection)
    judged = [q for q in collection.queries if any(grade > 0 for grade in collection.judgements[q].values())]
    before, after = [], []
    with httpx.Client(timeout=60) as client:
        for query_id in judged[:queries]:
            query, grades = collection.queries[query_id], collection.judgements[query_id]
            run = [document for document, _ in first_stage.search(query, 50)]
            candidates = [{"id": document, "text": collection.documents[document]} for document in run]
            body = {"query": query, "candidates": candidates, "deadline_ms": 60_000, "explain": True}
            answer = client.post(f"{sidecar}/v1/cascade/rerank", json=body).raise_for_status().json()
            ranked = [result["id"] for result in answer["results"]]
            assert sorted(ranked) == sorted(run)
            assert answer["explain"]["candidates"] == len(run)
            before.append(ndcg(run, grades, 10))
            after.append(ndcg(ranked, grades, 10))
    return before, after


def test_the_default_release_beats_bm25_on_the_own_collection(sidecar: str) -> None:
    """Over the project's own queries the sidecar's order is better than BM25's, and whole every time."""
    before, after = _run(sidecar, load_collection(_OWN), 18)
    assert len(after) == 18
    assert mean(after) > mean(before) + 0.05


def test_what_is_asked_twice_is_scored_twice(sidecar: str) -> None:
    """The second pass shows what kept vectors save, and not what kept scores do."""
    body = {"query": "a lamp", "candidates": [{"text": "the lamp"}, {"text": "a boat"}], "explain": True}
    for _ in range(2):
        answer = httpx.post(f"{sidecar}/v1/cascade/rerank", json=body | {"deadline_ms": 60_000}, timeout=60).json()
        assert answer["explain"]["cached_pairs"] == 0
        assert answer["explain"]["effective_pairs"] > 0


@pytest.mark.data
@pytest.mark.parametrize("name", ["cranfield", "dbpedia-entity-sample"])
def test_real_collections_come_back_whole(sidecar: str, name: str) -> None:
    """Real queries over real documents give whole orders (skipped where the collections are absent)."""
    folder = shared_data() / "beir" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not in {shared_data()}; set CASCADE_DATA to the folder of real collections")
    _, after = _run(sidecar, load_collection(folder), 5)
    assert len(after) == 5


def test_the_variants_differ_in_stages_only_where_their_names_say() -> None:
    """Every compared release is valid and has the stages of its name."""
    from cascade.policy.release import parse_release

    stages = {
        name: (parse_release(value).stages.small is not None, parse_release(value).stages.large is not None)
        for name, value in variants().items()
    }
    assert stages == {
        "always-small": (True, False),
        "always-large": (False, True),
        "large-of-bm25-top-20": (False, True),
        "default, first pass": (True, True),
        "default, second pass": (True, True),
    }


def test_an_interval_holds_the_mean_and_narrows_with_queries() -> None:
    """The bootstrap interval lies around the mean and is narrower with more queries."""
    few, many = [0.1, 0.3] * 10, [0.1, 0.3] * 1000
    (low_few, high_few), (low_many, high_many) = interval(few), interval(many)
    assert low_few < 0.2 < high_few
    assert high_many - low_many < (high_few - low_few) / 5


def test_a_summary_is_against_bm25_and_always_large() -> None:
    """Differences are paired by query."""
    from evals.main_job import METRICS, Outcome

    def outcome(values: list[float]) -> Outcome:
        return Outcome(scores=dict.fromkeys(METRICS, values))

    rows = summary({"bm25": outcome([0.1, 0.2]), "always-large": outcome([0.3, 0.4])})
    assert rows[1]["ndcg@10 vs bm25"] == [0.2, 0.2, 0.2]
    assert rows[0]["ndcg@10 vs always-large"] == [-0.2, -0.2, -0.2]
