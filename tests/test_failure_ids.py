"""The documentation tells which entries of the public list of failures have tests, and where: here that stays true."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parent
_DOCS: Final = _TESTS.parent / "docs" / "faults.md"
_NAME: Final = re.compile(r"^(?:async )?def test_((?:[a-h]\d+_)+)", re.MULTILINE)
_ROW: Final = re.compile(r"^\| ([A-H]\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
_TO_COME: Final = re.compile(r"owed: issue \d+")


def _tested() -> dict[str, list[str]]:
    """Return the files that have tests of each entry, by the ids in their names."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in _TESTS.rglob("test_*.py"):
        where = path.relative_to(_TESTS).with_suffix("").as_posix()
        for ids in _NAME.findall(path.read_text(encoding="utf-8")):
            for entry in ids.upper().strip("_").split("_"):
                found[entry].add(where.replace("test_", ""))
    return {entry: sorted(files) for entry, files in found.items()}


def test_the_table_of_entries_says_where_each_is_tested() -> None:
    """Each entry has one row, with the files of its tests, or where it is owed; an id that is not in the list is a mistake."""
    rows = _ROW.findall(_DOCS.read_text(encoding="utf-8"))
    assert len({entry for entry, _ in rows}) == len(rows) > 50
    told = {entry: [] if _TO_COME.fullmatch(files) else files.split(", ") for entry, files in rows}
    assert told == {entry: _tested().get(entry, []) for entry in told} | {
        entry: files for entry, files in _tested().items() if entry not in told
    }
