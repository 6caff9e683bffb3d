"""Sidecars for clients to ask: as planned, without upstreams, and without an answer then."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import pytest

from cascade.testing.upstream import FakeTei, FakeVllm, overlap
from tests.e2e.processes import listening, serving, write_yaml
from tests.engines.servers import free_port

from .asking import Answers

__all__ = ["MAX_BODY_BYTES", "MAX_DOCUMENTS", "Asked", "Sidecars"]

MAX_DOCUMENTS: Final = 12
MAX_BODY_BYTES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Sidecars:
    """Addresses of sidecars that answer ``/rerank`` with documents alike.

    ``planned`` answers through a small and a large stage. The upstreams of the others are away: ``degraded`` gives
    first-stage order then, ``closed`` 503.
    """

    planned: str
    degraded: str
    closed: str


def _release(small: str, large: str, **more: Any) -> dict[str, Any]:
    """Return a release whose breakers stay closed: each client is told the same of servers that are away."""

    def stage(**fields: Any) -> dict[str, Any]:
        return {**fields, "breaker": {"min_calls": 10_000, "consecutive": 10_000}}

    return {
        "release": "clients",
        "stages": {
            "small": stage(adapter="tei", url=small, model="small", engine="tei/1.9"),
            "large": stage(adapter="vllm", url=large, model="fake/reranker", engine="vllm/0.32"),
        },
        "depth": 50,
        "escalation": {"kind": "static", "top_m": 4},
        "budgets": {"total_ms": 10_000, "small_ms": 5000, "large_ms": 5000, "reserve_ms": 20},
        "limits": {"max_documents": MAX_DOCUMENTS},
        **more,
    }


@pytest.fixture(scope="session")
def sidecars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sidecars]]:
    """Run sidecars by the setting ``rerank_dialect``.

    The small stage counts the query's words in a document; the large stage turns its order round.
    """
    with ExitStack() as stack:
        small = stack.enter_context(listening(FakeTei()))
        large = stack.enter_context(listening(FakeVllm(score_of=lambda query, text: -overlap(query, text))))
        away = f"http://127.0.0.1:{free_port()}"

        def start(dialect: str, release: dict[str, Any]) -> str:
            folder = tmp_path_factory.mktemp("sidecar")
            file = write_yaml(folder / "release.yaml", release)
            settings = {
                "CASCADE__DRAIN_SECONDS": "0",
                "CASCADE__MAX_BODY_BYTES": str(MAX_BODY_BYTES),
                "CASCADE__RERANK_DIALECT": dialect,
            }
            return stack.enter_context(serving(folder, "--release", str(file), **settings)).public

        yield {
            dialect: Sidecars(
                planned=start(dialect, _release(small, large)),
                degraded=start(dialect, _release(away, away)),
                closed=start(dialect, _release(away, away, fallback="error")),
            )
            for dialect in ("vllm", "infinity")
        }


class Asked:
    """Answers of the clients so far, by family: each is asked once a session, in one process."""

    def __init__(self) -> None:
        self.by_family: dict[str, Answers] = {}


@pytest.fixture(scope="session")
def asked() -> Asked:
    """Return what no client has been asked yet."""
    return Asked()
