"""Headers of W3C Trace Context: what a caller sent, and what leaves for a server. https://www.w3.org/TR/trace-context/."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Parent", "baggage_of", "parent_of", "traceparent"]

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_MOST_PARENT: Final = 512
_MEMBER: Final = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_MOST_MEMBERS: Final = 32
_MOST_STATE: Final = 512
"""What the standard asks to pass on at least."""
_LONG_MEMBER: Final = 128
"""What is longer leaves first where a state does not fit."""
_MOST_BAGGAGE: Final = 8192
_SAMPLED: Final = 1


@dataclass(frozen=True, slots=True)
class Parent:
    """A caller's span. ``state`` is its ``tracestate``, empty where there is none that can be read."""

    trace_id: int
    span_id: int
    sampled: bool
    state: str = ""


def parent_of(parents: Sequence[str], states: Sequence[str] = ()) -> Parent | None:
    """Return the span that headers name, None where they name none: what cannot be read is as if it were not there."""
    if len(parents) != 1 or len(parents[0]) > _MOST_PARENT:
        return None
    found = _PARENT.fullmatch(parents[0].strip(" \t"))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return Parent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED), _state_of(states))


def _state_of(states: Sequence[str]) -> str:
    members = [stripped for state in states for member in state.split(",") if (stripped := member.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    if len(keys) < len(members) or len(members) > _MOST_MEMBERS or not all(map(_MEMBER.fullmatch, members)):
        return ""
    while len(state := ",".join(members)) > _MOST_STATE:  # as the standard asks, whole members and the last ones first
        members.remove(next((member for member in reversed(members) if len(member) > _LONG_MEMBER), members[-1]))
    return state


def baggage_of(headers: Sequence[str]) -> str:
    """Return a caller's ``baggage`` as it came, empty where it is longer than the standard's 8192 bytes or no header."""
    joined = ",".join(headers)
    is_plain = joined.isascii() and joined.isprintable()
    return joined if is_plain and len(joined) <= _MOST_BAGGAGE else ""


def traceparent(trace_id: int, span_id: int, *, sampled: bool) -> str:
    """Return the header that names a span."""
    return f"00-{trace_id:032x}-{span_id:016x}-{int(sampled):02x}"
