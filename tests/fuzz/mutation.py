"""Make bad input of good: by bytes, and by nodes of JSON, which YAML reads too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

__all__ = ["CANARY", "KEY", "bad_bytes", "bad_json"]

CANARY: Final = "canary-91c7"
"""What stands in values that no error may repeat."""
KEY: Final = "key-2f08"
"""A key that nothing knows: what people sent or wrote for others may be one, so only errors of an operator's files name it."""

_TOKENS: Final[tuple[bytes, ...]] = (
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\r",
    b"\n",
    b"\t",
    b'"',
    b"{",
    b"}",
    b"[" * 3,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"-0",
    b"9" * 40,
    b"9" * 5000,
    b"0x10",
    b"1_000",
    b"&a [*a, *a]",
    b"<<: *a",
    b"!!python/object:os.system x",
    b"!!binary aaaa",
    b"? [a]\n",
    b"2026-13-45",
    b"\\ud800",
    b"-----BEGIN CERTIFICATE-----\n",
    b"-----END CERTIFICATE-----\n",
    b"PAR1",
    CANARY.encode(),
)
_DEEP: Final = 3000


class _Raw(str):
    """JSON as it is to be written."""

    __slots__ = ()


_NODES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    "",
    CANARY,
    "\0",
    "\ud800",
    "\ufeff",
    "x" * 20_000,
    0,
    -1,
    2**31,
    2**63,
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    -1e308,
    5e-324,
    _Raw("NaN"),
    _Raw("Infinity"),
    _Raw("1e999"),
    _Raw("[" * _DEEP + "]" * _DEEP),
    _Raw('{"a":' * _DEEP + "1" + "}" * _DEEP),
    _Raw('{"a": 1, "a": 2}'),
    [],
    {},
    [[]],
    [CANARY] * 40,
    [None],
    [1, CANARY],
    {"": CANARY},
    {KEY: CANARY},
    {"\ud800": 1},
)


@st.composite
def bad_bytes(draw: st.DrawFn, examples: Sequence[bytes]) -> bytes:
    """Give an example with a few pieces cut, doubled, turned or put in; seldom bytes that were never one."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    data = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from((0, 1, 2, 8, 64, 1024))))
        piece = data[start:end]
        match draw(st.sampled_from(("cut", "end", "double", "turn", "token", "byte"))):
            case "cut":
                data = data[:start] + data[end:]
            case "end":
                data = data[:start]
            case "double":
                data = data[:end] + piece * draw(st.sampled_from((1, 2, 50))) + data[end:]
            case "turn":
                data = data[:start] + piece[::-1] + data[end:]
            case "token":
                data = data[:start] + draw(st.sampled_from(_TOKENS)) + data[end:]
            case _:
                data = data[:start] + bytes([draw(st.integers(0, 255))]) + data[start + 1 :]
    return data


@st.composite
def bad_json(draw: st.DrawFn, examples: Sequence[bytes]) -> bytes:
    """Give an example with one or two nodes put in place of others, taken out, renamed or given twice."""
    tree = json.loads(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(1, 2))):
        tree = _changed(draw, tree, draw(st.integers(0, 5)))
    return _written(tree).encode("utf-8", "surrogatepass")


def _changed(draw: st.DrawFn, node: Any, depth: int) -> Any:
    """Return a node with something below it changed, ``depth`` steps down at most."""
    if depth and isinstance(node, dict) and node:
        return _changed_mapping(draw, node, depth)
    if depth and isinstance(node, list) and node:
        return _changed_list(draw, node, depth)
    return draw(st.sampled_from(_NODES))


def _changed_mapping(draw: st.DrawFn, node: dict[str, Any], depth: int) -> dict[str, Any]:
    key = draw(st.sampled_from(sorted(node, key=str)))
    match draw(st.sampled_from(("below", "below", "below", "out", "renamed", "more"))):
        case "below":
            return {**node, key: _changed(draw, node[key], depth - 1)}
        case "out":
            return {name: value for name, value in node.items() if name != key}
        case "renamed":
            return {(KEY if name == key else name): value for name, value in node.items()}
        case _:
            return {**node, KEY: draw(st.sampled_from(_NODES))}


def _changed_list(draw: st.DrawFn, node: list[Any], depth: int) -> list[Any]:
    place = draw(st.integers(0, len(node) - 1))
    match draw(st.sampled_from(("below", "below", "out", "again", "many"))):
        case "below":
            return [*node[:place], _changed(draw, node[place], depth - 1), *node[place + 1 :]]
        case "out":
            return [*node[:place], *node[place + 1 :]]
        case "again":
            return [*node, node[place]]
        case _:
            return [*node, *([node[place]] * 50)]


def _written(node: Any) -> str:
    """Return JSON, with what is none where that was put in."""
    match node:
        case _Raw():
            return str(node)
        case dict():
            return "{" + ", ".join(f"{json.dumps(str(name))}: {_written(value)}" for name, value in node.items()) + "}"
        case list():
            return "[" + ", ".join(map(_written, node)) + "]"
        case _:
            return json.dumps(node)
