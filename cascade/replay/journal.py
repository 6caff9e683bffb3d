"""Keep what has been scored so far in an append-only file of JSON lines: ids and scores, never text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import orjson

from cascade.errors import ConfigError
from cascade.replay.columns import FloatArray

__all__ = ["Entry", "Journal"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What was scored for one query.

    ``channels`` and ``scores`` have one number a document, NaN for one that a channel did not find or a
    stage left out. ``ms`` is each stage's time for the round, divided by the pairs sent.
    """

    query: str
    documents: tuple[str, ...]
    channels: Mapping[str, FloatArray]
    scores: Mapping[str, FloatArray]
    ms: Mapping[str, float]

    def left_out(self, scorer: str) -> int:
        """Return how many documents a stage left out."""
        return int(np.isnan(self.scores[scorer]).sum())


class Journal:
    """The entries of a run that may be interrupted at any moment, by query.

    The first line says when the run began and what it depends on. A last line that was torn is dropped, and the query
    is scored again. ``is_new`` tells that there was nothing to go on with. Raises ConfigError for a file
    of another run, or one damaged before its end.
    """

    def __init__(self, path: Path, depends_on: Mapping[str, Any], began: str) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}
        lines, whole = _whole_lines(path)
        self.is_new = not lines
        self.began = began
        if lines:
            self.began = _began(path, lines[0], depends_on)
            for number, line in enumerate(lines[1:], start=2):
                entry = _entry(line)
                if entry is None:
                    raise ConfigError(f"{path}, line {number}: damaged; delete the file to begin again")
                self.entries[entry.query] = entry
        try:
            self._file = path.open("ab")
            self._file.truncate(whole)
            if self.is_new:
                self._write({"began": began, "depends_on": depends_on})
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {type(error).__name__}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, entry: Entry) -> None:
        """Append an entry and hand it to the operating system at once."""
        columns = {
            part: {name: values.tolist() for name, values in getattr(entry, part).items()}
            for part in ("channels", "scores")
        }
        self._write({"query": entry.query, "documents": entry.documents, **columns, "ms": entry.ms})
        self.entries[entry.query] = entry

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self._file.flush()


def _whole_lines(path: Path) -> tuple[list[bytes], int]:
    """Return the lines that were written to their end, and where the last of them ends."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {type(error).__name__}") from None
    whole = written[: written.rfind(b"\n") + 1]
    return whole.splitlines(), len(whole)


def _began(path: Path, line: bytes, depends_on: Mapping[str, Any]) -> str:
    """Return when the run of a journal began. Raises ConfigError where it is not this one."""
    head = _parsed(line)
    began, found = head.get("began"), head.get("depends_on")
    if not isinstance(began, str) or not isinstance(found, dict):
        raise ConfigError(f"{path}: not a journal of this command; delete it to begin again")
    wanted = _parsed(orjson.dumps(dict(depends_on)))
    if other := [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]:
        raise ConfigError(
            f"{path}: was begun with another {', '.join(sorted(other))}; go on as it was begun, or delete it"
        )
    return began


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _entry(line: bytes) -> Entry | None:
    told = _parsed(line)
    try:
        entry = Entry(
            told["query"],
            tuple(told["documents"]),
            {name: np.array(values, dtype=np.float64) for name, values in told["channels"].items()},
            {name: np.array(values, dtype=np.float64) for name, values in told["scores"].items()},
            {name: float(value) for name, value in told["ms"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    sizes = {len(values) for values in (*entry.channels.values(), *entry.scores.values())}
    return entry if sizes == {len(entry.documents)} else None
