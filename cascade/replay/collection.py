"""Collections in BEIR's layout: corpus.jsonl, queries.jsonl, and qrels.tsv or qrels/test.tsv."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cascade.errors import ConfigError

__all__ = ["Collection", "load_collection"]

_QRELS: Final = ("qrels.tsv", "qrels/test.tsv")
_QRELS_COLUMNS: Final = 3


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents (title and text joined), queries and graded judgements, by id.

    ``judgements`` is empty where the collection has none. ``digests`` has the SHA-256 of each file read.
    """

    name: str
    documents: Mapping[str, str] = field(repr=False)
    queries: Mapping[str, str] = field(repr=False)
    judgements: Mapping[str, Mapping[str, int]] = field(repr=False)
    digests: Mapping[str, str] = field(default_factory=dict)


def load_collection(folder: Path, qrels: Path | None = None) -> Collection:
    """Read a collection. Judgements are optional unless ``qrels`` names their file.

    Queries without a positive judgement are kept, judgements of unknown queries or documents too. Halves of surrogate
    pairs, which no stage can be sent, become question marks.
    Raises ConfigError naming file and line, never the text.
    """
    if not folder.is_dir():
        raise ConfigError(f"dataset {folder}: there is no such folder")
    digests: dict[str, str] = {}
    documents = dict(_texts(folder / "corpus.jsonl", digests, titled=True))
    queries = dict(_texts(folder / "queries.jsonl", digests, titled=False))
    path = qrels or next((folder / name for name in _QRELS if (folder / name).is_file()), None)
    judgements = {} if path is None else _judgements(path, digests)
    return Collection(folder.resolve().name, documents, queries, judgements, digests)


def _lines(path: Path, digests: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Give each line that is not blank, after where it stands; note the file's digest at the end."""
    digest = hashlib.sha256()
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                digest.update(line)
                if text := line.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n"):
                    yield f"{path}, line {number}", text
    except UnicodeDecodeError:
        raise ConfigError(f"{path}, line {number}: not UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {type(error).__name__}") from None
    digests[path.name] = f"sha256:{digest.hexdigest()}"


def _texts(path: Path, digests: dict[str, str], *, titled: bool) -> Iterator[tuple[str, str]]:
    """Give id and text of each line. Raises ConfigError for a line that is not one, an id twice, or an empty file."""
    seen: set[str] = set()
    for where, line in _lines(path, digests):
        if not line.strip():
            continue
        row = _row(where, line)
        name, text = _id(where, row), row.get("text")
        title = (row.get("title") or "") if titled else ""
        if not isinstance(text, str) or not isinstance(title, str):
            raise ConfigError(f"{where}: text and title are strings, and text must be there")
        if name in seen:
            raise ConfigError(f"{where}: its _id was there before")
        seen.add(name)
        yield name, f"{title} {text}".strip().encode("utf-8", "replace").decode("utf-8")
    if not seen:
        raise ConfigError(f"{path}: empty")


def _row(where: str, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise ConfigError(f"{where}: not JSON") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: not a JSON object")
    return row


def _id(where: str, row: Mapping[str, Any]) -> str:
    value = row.get("_id")
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ConfigError(f"{where}: _id must be there, text and not empty")
    name = str(value)
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise ConfigError(f"{where}: _id is not valid text")
    return name


def _judgements(path: Path, digests: dict[str, str]) -> dict[str, dict[str, int]]:
    """Read query id, document id and grade, split by tabs; a first line with no number for a grade is the header."""
    judgements: dict[str, dict[str, int]] = {}
    first = True
    for where, line in _lines(path, digests):
        fields = line.split("\t")
        header, first = first, False
        if len(fields) != _QRELS_COLUMNS:
            raise ConfigError(f"{where}: query-id, corpus-id and score are wanted, split by tabs")
        grade = _grade(fields[2])
        if grade is None and header:
            continue
        if grade is None:
            raise ConfigError(f"{where}: its score is not a whole number")
        if judgements.setdefault(fields[0], {}).setdefault(fields[1], grade) != grade:
            raise ConfigError(f"{where}: another grade of the pair was there before")
    return judgements


def _grade(written: str) -> int | None:
    try:
        return int(written)
    except ValueError:
        return None
