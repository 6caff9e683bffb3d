"""Read a YAML file that a person wrote, and refuse what they cannot have meant."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import yaml

from cascade.errors import ConfigError

__all__ = ["parse_mapping", "read_mapping"]

_LONGEST_KEY: Final = 200
_DEEPEST: Final = 64
_INTEGER: Final = "tag:yaml.org,2002:int"
_NUMBER: Final = "tag:yaml.org,2002:float"
_OCTAL: Final = re.compile(r"[-+]?0[0-9_]+")
_MOST_BYTES: Final = 2_000_000
"""Plain YAML is read at a few hundred kilobytes a second, and what is nested far slower. A release has a few kilobytes."""


class _StrictLoader(yaml.SafeLoader):
    """Refuse what plain YAML does not need.

    A key given twice: one of the two would be lost. Anchors and aliases: a mapping may then hold itself,
    and a few lines may stand for millions. Tags: they make values that are not plain data. Keys that are very long or
    cannot be printed: errors name keys, and go into logs and onto terminals. Nesting that is deep: each bracket costs as much as
    there are around it. Numbers that YAML reads as others than they look: 050 as 40, and 1:30 as 90.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803 - the scanner's name
        self._refuse_deep(self.flow_level)
        super().fetch_flow_collection_start(TokenClass)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._refuse_deep(self._depth)
        self._depth += 1
        node = self._composed(parent, index)
        self._depth -= 1
        return node

    def _refuse_deep(self, depth: int) -> None:
        if depth >= _DEEPEST:
            line = self.get_mark().line + 1
            raise ConfigError(f"line {line}: nested more than {_DEEPEST} deep")

    def _composed(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        for what, value in (("anchors and aliases", event.anchor), ("tags", getattr(event, "tag", None))):
            if value is not None:
                raise ConfigError(f"line {event.start_mark.line + 1}: {what} are not allowed")
        return super().compose_node(parent, index)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        if ":" in node.value or _OCTAL.fullmatch(node.value):
            raise ConfigError(
                f"line {node.start_mark.line + 1}: write a number in plain digits, without 0 before them or :, and text in quotes"
            )
        if node.tag == _INTEGER:
            return int(self.construct_yaml_int(node))
        return float(self.construct_yaml_float(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and (len(key) > _LONGEST_KEY or not key.isprintable()):
                raise ConfigError(f"line {key_node.start_mark.line + 1}: a key that is too long or cannot be printed")
            if isinstance(key, Hashable) and key in seen:
                raise ConfigError(f"line {key_node.start_mark.line + 1}: {key} is given twice")
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


for _tag in (_INTEGER, _NUMBER):
    _StrictLoader.add_constructor(_tag, _StrictLoader.construct_number)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the one mapping that a file in UTF-8 holds. Raises ConfigError naming the line, never a value."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {type(error).__name__}") from None
    return parse_mapping(data)


def parse_mapping(data: bytes) -> dict[str, Any]:
    """Return the one mapping that a text in UTF-8 holds. Raises ConfigError naming the line, never a value."""
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"has more than {_MOST_BYTES} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot be read: {type(error).__name__}") from None
    try:
        values = yaml.load(text, _StrictLoader)  # noqa: S506  # nosec B506 # a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date or number that is none
        raise ConfigError(f"not valid YAML{_where(error)}") from None
    except ConfigError as error:
        raise ConfigError(str(error)) from None  # here: a traceback has frames for each level of what was nested
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError("the file must hold one mapping")
    return values


def _where(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" at line {mark.line + 1}" if mark is not None else ""
