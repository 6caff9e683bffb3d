"""The pairs that models are compared and calibrated on: the user's own, or the built-in ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.parity.contrast_texts import CASES

__all__ = ["Lists", "built_in_lists", "read_lists"]

Lists = Mapping[str, Sequence[str]]
"""Documents by query, in the order of the file."""

_MOST_BYTES: Final = 256 * 2**20


def read_lists(path: Path) -> Lists:
    """Read a file of pairs: a line each, query, tab, document, in UTF-8. Raises ConfigError naming the line."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path}: more than {_MOST_BYTES // 2**20} MiB of pairs; a few hundred are enough")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {type(error).__name__}") from None
    lists: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            query, document = _pair(path, number, line)
            lists.setdefault(query, []).append(document)
    if not lists:
        raise ConfigError(f"{path}: no pair is in it; write query, tab, document on a line")
    return lists


def _pair(path: Path, number: int, line: bytes) -> tuple[str, str]:
    try:
        query, tab, document = line.decode("utf-8").partition("\t")
    except UnicodeDecodeError:
        query, tab, document = "", "", ""
    if not tab or not query.strip() or not document.strip():
        raise ConfigError(f"{path}, line {number}: write query, tab, document in UTF-8")
    return query, document


def built_in_lists() -> Lists:
    """Return the built-in queries of `cascade parity`, each with the documents that answer any of them."""
    return {case.query: [other.good for other in CASES] for case in CASES}
