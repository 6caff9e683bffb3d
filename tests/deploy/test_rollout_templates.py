"""The rollout templates that are shipped speak of metrics that there are, and are put together as they should."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.policy.rollout_rules import RolloutRules
from cascade.server.settings import Settings
from tests.deploy.every_rollout_series import every_rollout_series
from tests.deploy.spoken_of import unknown
from tests.deploy.templates import DEPLOY, argo, condition, documents, flagger, rules

_TEMPLATES = ("cascade-arms", "cascade-watch", "cascade-one-revision")
_SHARES = ("late", "slow", "errors", "faults", "fallback", "escalation", "cost")
_SECONDS = "cascade_arm_duration_seconds_bucket"
_DOCS = DEPLOY.parent / "docs"


def _recorded() -> dict[str, dict[str, set[str]]]:
    """Return what the recording rules make, in the form of the series of a process."""
    slow = {f"slow-{bound}" for bound in every_rollout_series()[_SECONDS]["le"]}
    shares = slow | {rule["labels"]["guardrail"] for rule in rules("rollout-rules.yaml") if "labels" in rule}
    return {
        rule["record"]: {"namespace": set(), "replicaset": set(), "guardrail": shares}
        for rule in rules("rollout-rules.yaml")
    }


def _expressions() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield each expression that is shipped: whose it is, itself, and the labels that it makes."""
    for rule in rules("rollout-rules.yaml"):
        yield f"rule {rule['record']} {rule.get('labels', '')}", rule["expr"], frozenset({"replicaset", "guardrail"})
    for rule in rules("rollout-alerts.yaml"):
        yield f"alert {rule['alert']}", rule["expr"], frozenset()
    for template in _TEMPLATES:
        for name, looked in argo(template).items():
            yield f"argo {template} {name}", looked.query, frozenset()
    for name, (query, _) in flagger().items():
        yield f"flagger {name}", query, frozenset()


def test_queries_parse_and_speak_of_metrics_and_labels_that_there_are() -> None:
    """A query on a name that is gone finds nothing, and a rollout would wait for ever."""
    series = every_rollout_series() | _recorded()
    expressions = list(_expressions())
    assert len(expressions) > 25
    assert {whose: missing for whose, text, made in expressions if (missing := unknown(text, series, made))} == {}


def test_a_metric_that_is_renamed_is_missed() -> None:
    """Each name that the templates rest on, taken out of what a process shows, is told of."""
    series = every_rollout_series()
    used = {name for _, text, _ in _expressions() for name in re.findall(r"\bcascade_\w+", text)}
    assert used >= {
        "cascade_arm_requests_total", "cascade_arm_late_total", "cascade_arm_degraded_total", "cascade_guardrail",
        "cascade_arm_large_pairs_total", "cascade_arm_candidates_total", "cascade_release_info", "cascade_safe_mode",
        "cascade_pairs_total", "cascade_internal_faults_total", "cascade_shadow_total", "cascade_activations_total",
        "cascade_rollout_step", "cascade_arm_duration_seconds_count", _SECONDS,
    }  # fmt: skip
    for gone in used:
        rest = {name: labels for name, labels in series.items() if name != gone} | _recorded()
        assert [text for _, text, made in _expressions() if f"metric {gone}" in unknown(text, rest, made)], gone


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ('cascade_guardrail{name="late"}', []),
        ("cascade_guard_rail", ["metric cascade_guard_rail"]),
        ('cascade_guardrail{guard="late"}', ['cascade_guardrail: guard="late"']),
        ('cascade_arm_late_total{arm="shadow"}', ['cascade_arm_late_total: arm="shadow"']),
        ('cascade_activations_total{outcome!~"swapped|gone"}', ['cascade_activations_total: outcome!~"swapped|gone"']),
        ("sum by (arms) (cascade_arm_late_total)", ["label arms"]),
        ("cascade_rollout_step and on (pods) cascade_safe_mode", ["label pods"]),
    ],
)
def test_what_is_not_there_is_told(text: str, missing: list[str]) -> None:
    """A name, a label, a value of a closed list, and a label of a grouping are each looked for."""
    assert unknown(text, every_rollout_series()) == missing


def test_a_query_that_does_not_parse_is_told() -> None:
    """Half an expression is no expression."""
    with pytest.raises(ValueError, match="parenthesis"):
        unknown("sum(cascade_safe_mode", every_rollout_series())


@pytest.mark.parametrize("template", _TEMPLATES)
def test_every_metric_has_three_outcomes(template: str) -> None:
    """Nothing found and NaN are inconclusive, never a success; success and failure exclude one another."""
    for looked in argo(template).values():
        assert looked.verdict([]) == looked.verdict([math.nan]) == "inconclusive", looked.name
        bounds = {looked.success.bound, looked.failure.bound}
        results = [value + step for value in bounds for step in (-0.5, 0.0, 0.5)]
        assert {looked.verdict([value]) for value in results} == {"successful", "failed", "inconclusive"}, looked.name
        assert not [v for v in results if looked.success.holds([v]) and looked.failure.holds([v])], looked.name


@pytest.mark.parametrize(
    ("metric", "result", "verdict"),
    [
        ("late", -3.5, "successful"),
        ("late", -3.4, "inconclusive"),
        ("late", 3.4, "inconclusive"),
        ("late", 3.5, "failed"),
        ("late", -math.inf, "successful"),
        ("one-release", 1, "successful"),
        ("one-release", 2, "failed"),
        ("one-release", 0, "inconclusive"),
        ("safe-mode", 0, "successful"),
        ("safe-mode", 1, "failed"),
    ],
)
def test_outcomes_of_arms(metric: str, result: float, verdict: str) -> None:
    """What is not shown to be within the limit, or beyond it, is neither."""
    assert argo("cascade-arms")[metric].verdict([result]) == verdict


@pytest.mark.parametrize("text", ["result[0] <= 1", "len(result) > 0 || result[0] <= 1", "isNaN(result[0])", "false"])
def test_no_other_form_of_condition_is_used(text: str) -> None:
    """Each condition looks first whether there is a result: an index beyond it is an error, and errors abort."""
    with pytest.raises(AssertionError):
        condition(text)


def test_looks_without_evidence_never_add_up_to_a_success() -> None:
    """Argo calls a metric successful when its count is reached, unless inconclusive looks are above their limit."""
    for looked in argo("cascade-arms").values():
        fields = looked.fields
        assert fields["inconclusiveLimit"] == fields["count"] - 1, looked.name
        assert fields["failureLimit"] == 0, looked.name
        assert fields["initialDelay"] == "12m", looked.name
    for looked in argo("cascade-watch").values():
        assert "count" not in looked.fields
        assert (looked.fields["consecutiveSuccessLimit"], looked.fields["failureLimit"]) == (1, 0)
    assert argo("cascade-one-revision")["revisions"].fields["inconclusiveLimit"] == 0


def test_limits_and_prices_are_those_of_a_release() -> None:
    """A fleet is held to what one sidecar is held to."""
    rules_of = RolloutRules()
    limits = rules_of.guardrails.model_dump(include={"late", "errors", "fallback", "escalation", "cost"})
    limits |= {"faults": rules_of.guardrails.errors, "slow": rules_of.guardrails.late}
    template = documents("argo-rollouts/analysis-arms.yaml")[0]
    given = {each["name"]: each.get("value") for each in template["spec"]["args"]}
    assert {name: float(given[name]) for name in limits} == limits
    assert int(given["min-requests"]) == rules_of.min_queries
    canary = documents("flagger/canary.yaml")[0]["spec"]["analysis"]["metrics"]
    variables = {check["name"]: check["templateVariables"] for check in canary if "templateVariables" in check}
    assert {name: float(of["limit"]) for name, of in variables.items()} == limits
    assert {of["requests"] for of in variables.values()} == {given["min-requests"]}
    cost = next(rule for rule in rules("rollout-rules.yaml") if rule.get("labels") == {"guardrail": "cost"})["expr"]
    small, large = rules_of.prices.small, rules_of.prices.large
    assert all(part in cost for part in (f"{small} * sum", f"{large} * sum", f"({small} + {large}) * sum"))


def test_every_guardrail_of_arms_is_asked_of_both() -> None:
    """Argo's metrics and Flagger's checks are the same, and each share has a rule that records it."""
    assert list(argo("cascade-arms")) == list(flagger()) == [*_SHARES, "one-release", "safe-mode"]
    shares = [rule for rule in rules("rollout-rules.yaml") if rule["record"] == "cascade:guarded:increase10m"]
    assert [rule.get("labels", {"guardrail": "slow"})["guardrail"] for rule in shares] == list(_SHARES)


def test_slow_is_a_bucket_that_is_exported_next_above_the_time_of_the_release_for_servers() -> None:
    """By the very text of its label: another one finds nothing, and a rollout would wait for an operator."""
    (given,) = (
        each
        for each in documents("argo-rollouts/analysis-arms.yaml")[0]["spec"]["args"]
        if each["name"] == "slow-seconds"
    )
    exported = every_rollout_series()[_SECONDS]["le"]
    policy = yaml.safe_load((DEPLOY.parent / "policies" / "tei-vllm.yaml").read_text(encoding="utf-8"))
    total_s = policy["budgets"]["total_ms"] / 1000
    assert given["value"] == min((le for le in exported if float(le) >= total_s), key=float)
    checks = documents("flagger/canary.yaml")[0]["spec"]["analysis"]["metrics"]
    (slow,) = (each["templateVariables"]["guardrail"] for each in checks if each["name"] == "slow")
    assert slow == f"slow-{given['value']}"


def test_the_rollout_goes_by_the_default_steps_and_gives_each_argument() -> None:
    """1, 5, 25, then all; an argument without a default that is not given would end each analysis in an error."""
    rollout = next(each for each in documents("argo-rollouts/rollout.yaml") if each["kind"] == "Rollout")
    steps: list[dict[str, Any]] = rollout["spec"]["strategy"]["canary"]["steps"]
    percents = RolloutRules().steps
    assert [step["setWeight"] for step in steps[::2]] == [*percents[:-1]]
    needed = {
        each["name"] for each in documents("argo-rollouts/analysis-arms.yaml")[0]["spec"]["args"] if len(each) == 1
    }
    for step in steps[1::2]:
        assert [each["templateName"] for each in step["analysis"]["templates"]] == ["cascade-arms"]
        assert {each["name"] for each in step["analysis"]["args"]} == needed
    assert documents("flagger/canary.yaml")[0]["spec"]["analysis"]["stepWeights"] == [*percents[:-1]]


def test_the_example_pod_sets_settings_that_there_are() -> None:
    """Its variables are read as settings, its ports are the defaults, and it ends before it is killed."""
    rollout = next(each for each in documents("argo-rollouts/rollout.yaml") if each["kind"] == "Rollout")
    pod = rollout["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {each["name"].removeprefix("CASCADE__").lower(): each["value"] for each in container["env"]}
    settings = Settings.model_validate(given)
    assert not settings.watch_release
    assert settings.release == Path("/etc/cascade/release.yaml")
    assert [port["containerPort"] for port in container["ports"]] == [settings.port, settings.admin_port]
    assert pod["terminationGracePeriodSeconds"] > settings.drain_seconds + settings.leftover_seconds


def test_flagger_looks_less_often_than_the_window_is_long() -> None:
    """Else a step would be judged by the traffic of the step before."""
    analysis = documents("flagger/canary.yaml")[0]["spec"]["analysis"]
    windows = {int(each) for rule in rules("rollout-rules.yaml") for each in re.findall(r"\[(\d+)m\]", rule["expr"])}
    assert windows == {10}
    assert int(analysis["interval"].removesuffix("m")) > 10


def test_h1_alerts_tell_what_has_to_be_told_and_point_at_pages_that_are_there() -> None:
    """More than one revision for too long, a candidate taken back, a refusal, a shadow without a sample, a state not kept."""
    alerts = {rule["alert"]: rule for rule in rules("rollout-alerts.yaml")}
    assert set(alerts) == {
        "CascadeRevisionsDiffer", "CascadeCandidateTakenBack", "CascadeActivationRefused", "CascadeRolloutHolds",
        "CascadeShadowDrops", "CascadeRolloutStateNotKept", "CascadeStartPassedOver",
        "CascadeDesiredUnusable",
    }  # fmt: skip
    assert all(alert["annotations"]["summary"] for alert in alerts.values())
    files = [path for path in DEPLOY.rglob("*.yaml") if path.parent.name != "prometheus" or "rollout" in path.name]
    pages = {page for path in files for page in re.findall(r"docs/([\w.-]+\.md)", path.read_text(encoding="utf-8"))}
    assert pages
    assert all((_DOCS / page).is_file() for page in pages)


def test_h1_a_changed_release_is_a_changed_pod(tmp_path: Path) -> None:
    """The ConfigMap's name carries the checksum of the release, and the Rollout mounts it by that name."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not there")
    mounted: list[str] = []
    for release in ("release: one", "release: two"):
        folder = tmp_path / release.removeprefix("release: ")
        shutil.copytree(DEPLOY / "argo-rollouts", folder)
        (folder / "release.yaml").write_text(release, encoding="utf-8")
        done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = set(re.findall(r"cascade-release-\w+", done.stdout))
        assert len(found) == 1
        assert done.stdout.count(found.copy().pop()) == 2
        mounted += found
    assert mounted[0] != mounted[1]
