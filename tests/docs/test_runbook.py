"""The runbook says what to do about everything that the sidecar can say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from cascade.decision import DegradedReason
from cascade.rollout.activation import ActivationStep
from cascade.rollout.history import RolloutState
from tests.docs.pages import ROOT

_RUNBOOK: Final = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
_README: Final = (ROOT / "README.md").read_text(encoding="utf-8")


def _alerts() -> list[str]:
    files: Iterable[Path] = (ROOT / "deploy" / "prometheus").glob("*alerts.yaml")
    return [name for path in files for name in re.findall(r"- alert: (\w+)", path.read_text(encoding="utf-8"))]


def _rows(page: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(_alerts(), id="alerts"),
        pytest.param(list(DegradedReason), id="reasons"),
        pytest.param(list(RolloutState), id="states"),
        pytest.param([step for step in ActivationStep if step is not ActivationStep.SWAP], id="steps"),
    ],
)
def test_each_has_a_row_in_the_runbook(told: list[str]) -> None:
    """A new alert, reason, state or step comes with what to do about it; swapping refuses nothing."""
    assert len(told) > 5
    assert set(told) - _rows(_RUNBOOK) == set()


def test_the_readme_tells_every_reason() -> None:
    """The reference of errors takes its sentences from there."""
    assert set(DegradedReason) - _rows(_README) == set()
