"""Ranks of a stage that orders lists are no scores: nothing is fitted on them, and nothing certified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.fit.calibrate import Asked, calibrate
from cascade.fit.certify.asked import Asked as Certified
from cascade.fit.certify.replays import Family
from cascade.fit.certify.run import Supplied, certify
from cascade.types import ScoreSpace
from tests.fit.planted import ROLES, planted_table


@pytest.mark.parametrize("fields", [{"large_space": ScoreSpace.RANK}, {"small_space": ScoreSpace.RANK}])
def test_a_calibration_of_ranks_is_refused(fields: dict[str, Any]) -> None:
    """By either stage, with the reason."""
    with pytest.raises(ConfigError, match="orders lists gives ranks"):
        calibrate([planted_table(120, seed=1)], Asked(ROLES, k=5, **fields))


@pytest.mark.parametrize("fields", [{"large_space": ScoreSpace.RANK}, {"small_space": ScoreSpace.RANK}])
def test_nothing_is_certified_of_ranks(fields: dict[str, Any], tmp_path: Path) -> None:
    """A static policy, which needs no calibration, neither: always-large is a list that the stage never orders."""
    asked = Certified(ROLES, 0.05, k=5, families=(Family.STATIC,), **fields)
    with pytest.raises(ConfigError, match="orders lists gives ranks"):
        certify([planted_table(120, seed=1)], asked, Supplied(tmp_path / "attempts.jsonl", {}))
    assert not (tmp_path / "attempts.jsonl").exists()
