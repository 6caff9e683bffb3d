"""Find decisions in files of records, with what stands beside them."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from cascade.errors import ConfigError
from cascade.replay.record_files import lines_of

__all__ = ["Found", "by_id", "in_line", "latest"]

_DECISION: Final = "decision"
_SHADOW: Final = "shadow"
_NAMED: Final = re.compile(rb'"(?:decision_id|of)"\s*:\s*("(?:[^"\\]|\\.)*")')
"""The ids that a line names, as they are written. One look at a line finds them, however many are wanted."""


@dataclass(frozen=True, slots=True)
class Found:
    """A decision as its line tells it, its head, and the decision of the shadow beside it, or the one that it shadows."""

    told: dict[str, Any]
    head: dict[str, Any] | None
    pair: dict[str, Any] | None = None
    pair_head: dict[str, Any] | None = None


@dataclass(slots=True)
class _Read:
    """Files that are gone through line by line. Held are the heads, and what the caller keeps."""

    paths: Sequence[Path]
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)

    def decisions(self, holding: Collection[bytes] = ()) -> Iterator[dict[str, Any]]:
        """Yield the decisions whose line names one of some ids, quoted; all without any. Heads are kept."""
        wanted = frozenset(holding)
        for path in self.paths:
            for line in lines_of(path):
                if not wanted or b'"format"' in line or not wanted.isdisjoint(_NAMED.findall(line)):
                    told = _parsed(line)
                    if told is None:
                        continue
                    if told.get("kind") == "head" and isinstance(told.get("id"), str):
                        self.heads[told["id"]] = told
                    elif told.get("kind") == _DECISION and _is_named(told):
                        yield told

    def head_of(self, told: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the head that a decision names, where it was read."""
        return None if told is None else self.heads.get(str(told.get("head")))


def by_id(paths: Sequence[Path], decision_id: str) -> Found:
    """Return the decision of an id. Raises ConfigError where it is not in the files, or they cannot be read."""
    read = _Read(paths)
    told = [one for one in read.decisions([_quoted(decision_id)]) if one.get("decision_id") == decision_id]
    if not told:
        raise ConfigError("records: no decision of that id is in them")
    return _with_pairs(read, told[:1])[0]


def latest(paths: Sequence[Path], count: int) -> list[Found]:
    """Return the latest decisions that answered requests, the last one last; so many are held.

    Raises ConfigError where there is none, or files cannot be read.
    """
    read = _Read(paths)
    kept: list[tuple[str, int, dict[str, Any]]] = []
    for number, told in enumerate(read.decisions()):
        if told.get("arm") != _SHADOW:
            (heapq.heappush if len(kept) < count else heapq.heappushpop)(kept, (str(told.get("time")), number, told))
    if not kept:
        raise ConfigError("records: there is no decided request in them")
    return _with_pairs(read, [told for *_, told in sorted(kept, key=lambda each: each[:2])])


def in_line(lines: bytes) -> Found:
    """Return the one decision in some lines; a head may stand above it. Raises ConfigError."""
    parsed = [_parsed(line) for line in lines.splitlines() if line.strip()]
    told = [one for one in parsed if one is None or one.get("kind") != "head"]
    if len(told) != 1:
        raise ConfigError(f"-: one line is wanted, and {len(told) or 'none'} came")
    if told[0] is None:
        raise ConfigError("-: the line is no JSON object")
    heads = {str(one.get("id")): one for one in parsed if one is not None and one.get("kind") == "head"}
    return Found(told[0], heads.get(str(told[0].get("head"))))


def _with_pairs(read: _Read, told: Sequence[dict[str, Any]]) -> list[Found]:
    """Go through the files once more, for the shadows of these decisions and for what they shadow."""
    wanted = {str(one["of"]) for one in told if one.get("of") is not None}
    shadowed = {str(one.get("decision_id")) for one in told}
    pairs: dict[str, dict[str, Any]] = {}
    for one in read.decisions([_quoted(name) for name in wanted | shadowed]):
        if one.get("decision_id") in wanted:
            pairs[str(one["decision_id"])] = one
        if one.get("of") in shadowed:
            pairs[f"of {one['of']}"] = one
    found = []
    for one in told:
        pair = pairs.get(str(one["of"]) if one.get("of") is not None else f"of {one.get('decision_id')}")
        found.append(Found(one, read.head_of(one), pair, read.head_of(pair)))
    return found


def _is_named(told: dict[str, Any]) -> bool:
    """Tell whether a decision has an id, and where it shadows another, that one's: else it can be found by neither."""
    return isinstance(told.get("decision_id"), str) and isinstance(told.get("of"), str | None)


def _quoted(text: str) -> bytes:
    return orjson.dumps(text)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        told = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return told if isinstance(told, dict) else None
