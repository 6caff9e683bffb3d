"""Commands before a stage that orders lists: the doctor examines it, and what reads scores refuses it by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade.replay.table import write_table
from cascade.testing.chat import FakeChat
from tests.cli.conftest import Command, WriteRelease
from tests.e2e.processes import listening
from tests.fit.planted import planted_table

_OWN = Path(__file__).parents[2] / "evals" / "collections" / "lighthouse"
_SMALL = {"adapter": "tei", "url": "http://127.0.0.1:9", "model": "m", "engine": "tei/1.9", "connect_ms": 50}


@pytest.fixture
def server() -> FakeChat:
    """Give a server whose model knows the capital of France."""
    return FakeChat(score_of=lambda query, text: float("Paris" in text))


@pytest.fixture
def address(server: FakeChat) -> Iterator[str]:
    """Have it listen; give its address."""
    with listening(server) as url:
        yield url


def _release(release: WriteRelease, address: str, **large: Any) -> str:
    chat = {"adapter": "chat", "url": address, "model": "fake/chat", "engine": "vllm/0.32", "revision": "r1"}
    return release(
        stages={"large": {**chat, **large}}, depth=5, escalation={"kind": "static", "top_m": 5},
        budgets={"total_ms": 9000, "small_ms": 100, "large_ms": 8000, "reserve_ms": 10},
    )  # fmt: skip


def test_the_doctor_has_four_passages_ordered(command: Command, release: WriteRelease, address: str) -> None:
    """What the server is, that it orders, how long lists take; nothing to change."""
    done = command("doctor", "--release", _release(release, address))
    assert (done.status, done.err) == (0, "")
    assert "server   model fake/chat, version 0.32.0, max_length 8192" in done.out
    assert "scoring  ok" in done.out
    assert "latency  1: " in done.out
    assert "change" not in done.out


@pytest.mark.parametrize(
    ("written", "told", "advice"),
    [
        ("[2] > [1] > [3] > [4]", "wrong_order", "too small for this"),
        ("[1] > [1] > [2]", "no_permutation", "set form to regex"),
        ("Which passages?", "failed (no_order)", "names no passage"),
    ],
)
def test_the_doctor_says_what_is_wrong_with_an_order(
    command: Command, release: WriteRelease, server: FakeChat, address: str, written: str, told: str, advice: str
) -> None:
    """Exit 1, and what to change."""
    server.writes = lambda numbers: written
    done = command("doctor", "--release", _release(release, address))
    assert done.status == 1
    assert f"scoring  {told}" in done.out
    assert advice in done.out


@pytest.mark.parametrize(
    ("reply", "fields", "advice"),
    [
        (httpx.Response(400, json={"error": {"message": "Unknown parameter: 'response_format'"}}), {"form": "json-schema"},
         "set form to text"),
        (None, {"answer_tokens": 16_000, "max_length": 32_768}, "lower answer_tokens"),
    ],
)  # fmt: skip
def test_the_doctor_says_what_to_set_where_the_server_does_not_take_the_call(
    command: Command, release: WriteRelease, server: FakeChat, address: str, reply: httpx.Response | None,
    fields: dict[str, Any], advice: str,
) -> None:  # fmt: skip
    """An older server that knows no schema, and one whose context has no room for the answer that was declared."""
    server.script = [] if reply is None else [reply]
    done = command("doctor", "--release", _release(release, address, **fields))
    assert done.status == 1
    assert advice in done.out


def test_no_table_is_collected_of_orders(command: Command, release: WriteRelease, address: str, tmp_path: Path) -> None:
    """A place depends on the list that it is in, so it is no score of a document."""
    path = _release(release, address)
    done = command("collect", "--dataset", str(_OWN), "--release", path, "--out", str(tmp_path / "t.parquet"))
    assert done.status == 2
    assert "stage large: adapter chat orders the list that it is shown" in done.err
    assert not (tmp_path / "t.parquet").exists()


def test_orders_are_not_compared_as_scores(
    command: Command, release: WriteRelease, address: str, tmp_path: Path
) -> None:
    """Parity compares scores, and there are none: neither of a release's stage nor of an address."""
    for side in (f"{_release(release, address)}#large", f"chat+{address}#model=fake/chat"):
        done = command("parity", side, side, "--out", str(tmp_path / "parity.json"), "--dataset", str(_OWN))
        assert done.status == 2
        assert "REF: adapter chat orders lists" in done.err


def test_no_order_is_certified(command: Command, release: WriteRelease, address: str, tmp_path: Path) -> None:
    """A table's order of all is none of the list that is shown: refused before an attempt is counted."""
    table, out = tmp_path / "t.parquet", tmp_path / "cert.json"
    write_table(table, planted_table(30, 10, seed=4))
    chat = {"adapter": "chat", "url": address, "model": "fake/chat", "engine": "vllm/0.32"}
    static = {"kind": "static", "top_m": 5}
    path = release(stages={"small": _SMALL, "large": chat}, depth=5, escalation=static)
    done = command(
        "certify", "--table", str(table), "--first-stage", "bm25", "--small", "small", "--large", "large", "--epsilon", "0.2",
        "--release", path, "--out", str(out),
    )  # fmt: skip
    assert done.status == 2
    assert "adapter chat orders the list that it is shown" in " ".join(done.err.split())
    assert list(tmp_path.glob("*.json*")) == []


def test_a_release_with_an_order_is_verified(command: Command, release: WriteRelease, address: str) -> None:
    """Valid as it stands; as the small stage, or calibrated, it is refused before anything serves."""
    done = command("config", "validate", "--release", _release(release, address))
    assert done.status == 0
    chat = {"adapter": "chat", "url": address, "model": "fake/chat", "engine": "vllm/0.32"}
    done = command("config", "validate", "--release", release(stages={"small": chat}, depth=5))
    assert done.status == 2
    assert "only the large stage may" in done.err
    fused = {"kind": "static-fused", "calibration": f"sha256:{'0' * 64}", "top_m": 5}
    path = release(stages={"small": _SMALL, "large": chat}, depth=5, escalation=fused)
    assert "is calibrated on large scores" in command("config", "validate", "--release", path).err
