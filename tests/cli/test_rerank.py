"""``cascade rerank``."""

from __future__ import annotations

import socket
from typing import Any, Final

import orjson
import pytest

from cascade.testing.upstream import FakeTei
from tests.cli.conftest import Command, WriteRelease
from tests.e2e.processes import cascade, listening

_REQUEST: Final[dict[str, Any]] = {
    "query": "kingfisher",
    "candidates": [{"id": "first", "text": "a"}, {"id": "[/odd] id", "text": "b"}, {"text": "c"}],
}


def _stdin(**fields: Any) -> bytes:
    return orjson.dumps({**_REQUEST, **fields})


def test_json_is_the_native_answer(command: Command, release: WriteRelease) -> None:
    """One line of JSON with every candidate, the release and the stage; nothing on stderr."""
    done = command("rerank", "--release", release(), stdin=_stdin())
    answer = orjson.loads(done.out)
    assert (done.status, done.err) == (0, "")
    assert [(item["index"], item["id"]) for item in answer["results"]] == [(0, "first"), (1, "[/odd] id"), (2, None)]
    assert (answer["release"], answer["stage"], answer["degraded"]) == ("bare-1", "retrieval", [])
    assert "explain" not in answer


def test_json_holds_what_the_request_asks_for(command: Command, release: WriteRelease) -> None:
    """``top_n`` and ``explain`` of the request count here as they do over HTTP."""
    done = command("rerank", "--release", release(), stdin=_stdin(top_n=1, explain=True))
    answer = orjson.loads(done.out)
    assert len(answer["results"]) == 1
    assert answer["explain"]["top_n"] == 1


def test_table_shows_rank_place_before_id_score_and_stage(command: Command, release: WriteRelease) -> None:
    """A row a place, ids as they are though they look like markup, and the decision below."""
    done = command("rerank", "--release", release(), "--format", "table", stdin=_stdin())
    assert done.status == 0
    rows = [line.strip("│┃ ").replace("┃", "│").split("│") for line in done.out.splitlines() if line[:1] in "│┃"]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells == [
        ["rank", "before", "id", "score", "stage"],
        ["1", "1", "first", "1.0000", "retrieval"],
        ["2", "2", "[/odd] id", "0.6667", "retrieval"],
        ["3", "3", "", "0.3333", "retrieval"],
    ]
    assert "answered by retrieval; depth 0; escalated 0;" in done.out
    assert "degraded: no" in done.out


def test_a_degraded_answer_says_so_in_both_forms(command: Command, release: WriteRelease) -> None:
    """A server that is not there costs quality: the order is whole and the reason is told."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    stage = {"adapter": "tei", "url": f"http://127.0.0.1:{port}", "model": "m", "engine": "e", "connect_ms": 50}
    path = release(stages={"small": stage}, depth=5)
    answer = orjson.loads(command("rerank", "--release", path, stdin=_stdin()).out)
    assert [item["index"] for item in answer["results"]] == [0, 1, 2]
    assert answer["degraded"] == ["stage_unreachable"]
    table = command("rerank", "--release", path, "--format", "table", stdin=_stdin())
    assert "degraded: stage_unreachable" in table.out


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (b"", "body: not valid JSON in UTF-8"),
        (b'{"query": "kingfisher"', "body: not valid JSON in UTF-8"),
        (b'["kingfisher"]', "body: Input should be an object"),
        (b'{"query": "kingfisher"}', "candidates: Field required"),
        (_stdin(instruction="kingfisher"), "instruction: this release's stages take no instruction"),
        (_stdin(candidates=[]), "candidates: List should have at least 1 item after validation, not 0"),
        (_stdin(candidates=[{"text": "a"}] * 3000), "candidates: at most 2048 are accepted"),
        (_stdin(topn=1), "topn: Extra inputs are not permitted"),
        (_stdin(deadline_ms=-1), "deadline_ms: Input should be greater than or equal to 0"),
    ],
)
def test_g1_bad_input_is_one_line_and_exit_2(
    command: Command, release: WriteRelease, stdin: bytes, message: str
) -> None:
    """The field and its rule are told on stderr, without the input and without a traceback."""
    done = command("rerank", "--release", release(), stdin=stdin)
    assert (done.status, done.out, done.err) == (2, "", f"cascade: {message}\n")


def test_fail_closed_is_exit_2(command: Command, release: WriteRelease) -> None:
    """A caller that wants no degraded order gets the reason."""
    stage = {"adapter": "tei", "url": "http://127.0.0.1:9", "model": "m", "engine": "e", "connect_ms": 50}
    path = release(stages={"small": stage}, depth=5)
    done = command("rerank", "--release", path, stdin=_stdin(fail_closed=True, deadline_ms=0))
    assert (done.status, done.out) == (2, "")
    assert done.err == "cascade: answer: deadline_too_short\n"


def test_an_unknown_format_is_a_usage_error(command: Command) -> None:
    """The formats are told."""
    done = command("rerank", "--format", "xml")
    assert done.status == 2
    assert "json" in done.err
    assert "table" in done.err


def test_a_stage_orders_and_is_told(command: Command, release: WriteRelease) -> None:
    """The server's scores make the order; the answer names the stage."""
    budgets = {"total_ms": 9000, "small_ms": 8000, "large_ms": 100, "reserve_ms": 10}
    with listening(FakeTei(score_of=lambda query, text: float(text == "b"))) as url:
        stage = {"adapter": "tei", "url": url, "model": "m", "engine": "tei/1.9"}
        path = release(stages={"small": stage}, depth=5, budgets=budgets)
        answer = orjson.loads(command("rerank", "--release", path, stdin=_stdin()).out)
    assert [item["index"] for item in answer["results"]] == [1, 0, 2]
    assert (answer["stage"], answer["degraded"]) == ("small", [])


@pytest.mark.long
def test_the_default_release_reranks_alone() -> None:
    """The installed command scores with the models that its packages carry, and no setting."""
    documents = ["Bread is baked in an oven.", "Kingfishers dive for small fish.", "Rivers flow to the sea."]
    body = {
        "query": "what do kingfishers eat",
        "candidates": [{"text": text} for text in documents],
        "deadline_ms": 60_000,
    }
    done = cascade("rerank", stdin=orjson.dumps(body), variables={})
    answer = orjson.loads(done.stdout)
    assert done.returncode == 0
    assert answer["results"][0]["index"] == 1
    assert (answer["stage"], answer["degraded"]) == ("large", [])
