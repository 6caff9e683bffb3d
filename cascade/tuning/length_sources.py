"""Read the lengths of a user's pairs: from a file of lengths, a score table, decision records, or pairs of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.replay.record_lines import Lines
from cascade.replay.table import read_table
from cascade.tokens import PAIR_OVERHEAD_TOKENS
from cascade.tuning.lengths import LengthSamples

__all__ = ["lengths_of_file", "lengths_of_pairs", "lengths_of_records", "lengths_of_table", "read_pairs"]

_MOST_TOKENS: Final = 1_000_000
_LARGEST: Final = 256 * 2**20
"""Bytes of a file of lengths or pairs."""


def lengths_of_file(path: Path, seed: int) -> LengthSamples:
    """Read lines of two whole numbers, the tokens of a query and of the whole pair; ``#`` begins a remark.

    Raises ConfigError naming the line.
    """

    def pairs() -> Iterator[tuple[int, int]]:
        for number, line in _lines(path, "lengths"):
            words = line.partition("#")[0].replace(",", " ").split()
            if not words:
                continue
            if len(words) != 2 or not all(word.isascii() and word.isdecimal() and len(word) < 9 for word in words):
                raise ConfigError(f"lengths {path}: line {number}: write two whole numbers, of a query and of its pair")
            query, pair = map(int, words)
            if not 1 <= query < pair <= _MOST_TOKENS:
                raise ConfigError(
                    f"lengths {path}: line {number}: a pair has more tokens than its query, and that at least one"
                )
            yield query, pair

    return LengthSamples.of(f"lengths {path.name}", pairs(), seed)


def lengths_of_table(path: Path, seed: int) -> LengthSamples:
    """Read the columns ``q_tokens`` and ``tokens`` of a score table. Raises ConfigError where one is not there."""
    table = read_table(path)
    if absent := [name for name in ("q_tokens", "tokens") if name not in table.attributes]:
        raise ConfigError(f"table {path}: it has no column {' and no column '.join(absent)}")
    columns = (table.attributes["q_tokens"], table.attributes["tokens"])
    told = (each for each in zip(*columns, strict=True) if None not in each)
    pairs = ((int(query), int(pair)) for query, pair in told if pair > query > 0)
    return LengthSamples.of(f"table {path.name}", pairs, seed)


def lengths_of_records(places: Sequence[Path], seed: int) -> LengthSamples:
    """Read decision records: files, or folders of them. Raises ConfigError where there is none."""
    files = [file for place in places for file in (_files(place) if place.is_dir() else [place])]

    def pairs() -> Iterator[tuple[int, int]]:
        for line in Lines(files):
            yield from ((line.q_tokens, pair) for pair in line.tokens if pair > line.q_tokens > 0)

    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return LengthSamples.of(f"records {places[0].name}{more}", pairs(), seed)


def _files(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    if not found:
        raise ConfigError(f"records {folder}: there is no file in it")
    return found


def read_pairs(path: Path) -> dict[str, list[str]]:
    """Read lines of a query, a tab and a document; return documents by query. Raises ConfigError naming the line.

    An error never quotes text.
    """
    found: dict[str, list[str]] = {}
    for number, line in _lines(path, "pairs"):
        if not line.strip():
            continue
        query, tab, document = line.partition("\t")
        if not tab or not query.strip() or not document.strip():
            raise ConfigError(f"pairs {path}: line {number}: write a query, a tab and a document")
        found.setdefault(query, []).append(document)
    if not found:
        raise ConfigError(f"pairs {path}: there is no line in it")
    return found


def lengths_of_pairs(path: Path, pairs: dict[str, list[str]], count: Callable[[str], int], seed: int) -> LengthSamples:
    """Count pairs of text with ``count``, which gives the tokens of a text without special ones."""

    def counted() -> Iterator[tuple[int, int]]:
        for query, documents in pairs.items():
            tokens = max(1, count(query))
            yield from ((tokens, tokens + max(1, count(document)) + PAIR_OVERHEAD_TOKENS) for document in documents)

    return LengthSamples.of(f"pairs {path.name}", counted(), seed)


def _lines(path: Path, what: str) -> Iterator[tuple[int, str]]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigError(f"{what} {path}: larger than {_LARGEST} bytes")
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{what} {path}: cannot be read: {type(error).__name__}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{what} {path}: it is not UTF-8") from None
