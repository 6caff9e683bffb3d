"""The chart as Helm's own engine renders it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.install import TOOLS
from tests.deploy.templates import DEPLOY

__all__ = ["CHART", "Rendered", "refusals", "rendered", "tool"]

CHART: Final = DEPLOY / "helm" / "cascade"
_DRIVER: Final = Path(__file__).with_name("chart_driver.py")


@dataclass(frozen=True, slots=True)
class Rendered:
    """What values become: documents, notes, and what Helm's linter and Kubernetes' schemas find wrong."""

    documents: list[dict[str, Any]]
    notes: str
    faults: list[str]

    def kinds(self) -> list[str]:
        """Return the kinds of all documents, sorted."""
        return sorted(each["kind"] for each in self.documents)

    def one(self, kind: str, name: str = "demo-cascade") -> dict[str, Any]:
        """Return the document of a kind and a name."""
        (found,) = [each for each in self.documents if each["kind"] == kind and each["metadata"]["name"] == name]
        return found

    def pod(self) -> dict[str, Any]:
        """Return the template of the pods."""
        (found,) = [each for each in self.documents if each["kind"] in {"Deployment", "StatefulSet"}]
        template: dict[str, Any] = found["spec"]["template"]
        return template

    def container(self) -> dict[str, Any]:
        """Return the one container of a pod."""
        (found,) = self.pod()["spec"]["containers"]
        container: dict[str, Any] = found
        return container

    def settings(self) -> str:
        """Return the file of settings that a pod reads."""
        text: str = self.one("ConfigMap")["data"]["settings.yaml"]
        return text


def tool(name: str) -> str:
    """Return a program of the tools' environment, or skip the test."""
    if not TOOLS.marker.exists():
        pytest.skip("Helm's engine and hadolint are not there (scripts/deploy-tools install)")
    return str(TOOLS.bin / name)


def rendered(*values: Mapping[str, Any]) -> list[Rendered]:
    """Render the chart with each of the values; they must be accepted."""
    answers = _asked(values)
    assert [each["refused"] for each in answers if "refused" in each] == []
    return [Rendered(**each) for each in answers]


def refusals(*values: Mapping[str, Any]) -> list[str | None]:
    """Return why each of the values is refused; None where it is not."""
    return [each.get("refused") for each in _asked(values)]


def _asked(values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    asked = json.dumps({"chart": str(CHART), "cases": list(values)})
    done = subprocess.run([tool("python"), str(_DRIVER)], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers
