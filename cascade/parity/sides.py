"""How the two sides of a comparison are written: a column of a table, a stage of a release, or an endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cascade.errors import ConfigError
from cascade.policy.release import Release, parse_release
from cascade.types import SCORING, StageName

__all__ = ["EndpointSide", "Side", "StageSide", "TableSide", "endpoint_release", "parse_side"]

_ENDPOINT: Final = re.compile(r"(?P<adapter>[a-z]+)\+(?P<url>https?://[^#]*)(?:#(?P<options>.*))?", re.DOTALL)
_FORMS: Final = "write TABLE.parquet#COLUMN, RELEASE.yaml#small, RELEASE.yaml#large or ADAPTER+http://HOST:PORT"
_NAMELESS: Final = frozenset({"tei", "sglang"})
"""Adapters whose requests do not name the model."""


@dataclass(frozen=True, slots=True)
class TableSide:
    """A column of scores in a score table."""

    path: Path
    column: str


@dataclass(frozen=True, slots=True)
class StageSide:
    """A stage of a release: a YAML file, a bundle, or the name of a packaged release."""

    path: Path
    stage: StageName


@dataclass(frozen=True, slots=True)
class EndpointSide:
    """A server at an address; ``options`` are further keys of a stage as a release has them."""

    adapter: str
    url: str
    options: Mapping[str, Any]


Side = TableSide | StageSide | EndpointSide


def parse_side(name: str, written: str) -> Side:
    """Read a side from the command line; ``name`` is REF or CAND. Raises ConfigError.

    An endpoint takes keys of a stage behind ``#``, as in
    ``vllm+http://host:8000#model=BAAI/bge-reranker-v2-m3,max_length=512,auth.env=LARGE_KEY``.
    """
    if found := _ENDPOINT.fullmatch(written):
        return EndpointSide(found["adapter"], found["url"], _options(name, found["options"] or ""))
    path, hash_sign, part = written.rpartition("#")
    if not hash_sign or not path or not part:
        raise ConfigError(f"{name}: {_FORMS}")
    if path.endswith(".parquet"):
        return TableSide(Path(path), part)
    if part not in SCORING:
        raise ConfigError(f"{name}: a release has the stages small and large, not {part}; {_FORMS}")
    return StageSide(Path(path), StageName(part))


def _options(name: str, written: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in filter(None, written.split(",")):
        key, equals, value = part.partition("=")
        first, dot, second = key.partition(".")
        if not equals or not first or (dot and not second):
            raise ConfigError(f"{name}: behind # of an endpoint write key=value, more of them after commas")
        told: Any = int(value) if value.isascii() and value.isdigit() else value
        if dot:
            keys = options.setdefault(first, {})
            if not isinstance(keys, dict):
                raise ConfigError(f"{name}: {first} is given as a whole and by its keys")
            keys[second] = told
        else:
            options[first] = told
    return options


def endpoint_release(name: str, side: EndpointSide) -> Release:
    """Return a release whose large stage is the endpoint. Raises ConfigError naming the key that is wrong."""
    spec = {
        **({"model": "unnamed"} if side.adapter in _NAMELESS else {}),
        "engine": side.adapter,
        **side.options,
        "adapter": side.adapter,
        "url": side.url,
    }
    try:
        return parse_release(
            {
                "release": "parity",
                "stages": {"large": spec},
                "depth": 0,
                "escalation": {"kind": "static", "top_m": 1},
                "budgets": {"total_ms": 1000, "small_ms": 1000, "large_ms": 1000, "reserve_ms": 0},
            }
        )
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
