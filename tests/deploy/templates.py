"""What the shipped templates of Argo Rollouts and Flagger ask, with their arguments filled in."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["DEPLOY", "Condition", "Looked", "argo", "condition", "documents", "flagger", "rules"]

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_GIVEN: Final = {
    "namespace": "search",
    "canary-hash": "66f",
    "stable-hash": "55d",
    "digest": "sha256:new",
}
"""What a Rollout, or who starts an analysis, gives."""
_CANARY: Final = {"namespace": "search", "target": "cascade"}
"""What Flagger fills in: where the Canary is, and what it targets."""
_CONDITION: Final = re.compile(r"len\(result\) > 0 && result\[0\] (<=|>=|==|<|>) (-?\d+(?:\.\d+)?)")
_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """``len(result) > 0 && result[0] OPERATOR BOUND``, of Argo's language of conditions; no other is used."""

    sign: str
    bound: float

    def holds(self, result: Sequence[float]) -> bool:
        """Tell whether it is true of what a query gave."""
        return bool(result) and _OPERATORS[self.sign](result[0], self.bound)


@dataclass(frozen=True, slots=True)
class Looked:
    """One metric of a template: its query, and when it is a success and when a failure."""

    name: str
    query: str
    success: Condition
    failure: Condition
    fields: dict[str, Any]

    def verdict(self, result: Sequence[float]) -> str:
        """Return Argo's phase of a measurement: a failure wins, and neither is inconclusive."""
        if self.failure.holds(result):
            return "failed"
        return "successful" if self.success.holds(result) else "inconclusive"


@cache
def documents(path: str) -> list[dict[str, Any]]:
    """Return the documents of a file under `deploy`."""
    return list(yaml.safe_load_all((DEPLOY / path).read_text(encoding="utf-8")))


def condition(text: str) -> Condition:
    """Read a condition; anything but the one form fails."""
    found = _CONDITION.fullmatch(text)
    assert found is not None, text
    return Condition(found[1], float(found[2]))


def rules(path: str) -> list[dict[str, Any]]:
    """Return the rules of a file of Prometheus' rules."""
    return [rule for group in documents(f"prometheus/{path}")[0]["groups"] for rule in group["rules"]]


@cache
def argo(template: str) -> dict[str, Looked]:
    """Return the metrics of an AnalysisTemplate by name, with its arguments filled in."""
    found = {each["metadata"]["name"]: each["spec"] for each in _templates()}[template]
    arguments = {each["name"]: each["value"] if "value" in each else _GIVEN[each["name"]] for each in found["args"]}
    return {each["name"]: _looked(each, arguments) for each in found["metrics"]}


@cache
def flagger() -> dict[str, tuple[str, dict[str, float]]]:
    """Return the checks of the Canary by name: the query of each, filled in, and the range that passes."""
    templates = {each["metadata"]["name"]: each["spec"]["query"] for each in documents("flagger/metric-templates.yaml")}
    canary = documents("flagger/canary.yaml")[0]
    checks = {}
    for check in canary["spec"]["analysis"]["metrics"]:
        query = templates[check["templateRef"]["name"]]
        for name, value in _CANARY.items():
            query = query.replace("{{ " + name + " }}", value)
        for name, value in check.get("templateVariables", {}).items():
            query = query.replace("{{ variables." + name + " }}", value)
        assert "{{" not in query, query
        checks[check["name"]] = (query, check["thresholdRange"])
    return checks


def _templates() -> Iterator[dict[str, Any]]:
    yield from documents("argo-rollouts/analysis-arms.yaml")
    yield from documents("argo-rollouts/analysis-watch.yaml")


def _looked(metric: dict[str, Any], arguments: dict[str, str]) -> Looked:
    def filled(text: str) -> str:
        text = re.sub(r"\{\{args\.([a-z-]+)\}\}", lambda found: arguments[found[1]], text)
        assert "{{" not in text, text
        return text

    asked = metric["provider"]["prometheus"]
    assert filled(asked["address"]).startswith("http://")
    success, failure = (condition(filled(metric[key])) for key in ("successCondition", "failureCondition"))
    return Looked(metric["name"], filled(asked["query"]), success, failure, metric)
