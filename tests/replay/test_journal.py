"""The journal of a run that may be interrupted at any moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import ConfigError
from cascade.replay.journal import Entry, Journal

_HEAD = {"corpus": "sha256:1", "depth": 50, "scorers": {"small": {"model": "m"}}}
_BEGAN = "2026-11-29T12:00:00+00:00"


def _entry(query: str, score: float = 0.1) -> Entry:
    scores = {"small": np.array([score, np.nan])}
    return Entry(query, ("a", "b"), {"bm25": np.array([2.0, 1.0])}, scores, {"small": 1.5})


def _written(path: Path, *entries: Entry) -> bytes:
    with Journal(path, _HEAD, _BEGAN) as journal:
        for entry in entries:
            journal.add(entry)
    return path.read_bytes()


def test_what_was_added_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    """Every number comes back to the last bit, and a missing one as NaN."""
    path = tmp_path / "j"
    _written(path, _entry("q1", 0.1 + 0.2), _entry("q2"))
    with Journal(path, _HEAD, _BEGAN) as journal:
        assert list(journal.entries) == ["q1", "q2"]
        found = journal.entries["q1"]
    assert (found.query, found.documents, found.ms) == ("q1", ("a", "b"), {"small": 1.5})
    assert found.channels["bm25"].tolist() == [2.0, 1.0]
    assert np.array_equal(found.scores["small"], [0.1 + 0.2, np.nan], equal_nan=True)
    assert found.left_out("small") == 1


def test_a_run_began_when_its_journal_did(tmp_path: Path) -> None:
    """However often it was interrupted, the first beginning is told."""
    with Journal(tmp_path / "j", _HEAD, _BEGAN) as journal:
        assert journal.is_new
    with Journal(tmp_path / "j", _HEAD, "later") as journal:
        assert (journal.began, journal.is_new) == (_BEGAN, False)


def test_an_entry_is_on_disk_as_soon_as_it_is_added(tmp_path: Path) -> None:
    """A process that is killed between two queries loses neither."""
    path = tmp_path / "j"
    with Journal(path, _HEAD, _BEGAN) as journal:
        journal.add(_entry("q1"))
        assert path.read_bytes().count(b"\n") == 2


@given(st.data())
def test_a_torn_tail_costs_the_torn_entry_only(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Cut anywhere, the entries that were whole stay, and what is added afterwards is whole."""
    path = tmp_path_factory.mktemp("journal") / "j"
    written = _written(path, _entry("q1"), _entry("q2"), _entry("q3"))
    cut = data.draw(st.integers(0, len(written)))
    path.write_bytes(written[:cut])
    kept = max(0, written[:cut].count(b"\n") - 1)
    with Journal(path, _HEAD, _BEGAN) as journal:
        assert list(journal.entries) == ["q1", "q2", "q3"][:kept]
        journal.add(_entry("q4"))
    with Journal(path, _HEAD, _BEGAN) as journal:
        assert list(journal.entries) == [*["q1", "q2", "q3"][:kept], "q4"]


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    """What differs is named, and the file stays as it is."""
    path = tmp_path / "j"
    written = _written(path, _entry("q1"))
    with pytest.raises(ConfigError) as raised:
        Journal(path, {**_HEAD, "depth": 100, "scorers": {}, "dense": True}, _BEGAN)
    assert str(raised.value) == (
        f"{path}: was begun with another dense, depth, scorers; go on as it was begun, or delete it"
    )
    assert path.read_bytes() == written


@pytest.mark.parametrize("head", [b"{}\n", b'{"depends_on":{}}\n', b"[1]\n", b"not JSON\n"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, head: bytes) -> None:
    """Nothing is appended to a file that is no journal."""
    path = tmp_path / "j"
    path.write_bytes(head)
    with pytest.raises(ConfigError, match=r"not a journal of this command; delete it to begin again$"):
        Journal(path, _HEAD, _BEGAN)
    assert path.read_bytes() == head


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"{}",
        b'{"query":"q","documents":["a"],"channels":{},"scores":{"small":[1,2]},"ms":{}}',
        b'{"query":"q","documents":["a"],"channels":{},"scores":{"small":["x"]},"ms":{}}',
        b'{"query":"q","documents":["a"],"channels":[],"scores":{"small":[1]},"ms":{}}',
        b'{"query":"q","documents":["a"],"channels":{},"scores":{"small":[1]},"ms":{"small":null}}',
    ],
)
def test_damage_before_the_end_is_refused_by_line(tmp_path: Path, line: bytes) -> None:
    """What no interruption explains is not passed over."""
    path = tmp_path / "j"
    path.write_bytes(_written(path, _entry("q1")) + line + b"\n")
    with pytest.raises(ConfigError, match=r"j, line 3: damaged; delete the file to begin again$"):
        Journal(path, _HEAD, _BEGAN)


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """A folder in its place, or none around it, is one sentence."""
    with pytest.raises(ConfigError, match=r"cannot be read: IsADirectoryError$"):
        Journal(tmp_path, _HEAD, _BEGAN)
    with pytest.raises(ConfigError, match=r"cannot be written: FileNotFoundError$"):
        Journal(tmp_path / "no" / "j", _HEAD, _BEGAN)
