"""Pairs to calibrate and to compare on."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.errors import ConfigError
from cascade.weights.text_pairs import built_in_lists, read_lists


def test_lines_become_lists_by_query(tmp_path: Path) -> None:
    """In the order of the file; blank lines are none."""
    (tmp_path / "pairs.tsv").write_text("q one\td1\n\nq two\td2\nq one\td3 with\ttab\n", encoding="utf-8")
    assert read_lists(tmp_path / "pairs.tsv") == {"q one": ["d1", "d3 with\ttab"], "q two": ["d2"]}


@pytest.mark.parametrize(
    "line", [b"secret-canary no tab", b"secret-canary\t ", b"\tsecret-canary", b"\xff\tsecret-canary"]
)
def test_a_line_that_is_no_pair_is_named_by_its_number_alone(tmp_path: Path, line: bytes) -> None:
    """Its text stands in no error."""
    (tmp_path / "pairs.tsv").write_bytes(b"q\td\n" + line + b"\n")
    with pytest.raises(ConfigError, match="line 2: write query, tab, document") as caught:
        read_lists(tmp_path / "pairs.tsv")
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_file_without_pairs_is_refused(tmp_path: Path) -> None:
    """And one that is not there."""
    (tmp_path / "pairs.tsv").write_text("\n\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no pair is in it"):
        read_lists(tmp_path / "pairs.tsv")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_lists(tmp_path / "absent.tsv")


def test_the_built_in_lists_are_long_enough_to_compare_orders() -> None:
    """More than ten documents a query."""
    lists = built_in_lists()
    assert len(lists) >= 15
    assert all(len(documents) > 10 for documents in lists.values())
