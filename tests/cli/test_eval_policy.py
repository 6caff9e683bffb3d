"""The policies that an evaluation replays, from a release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.cli.eval_policy import policies_of_release, policy_of_release
from cascade.errors import ConfigError
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import NoEscalation, StaticEscalation
from tests.scenario import release_data

_LEVELS: list[dict[str, Any]] = [
    {"name": "normal"},
    {"name": "degraded-1", "escalation": "none"},
    {"name": "degraded-2", "depth": 20, "escalation": {"kind": "static", "top_m": 5}},
    {"name": "degraded-3", "stages": "none"},
]


def _written(folder: Path, **changes: Any) -> Path:
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(release_data(**changes)), encoding="utf-8")
    return path


def test_every_level_of_a_release_is_a_policy_but_one_without_stages(tmp_path: Path) -> None:
    """The first is what the release is as it stands."""
    path = _written(tmp_path, levels=_LEVELS)
    found = policies_of_release(path, None)
    normal, first, second, third = found.levels.values()
    assert [*found.levels] == [level["name"] for level in _LEVELS]
    assert normal is not None
    assert normal.escalation == StaticEscalation(kind="static", top_m=20)
    assert normal == policy_of_release(path, None)
    assert first is not None
    assert (first.escalation, first.depth) == (NoEscalation(), FixedDepth(depth=50))
    assert second is not None
    assert (second.escalation, second.depth) == (StaticEscalation(kind="static", top_m=5), FixedDepth(depth=20))
    assert second.described == normal.described
    assert third is None
    assert found.deadline_ms == 100.0


def test_a_release_without_levels_has_one_policy(tmp_path: Path) -> None:
    """It is called normal."""
    assert [*policies_of_release(_written(tmp_path), None).levels] == ["normal"]


def test_a_release_that_observes_is_not_replayed_as_if_it_decided(tmp_path: Path) -> None:
    """It serves always-large, whatever its rules would do."""
    with pytest.raises(ConfigError, match="in mode observe it serves always-large"):
        policies_of_release(_written(tmp_path, mode="observe"), None)


def test_a_release_without_a_small_stage_cannot_be_replayed(tmp_path: Path) -> None:
    """Nor can one that asks no stage at all."""
    large = release_data()["stages"]["large"]
    path = _written(tmp_path, stages={"large": large})
    with pytest.raises(ConfigError, match="it has no small stage, and a replay is of a small and a large one"):
        policies_of_release(path, None)
    path = _written(tmp_path, stages={}, escalation="none")
    with pytest.raises(ConfigError, match="it asks no stage, so there is nothing to replay"):
        policy_of_release(path, None)
