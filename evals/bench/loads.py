"""The loads of the overhead benchmark: how fast, how many at a time, and which body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Final

import orjson

__all__ = ["DEPTH", "DOCUMENT_COUNTS", "LOADS", "QUICK", "TOP_M", "Load", "Shape", "body", "calls", "with_services"]

DEPTH: Final = 50
TOP_M: Final = 20
DOCUMENT_COUNTS: Final = (20, 50, 200)
_CHARACTERS: Final = 600
_LARGE_CHARACTERS: Final = 100_000
_PROSE: Final = {
    "en": "a harbour light was kept by three families who wrote down every ship and storm they saw from the tower",
    "ko": "등대를 지키던 세 가족은 탑에서 본 모든 배와 폭풍을 날마다 공책에 적어 두었고 아이들은 그것을 읽으며 자랐다",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A request's body: documents of one length, in one language."""

    documents: int = 50
    language: str = "en"
    characters: int = _CHARACTERS


LARGE: Final = Shape(characters=_LARGE_CHARACTERS)
"""Five megabytes."""


@dataclass(frozen=True, slots=True)
class Load:
    """An open loop of ``rate`` requests a second, or, where that is 0, a closed loop of ``concurrent`` clients.

    ``service`` names, by number of documents, the load whose median straight at the fake is the fake's service
    time under this one. ``support`` marks loads that are there only for that, and run only straight at the fake.
    ``beside_large`` sends two bodies of 5 MB a second beside the ones that are measured.
    """

    name: str
    shape: Shape = field(default_factory=Shape)
    rate: int = 0
    concurrent: int = 0
    service: Mapping[int, str] = field(default_factory=dict)
    support: bool = False
    beside_large: bool = False


def _services(fifty: str, twenty: str, more: str = "") -> Mapping[int, str]:
    named = {50: fifty, 20: twenty} | ({200: more} if more else {})
    return MappingProxyType(named)


_SLOW: Final = _services("rate-20", "rate-20-docs-20")
_FAST: Final = _services("rate-200", "rate-200-docs-20", "rate-200-docs-200")
_KOREAN: Final = _services("rate-200-korean", "rate-200-korean-docs-20")
_CLOSED: Final = _services("concurrent-1", "concurrent-1-docs-20")

LOADS: Final = (
    Load("rate-20", rate=20, service=_SLOW),
    Load("rate-20-docs-20", Shape(20), rate=20, service=_SLOW, support=True),
    Load("rate-200", rate=200, service=_FAST),
    Load("rate-200-docs-20", Shape(20), rate=200, service=_FAST),
    Load("rate-200-docs-200", Shape(200), rate=200, service=_FAST),
    Load("rate-200-korean", Shape(language="ko"), rate=200, service=_KOREAN),
    Load("rate-200-korean-docs-20", Shape(20, "ko"), rate=200, service=_KOREAN, support=True),
    Load("concurrent-1", concurrent=1, service=_CLOSED),
    Load("concurrent-1-docs-20", Shape(20), concurrent=1, service=_CLOSED, support=True),
    Load("concurrent-16", concurrent=16, service=_CLOSED),
    Load("concurrent-64", concurrent=64, service=_CLOSED),
    Load("concurrent-256", concurrent=256, service=_CLOSED),
    Load("rate-20-beside-5mb", rate=20, service=_SLOW, beside_large=True),
)
QUICK: Final = ("rate-200", "concurrent-1", "concurrent-16")


def calls(target: str, documents: int) -> tuple[int, ...]:
    """Return the documents of each call that lies on a request's path, one after the other."""
    if target == "deciding":
        return min(DEPTH, documents), min(TOP_M, documents)
    return (documents,)


def with_services(names: tuple[str, ...]) -> list[Load]:
    """Return the loads named and the ones that tell the fake's service time under them. Raises ValueError."""
    known = {load.name: load for load in LOADS}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"unknown loads: {', '.join(unknown)}; known are {', '.join(known)}")
    needed = set(names)
    for name in names:
        documents = known[name].shape.documents
        counts = {*calls("direct", documents), *calls("deciding", documents)}
        needed |= {known[name].service[count] for count in counts}
    return [load for load in LOADS if load.name in needed]


@cache
def body(shape: Shape) -> bytes:
    """Return the JSON body of a shape, one that vLLM, LiteLLM and the sidecar take alike."""
    documents = [_text(shape, number) for number in range(shape.documents)]
    model = f"documents-{shape.documents}"
    return orjson.dumps({"model": model, "query": _text(shape, 7)[:60], "documents": documents})


def _text(shape: Shape, number: int) -> str:
    words = _PROSE[shape.language].split()
    turned = words[number % len(words) :] + words[: number % len(words)]
    line = f"{number} " + " ".join(turned) + " "
    return (line * (shape.characters // len(line) + 1))[: shape.characters]
