"""The whole sidecar in front of real servers: llama.cpp as its small stage, vLLM as its large."""

from itertools import pairwise
from typing import Any

import httpx
import pytest

from .pairs import BATCHES_DIFFER, OVER_BATCH, OVER_LONG, QUERY, alone_at_llamacpp, alone_at_vllm, documents
from .servers import Server
from .sidecar import Sidecar

pytestmark = pytest.mark.engines

_COUNT = 31
_TOP_M = 20
_TEXTS = documents(_COUNT)


def _native(serving: Sidecar, texts: list[str], **fields: Any) -> dict[str, Any]:
    """Ask on the native route; return the answer, which must be whole and not degraded."""
    candidates = [{"id": f"d{place}", "text": text} for place, text in enumerate(texts)]
    reply = serving.post("/v1/cascade/rerank", {"query": QUERY, "candidates": candidates, **fields})
    assert reply.status_code == 200
    answer: dict[str, Any] = reply.json()
    assert answer["degraded"] == []
    assert sorted(item["index"] for item in answer["results"]) == list(range(len(texts)))
    assert all(item["id"] == f"d{item['index']}" for item in answer["results"])
    return answer


def _assert_falls(scores: list[float]) -> None:
    """Check that a client that sorts by score again keeps the order."""
    assert all(before > after for before, after in pairwise(scores))


def _assert_whole(reply: httpx.Response, indices: list[int]) -> None:
    """Check that an answer is a whole permutation, placed by the large stage and not degraded."""
    assert reply.status_code == 200
    assert sorted(indices) == list(range(_COUNT))
    assert "x-cascade-degraded" not in reply.headers
    assert reply.headers["x-cascade-stage"] == "large"


def test_status_tells_what_each_server_said_of_itself(serving: Sidecar, vllm: Server) -> None:
    """Both stages are usable; vLLM told its limit and version, llama.cpp nothing."""
    stages = serving.status()["stages"]
    assert {name: stage["unusable"] for name, stage in stages.items()} == {"small": None, "large": None}
    assert (stages["large"]["observed"]["version"], stages["large"]["observed"]["max_length"]) == (vllm.version, 512)
    assert stages["small"]["observed"]["max_length"] is None


def test_the_native_route_puts_the_large_block_above_the_small_order(
    serving: Sidecar, vllm: Server, llamacpp: Server
) -> None:
    """The small stage's best are placed by vLLM's own scores, the rest stays in llama.cpp's order."""
    answer = _native(serving, _TEXTS, explain=True)
    placed = answer["results"]
    assert [item["stage"] for item in placed] == ["large"] * _TOP_M + ["small"] * (_COUNT - _TOP_M)
    _assert_falls([item["score"] for item in placed])
    large = alone_at_vllm(vllm, QUERY, [_TEXTS[item["index"]] for item in placed[:_TOP_M]], use_activation=True)
    assert [item["score"] for item in placed[:_TOP_M]] == pytest.approx(large, abs=1e-4)
    small = alone_at_llamacpp(llamacpp, QUERY, _TEXTS)
    rest = [small[item["index"]] for item in placed[_TOP_M:]]
    assert rest == pytest.approx(sorted(rest, reverse=True), abs=2 * BATCHES_DIFFER)
    worst_escalated = min(small[item["index"]] for item in placed[:_TOP_M])
    assert worst_escalated >= rest[0] - 2 * BATCHES_DIFFER
    rounds = {item["stage"]: (item["scored"], item["outcome"]) for item in answer["explain"]["rounds"]}
    assert rounds == {"small": (_COUNT, "ok"), "large": (_TOP_M, "ok")}


def test_the_tei_route_answers_a_whole_permutation(serving: Sidecar) -> None:
    """A TEI client gets a bare array with every text at its own index."""
    reply = serving.post("/rerank", {"query": QUERY, "texts": _TEXTS, "return_text": True})
    ranked = reply.json()
    _assert_whole(reply, [item["index"] for item in ranked])
    assert all(item["text"] == _TEXTS[item["index"]] for item in ranked)
    _assert_falls([item["score"] for item in ranked])


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_the_vllm_rerank_routes_answer_a_whole_permutation(serving: Sidecar, path: str) -> None:
    """A vLLM client gets every document once, ranked, in each of the three places that it asks."""
    reply = serving.post(path, {"model": "any", "query": QUERY, "documents": _TEXTS})
    ranked = reply.json()["results"]
    _assert_whole(reply, [item["index"] for item in ranked])
    _assert_falls([item["relevance_score"] for item in ranked])


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_the_vllm_score_routes_answer_in_input_order(serving: Sidecar, path: str) -> None:
    """A client of the score route gets a score for every document, in the order sent, that sorts as the ranking does."""
    reply = serving.post(path, {"model": "any", "text_1": QUERY, "text_2": _TEXTS})
    data = reply.json()["data"]
    _assert_whole(reply, [item["index"] for item in data])
    assert [item["index"] for item in data] == list(range(_COUNT))
    by_score = sorted(range(_COUNT), key=lambda index: -data[index]["score"])
    assert set(by_score[:_TOP_M]) == {item["index"] for item in _native(serving, _TEXTS)["results"][:_TOP_M]}


def test_every_route_gives_the_same_order(serving: Sidecar) -> None:
    """The same candidates come back in one order, whichever dialect asks."""
    native = [item["index"] for item in _native(serving, _TEXTS[:12])["results"]]
    tei = serving.post("/rerank", {"query": QUERY, "texts": _TEXTS[:12]}).json()
    vllm = serving.post("/v1/rerank", {"query": QUERY, "documents": _TEXTS[:12]}).json()["results"]
    assert [item["index"] for item in tei] == native
    assert [item["index"] for item in vllm] == native


def test_over_long_and_blank_candidates_degrade_nothing(serving: Sidecar) -> None:
    """Over-long candidates are scored by both servers, blank ones counted and kept at the end."""
    texts = [*_TEXTS[:5], "", OVER_LONG, *_TEXTS[5:9], " ", OVER_BATCH]
    answer = _native(serving, texts, explain=True)
    assert answer["explain"]["excluded"] == 2
    assert [item["index"] for item in answer["results"][-2:]] == [5, 11]
    assert [(item["scored"], item["refused"]) for item in answer["explain"]["rounds"]] == [(11, 0), (11, 0)]


def test_no_text_is_written_to_the_log(serving: Sidecar) -> None:
    """A document that both servers refuse at first leaves no word of it, nor of the query, in what the sidecar writes."""
    query, word = "zyzzyva quokka", "xylorimba"
    body = {"query": query, "texts": [f"{word} {OVER_LONG}", word, f"{word} {OVER_BATCH}"]}
    reply = serving.post("/rerank", body)
    assert reply.status_code == 200
    written = serving.log.read_text(encoding="utf-8")
    assert reply.headers["x-cascade-decision-id"] in written
    assert not [secret for secret in (*query.split(), word, "panda") if secret in written]
