"""Outcomes as they come from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.errors import ConfigError
from cascade.replay.logged.outcomes import Outcomes, read_outcomes


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_outcomes_of_several_files_are_one(tmp_path: Path) -> None:
    """A whole number is a reward, other keys and empty lines say nothing, and what is said twice counts once."""
    first = _write(
        tmp_path / "a", '{"decision_id": "1", "reward": 1, "query": "text"}\n\n{"decision_id":"2","reward":0.5}\n'
    )
    second = _write(tmp_path / "b", '{"decision_id": "1", "reward": 1.0}\n')
    assert read_outcomes([first, second]) == Outcomes({"1": 1.0, "2": 0.5}, repeated=1)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "it is no JSON"),
        ("[1]", "Input should be an object"),
        ('{"decision_id": "secret", "reward": null}', "reward: Input should be a valid number"),
        ('{"decision_id": "secret", "reward": true}', "reward: Input should be a valid number"),
        ('{"decision_id": "secret", "reward": NaN}', "reward: Input should be a finite number"),
        ('{"decision_id": "secret"}', "reward: Field required"),
        ('{"decision_id": "", "reward": 1}', "decision_id: String should have at least 1 character"),
        ('{"decision_id": "1", "reward": 2}', "reward: its decision has another one before"),
    ],
)
def test_a_line_that_is_no_outcome_is_named(tmp_path: Path, line: str, told: str) -> None:
    """By file, line and rule, and never by what it holds."""
    path = _write(tmp_path / "a", '{"decision_id": "1", "reward": 1}\n' + line + "\n")
    with pytest.raises(ConfigError) as raised:
        read_outcomes([path])
    assert str(raised.value) == f"outcomes {path}: line 2: {told}"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With what the system said, and no more."""
    with pytest.raises(ConfigError, match="none: cannot be read: FileNotFoundError"):
        read_outcomes([tmp_path / "none"])
