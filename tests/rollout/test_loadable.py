"""What a start would stumble over before it calls a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import Release, parse_release
from cascade.rollout.load import default_release_path, load_release, offline
from cascade.rollout.loadable import check_embedded, not_loadable

from .arrange import stage_data

_BUDGETS = {"total_ms": 100, "small_ms": 40, "large_ms": 60, "reserve_ms": 10}


def _release(**stage: Any) -> Release:
    """Return a release with one stage."""
    stages = {"small": stage_data("small") | stage}
    return parse_release({"release": "r", "stages": stages, "depth": 5, "escalation": "none", "budgets": _BUDGETS})


def _embedded(**weights: Any) -> Release:
    stage = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": weights}
    stages = {"small": stage}
    return parse_release({"release": "r", "stages": stages, "depth": 5, "escalation": "none", "budgets": _BUDGETS})


def test_the_packaged_release_can_be_built() -> None:
    """Its weights are those of the package."""
    assert not_loadable(load_release(default_release_path(), offline({})).release, {}) == []


def test_a_token_that_is_not_set_is_left_out_and_one_that_is_no_token_told() -> None:
    """Variables need not be set."""
    release = _release(auth={"env": "KEY"})
    assert not_loadable(release, {}) == []
    assert not_loadable(release, {"KEY": "x"}) == []
    assert not_loadable(release, {"KEY": ""}) == ["auth: the environment variable KEY holds no usable token"]


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        ({"auth": {"file": "/nowhere/token"}}, "auth: the file /nowhere/token cannot be read: FileNotFoundError"),
        ({"ca_bundle": "/nowhere/ca.pem"}, "ca_bundle /nowhere/ca.pem: cannot be used: FileNotFoundError"),
        ({"serializer": "none@1"}, "none@1"),
    ],
)
def test_what_cannot_be_built_is_told(stage: dict[str, Any], told: str) -> None:
    """In one sentence."""
    (sentence,) = not_loadable(_release(**stage), {})
    assert told in sentence


def test_weights_on_this_machine_are_looked_at_and_those_on_a_hub_are_not(tmp_path: Path) -> None:
    """A folder without a model is told; nothing is fetched unless that is allowed."""
    (sentence,) = not_loadable(_embedded(folder=str(tmp_path)), {})
    assert sentence == f"small: weights: model.onnx is not in {tmp_path}"
    assert not_loadable(_embedded(hub="nobody/nothing", revision="ab" * 20), {}) == []


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the extra that has it."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # what makes an import fail
    with pytest.raises(ConfigError, match=r"embedded stages need onnxruntime; install cascade-rerank\[embedded\]"):
        check_embedded(_embedded(folder=str(tmp_path)), fetch=False)
