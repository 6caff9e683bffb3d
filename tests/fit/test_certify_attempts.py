"""The log of attempts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cascade.errors import ConfigError
from cascade.fit.certify.attempts import attempt, delta_of

_ONE, _OTHER = "a" * 64, "b" * 64


def test_what_attempts_spend_sums_to_delta() -> None:
    """The first 61% of it."""
    assert delta_of(0.1, 1) == pytest.approx(0.06079, abs=1e-5)
    assert delta_of(0.1, 2) == pytest.approx(delta_of(0.1, 1) / 4.0)
    assert math.fsum(delta_of(0.1, number) for number in range(1, 20_000)) == pytest.approx(0.1, rel=1e-4)


def test_another_attempt_on_the_same_contract_spends_its_share(tmp_path: Path) -> None:
    """The same again is the same attempt; another contract has a count of its own."""
    log = tmp_path / "attempts.jsonl"
    assert attempt(log, "c1", _ONE, 0.1).number == 1
    second = attempt(log, "c1", _OTHER, 0.1)
    assert (second.number, second.delta) == (2, delta_of(0.1, 2))
    assert attempt(log, "c2", _OTHER, 0.1).number == 1
    assert attempt(log, "c1", _ONE, 0.1).number == 1
    assert attempt(log, "c1", _OTHER, 0.1).number == 2
    assert len(log.read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("nonsense\n", "line 1: not as it was written"),
        ("[" * 100_000 + "\n", "line 1: not as it was written"),
        ('{"format": "cascade-attempt/1"}\n', "line 1: not as it was written"),
        ("[]\n", "line 1: not as it was written"),
        ("\n", "line 1: not as it was written"),
        (
            json.dumps({"format": "cascade-attempt/1", "contract": "c1", "identity": _ONE, "number": 2}) + "\n",
            "line 1: not as it was written",
        ),
        (
            json.dumps({"format": "cascade-attempt/1", "contract": "c1", "identity": _ONE, "number": "1"}) + "\n",
            "line 1: not as it was written",
        ),
        (
            json.dumps({"format": "cascade-attempt/1", "contract": "c1", "identity": _ONE, "number": 1}),
            "line 1: it was cut short",
        ),
    ],
)
def test_a_log_that_is_none_is_refused(tmp_path: Path, written: str, told: str) -> None:
    """Nothing is counted from it, and nothing is added."""
    log = tmp_path / "attempts.jsonl"
    log.write_text(written, encoding="utf-8")
    with pytest.raises(ConfigError, match=told):
        attempt(log, "c1", _OTHER, 0.1)
    assert log.read_text(encoding="utf-8") == written


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A folder is none."""
    with pytest.raises(ConfigError, match="cannot be read and written"):
        attempt(tmp_path, "c1", _ONE, 0.1)


def test_a_log_beyond_all_measure_is_refused(tmp_path: Path) -> None:
    """Nobody tried so often."""
    log = tmp_path / "attempts.jsonl"
    with log.open("wb") as file:
        file.truncate(64 * 2**20 + 2)
    with pytest.raises(ConfigError, match="larger than"):
        attempt(log, "c1", _ONE, 0.1)
