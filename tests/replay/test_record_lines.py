"""Lines of decision records, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.errors import ConfigError
from cascade.replay.record_lines import Lines, Unread
from cascade.types import StageName
from tests.replay.records import decision_line, head_line, write_records


def _read(path: Path) -> tuple[int, Unread]:
    lines = Lines([path])
    return sum(1 for _ in lines), lines.unread


def test_files_are_read_in_their_order_and_heads_are_kept(tmp_path: Path) -> None:
    """Each decision names a head that has been read by then."""
    first = write_records(tmp_path / "a", [head_line(), decision_line(query_hash="a" * 16)])
    second = write_records(tmp_path / "b", [head_line(id="b" * 16), decision_line(head="b" * 16, query_hash="b" * 16)])
    lines = Lines([second, first])
    assert [line.query_hash for line in lines] == ["b" * 16, "a" * 16]
    assert set(lines.heads) == {"b" * 16, "0" * 16}
    assert lines.unread == Unread()


def test_torn_strange_and_headless_lines_are_counted(tmp_path: Path) -> None:
    """A line cut anywhere, JSON that is no record, and a record of a head that was lost each count as what they are."""
    whole = orjson.dumps(decision_line())
    torn = [whole[:40], whole[len(whole) // 2 :], b"", b'{"kind": "dec']
    strange = [b"[]", b"{}", b'{"kind": "else"}', b"1", orjson.dumps(decision_line(depth=99))]
    headless = orjson.dumps(decision_line(head="f" * 16))
    path = tmp_path / "r"
    path.write_bytes(b"\n".join([orjson.dumps(head_line()), whole, *torn, *strange, headless, whole, whole[:-1]]))
    assert _read(path) == (2, Unread(torn=5, strange=5, headless=1))


@pytest.mark.parametrize(
    "change",
    [
        {"ids": []},
        {"ids": ["not a hash", "a" * 16, "b" * 16]},
        {"small": [1.0]},
        {"small": [1.0, 2.0, "3"]},
        {"small": [1.0, 2.0, float("inf")]},
        {"channels": {"bm25": [1.0]}},
        {"channels": {"b m": [1.0, 2.0, 3.0]}},
        {"channels": {f"c{number}": [1.0, 2.0, 3.0] for number in range(17)}},
        {"depth": 4},
        {"depth": -1},
        {"time": "2026-11-29T00:00:00"},
        {"query_hash": "a query"},
        {"tenant": "a tenant"},
        {"q_class": "new"},
        {"excluded": [-1]},
        {"rounds": [{"stage": "huge", "outcome": "ok", "sent": 1, "elapsed_ms": 1.0}]},
    ],
)
def test_a_line_that_is_not_as_written_is_strange(tmp_path: Path, change: dict[str, Any]) -> None:
    """What another program changed is not used, and not quoted."""
    line = decision_line(**change)
    written = str(line).replace("'", '"').replace("None", "null").replace("inf", "1e999").encode()
    path = tmp_path / "r"
    path.write_bytes(orjson.dumps(head_line()) + b"\n" + written + b"\n")
    assert _read(path) == (0, Unread(strange=1))


def test_records_of_another_version_are_refused(tmp_path: Path) -> None:
    """What a number means there is not known."""
    path = write_records(tmp_path / "r", [head_line(format="cascade-records/9")])
    with pytest.raises(ConfigError, match="another version; cascade-records/1 is read"):
        _read(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The path is named."""
    with pytest.raises(ConfigError, match=r"records .*none: cannot be read: FileNotFoundError"):
        _read(tmp_path / "none")


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200).filter(lambda content: not content.startswith(b"PAR1")))
def test_any_bytes_are_lines_that_say_nothing(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever a file holds, reading it ends, and no line of it is a decision."""
    path = tmp_path_factory.mktemp("any") / "r"
    path.write_bytes(content)
    found, unread = _read(path)
    assert found == 0
    assert unread.torn + unread.strange == len(content.split(b"\n")) - content.endswith(b"\n") - (not content)


@pytest.mark.parametrize(
    ("change", "complete"),
    [
        ({}, True),
        ({"large": [1.0, None, 3.0]}, False),
        ({"small": [1.0, None, 3.0]}, False),
        ({"large": [1.0, None, 3.0], "excluded": [1]}, True),
        ({"large": [1.0, 2.0, None], "depth": 2}, True),
        ({"depth": 0}, False),
    ],
)
def test_a_record_is_complete_where_both_stages_scored_what_they_could(
    tmp_path: Path, change: dict[str, Any], complete: bool
) -> None:
    """Candidates beyond depth and those that a stage left out are not missed."""
    (line,) = Lines([write_records(tmp_path / "r", [head_line(), decision_line(**change)])])
    assert line.is_complete is complete


def test_milliseconds_are_those_of_rounds_that_went_well(tmp_path: Path) -> None:
    """They are added up over rounds and divided by the pairs sent; without such a round there are none."""

    def told(stage: str, outcome: str, sent: int, elapsed_ms: float) -> dict[str, Any]:
        return {"stage": stage, "outcome": outcome, "sent": sent, "elapsed_ms": elapsed_ms}

    rounds = [told("large", "ok", 2, 10.0), told("large", "ok", 3, 5.0), told("large", "stage_timeout", 9, 90.0)]
    (line,) = Lines([write_records(tmp_path / "r", [head_line(), decision_line(rounds=rounds)])])
    assert line.ms_a_pair(StageName.LARGE) == 3.0
    assert line.ms_a_pair(StageName.SMALL) is None


def test_milliseconds_are_of_what_was_sent(tmp_path: Path) -> None:
    """What a cache answered took none, and a round of nothing else says nothing."""
    kept = [
        {"stage": "large", "outcome": "ok", "sent": 5, "elapsed_ms": 6.0, "cached": 3},
        {"stage": "small", "outcome": "ok", "sent": 5, "elapsed_ms": 0.1, "cached": 5},
    ]
    (line,) = Lines([write_records(tmp_path / "r", [head_line(), decision_line(rounds=kept)])])
    assert line.ms_a_pair(StageName.LARGE) == 3.0
    assert line.ms_a_pair(StageName.SMALL) is None
