"""The alert rules that are shipped speak of metrics that there are, and fire when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.telemetry.every_series import every_series

_FOLDER: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
_DOCS: Final = Path(__file__).parents[2] / "docs"
_SELECTOR: Final = re.compile(r"(cascade_\w+)(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r'(\w+)="([^"]*)"')
_GROUPED: Final = re.compile(r"(?:by|on) \(([^)]*)\)")
_SCRAPED: Final = {"instance", "job"}
"""Labels that Prometheus itself adds."""


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((_FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _series() -> dict[str, dict[str, set[str]]]:
    """Return every series that a process shows: its name, and its labels with their values."""
    seen: dict[str, dict[str, set[str]]] = {}
    for sample in (sample for family in every_series().registry.collect() for sample in family.samples):
        labels = seen.setdefault(sample.name, {})
        for label, value in sample.labels.items():
            labels.setdefault(label, set()).add(value)
    return seen


def _selected() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield alert, metric and matchers of each selector of each rule."""
    for rule in _rules():
        for name, matchers in _SELECTOR.findall(rule["expr"]):
            yield rule["alert"], name, dict(_MATCHER.findall(matchers))


def test_a3_rules_speak_of_metrics_and_labels_that_there_are() -> None:
    """A rule on a name that is gone would never fire, and nobody would know."""
    series = _series()
    selected = list(_selected())
    assert len(selected) > 15
    for alert, name, matchers in selected:
        assert name in series, (alert, name)
        for label, value in matchers.items():
            assert value in series[name][label], (alert, name, label, value)


def test_rules_group_by_and_name_labels_that_there_are() -> None:
    """A label that is not there would be empty in what an operator reads."""
    series = _series()
    for rule in _rules():
        names = [name for name, _ in _SELECTOR.findall(rule["expr"])]
        there = _SCRAPED.union(*(series[name] for name in names))
        grouped = {label for labels in _GROUPED.findall(rule["expr"]) for label in re.split(r",\s*", labels) if label}
        told = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert grouped | told <= there, rule["alert"]


def test_a3_what_has_to_be_told_has_a_rule() -> None:
    """Silent fall-back first; each alert has a name of its own, a severity, and a sentence."""
    rules = _rules()
    of = {rule["alert"]: rule for rule in rules}
    assert len(of) == len(rules)
    assert "cascade_degraded_total" in of["CascadeAnswersDegraded"]["expr"]
    needed = {
        "CascadeAnswersDegraded", "CascadeFallback", "CascadeAnswersLate", "CascadeBreakerOpen",
        "CascadeBreakerFlaps", "CascadeLevelNotNormal", "CascadeSafeMode", "CascadeEvidenceMismatch",
        "CascadeCacheUnreachable", "CascadeCalibrationDrifts", "CascadeRecordsDropped", "CascadeSpansDropped",
        "CascadeStageQueues", "CascadeCertificateEnds",
    }  # fmt: skip
    assert needed <= set(of)
    assert {rule["labels"]["severity"] for rule in rules} == {"info", "warning", "critical"}
    assert all(rule["annotations"]["summary"] for rule in rules)


@pytest.mark.parametrize("name", ["alerts", "rollout-alerts"])
def test_a3_each_alert_is_played_where_it_fires_and_where_it_does_not(name: str) -> None:
    """One that can never fire, or always does, is worse than none."""
    groups = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    tests = yaml.safe_load((_FOLDER / f"{name}_test.yaml").read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == alerts


def test_pages_that_rules_point_at_are_there() -> None:
    """An operator who is woken reads on."""
    pages = set(re.findall(r"docs/([\w.-]+\.md)", (_FOLDER / "alerts.yaml").read_text(encoding="utf-8")))
    assert pages
    assert all((_DOCS / page).is_file() for page in pages)


@pytest.mark.parametrize("name", ["alerts", "rollout-alerts"])
def test_every_alert_has_a_line_in_the_runbook(name: str) -> None:
    """What to look at, and what to do, for each; and none for what does not fire any more."""
    files = ("alerts", "rollout-alerts")
    alerts = {
        each: {
            rule["alert"]
            for group in yaml.safe_load((_FOLDER / f"{each}.yaml").read_text(encoding="utf-8"))["groups"]
            for rule in group["rules"]
        }
        for each in files
    }
    rows = re.findall(
        r"^\| `(Cascade\w+)` \|(.+)\|(.*)\|$", (_DOCS / "runbook.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    told = {alert: look.strip() for alert, look, _ in rows}
    assert all(told.get(alert) for alert in alerts[name])
    assert set(told) == set.union(*alerts.values())


def test_a3_rules_fire_when_they_should() -> None:
    """Prometheus' own tool checks them, and plays the scenarios beside them."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not there (Debian: prometheus)")
    for arguments in (("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")):
        done = subprocess.run([promtool, *arguments], cwd=_FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
