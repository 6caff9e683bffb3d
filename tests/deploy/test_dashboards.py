"""Grafana's dashboards: they read, they are drawn of what a sidecar really shows, and nothing in them is hidden."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cascade.telemetry.metrics import Metrics
from tests.deploy.chart import rendered
from tests.deploy.played import checked, promtool
from tests.deploy.spoken_of import unknown
from tests.deploy.templates import DEPLOY
from tests.deploy.watched_sidecar import scrapes

_FOLDER: Final = DEPLOY / "grafana" / "dashboards"
_CHART: Final = DEPLOY / "helm" / "cascade" / "dashboards"
_NAMES: Final = ("overview", "stages", "ranking", "gpu")
_CHOSEN: Final = {
    "$__rate_interval": "5m",
    "$instance": "a",
    "$release": "watched-1",
    "$host": "h",
    "$gpu": "0",
}
"""What Grafana puts in for a person who chose one process and one GPU."""
_DCGM: Final = {
    f"DCGM_FI_DEV_{name}": {"Hostname": {"h"}, "gpu": {"0"}}
    for name in (
        "FB_FREE", "FB_USED", "GPU_TEMP", "GPU_UTIL", "MEM_COPY_UTIL", "POWER_USAGE", "SM_CLOCK", "XID_ERRORS",
    )
}  # fmt: skip
"""What NVIDIA's exporter shows by default (its file default-counters.csv), with the labels that it adds."""
_WHILE_TRIED: Final = {"cascade_guardrail": {"name": {"late"}}}
"""What is there only while a release is tried."""
_UNITS: Final = {"bytes", "celsius", "cps", "mbytes", "percent", "percentunit", "reqps", "s", "short", "watt"}


def _dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _drawn(name: str) -> list[dict[str, Any]]:
    return [panel for panel in _dashboard(name)["panels"] if panel["type"] != "row"]


def _expressions() -> Iterator[tuple[str, str]]:
    """Yield where it stands and the expression of each target, as Grafana would send it."""
    for name in _NAMES:
        for panel in _drawn(name):
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in _CHOSEN.items():
                    expression = expression.replace(variable, value)
                yield f"{name}: {panel['title']}", expression


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Scrape a sidecar before and after a little traffic."""
    return asyncio.run(scrapes(tmp_path_factory.mktemp("watched")))


def _series(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, dict(sample.labels), sample.value


@pytest.mark.parametrize("name", _NAMES)
def test_a_dashboard_is_one_that_grafana_reads(name: str) -> None:
    """It has a schema, an id of its own, a data source to choose, and panels that are told apart and do not overlap."""
    board = _dashboard(name)
    assert (board["schemaVersion"], board["uid"]) == (39, f"cascade-{name}")
    source, *others = board["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert {"release", "instance"} <= {variable["name"] for variable in others}
    ids = [panel["id"] for panel in board["panels"]]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(at["x"] >= 0 and at["x"] + at["w"] <= 24 and at["h"] > 0 for at in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or apart, (one, other)


@pytest.mark.parametrize("name", _NAMES)
def test_every_panel_says_what_it_shows_and_in_which_unit(name: str) -> None:
    """A legend for each series, and all from the data source that was chosen."""
    for panel in _drawn(name):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in _UNITS
        assert panel["targets"]
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(set(legends)) == len(legends)
        assert all(legends)
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_the_chart_has_the_same_dashboards() -> None:
    """A chart packs what is in its own folder alone."""
    assert {path.name for path in _FOLDER.iterdir()} == {f"{name}.json" for name in _NAMES}
    assert {path.name: path.read_bytes() for path in _CHART.iterdir()} == {
        path.name: path.read_bytes() for path in _FOLDER.iterdir()
    }


def test_the_chart_gives_them_to_grafana_as_config_maps() -> None:
    """Each as it is in the repository, legends and all, under the label that the sidecar of Grafana's chart looks for."""
    (given,) = rendered({"dashboards": {"enabled": True, "annotations": {"grafana_folder": "cascade"}}})
    assert given.faults == []
    for name in _NAMES:
        found = given.one("ConfigMap", f"demo-cascade-{name}")
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert found["metadata"]["annotations"] == {"grafana_folder": "cascade"}
        text = (_FOLDER / f"{name}.json").read_text(encoding="utf-8")
        assert {key: value.strip() for key, value in found["data"].items()} == {f"cascade-{name}.json": text.strip()}


def test_variables_are_all_that_expressions_ask_for() -> None:
    """One that is not there would be sent to Prometheus as it stands."""
    for name in _NAMES:
        board = _dashboard(name)
        known = {f"${variable['name']}" for variable in board["templating"]["list"]} | {"$__rate_interval"}
        asked = set(re.findall(r"\$\w+", json.dumps([panel.get("targets", []) for panel in board["panels"]])))
        asked |= set(re.findall(r"\$\w+", json.dumps([v["query"] for v in board["templating"]["list"]])))
        assert asked <= known, name


@pytest.mark.parametrize("name", _NAMES)
def test_all_of_a_variable_are_those_that_its_query_finds(name: str) -> None:
    """A value of its own for All would stand for every process, also where one release is chosen."""
    variables = {one["name"]: one for one in _dashboard(name)["templating"]["list"] if one["type"] == "query"}
    assert 'release=~"$release"' in variables["instance"]["query"]["query"]
    assert all(one["includeAll"] and one.get("allValue") is None for one in variables.values())


def test_expressions_are_what_prometheus_takes(tmp_path: Path) -> None:
    """Prometheus' own tool reads each, as a rule."""
    rules = [{"record": f"panel:{number}", "expr": text} for number, (_, text) in enumerate(_expressions())]
    assert len(rules) > 100
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    checked(promtool(), "check", "rules", str(path))


def test_every_metric_and_label_that_is_drawn_is_shown_by_a_sidecar(scraped: tuple[str, str]) -> None:
    """Under a little traffic: names, labels and their values; of the GPUs what NVIDIA's exporter shows."""
    shown: dict[str, dict[str, set[str]]] = {}
    for name, labels, _ in _series(scraped[1]):
        of = shown.setdefault(name, {})
        for label, value in labels.items():
            of.setdefault(label, set()).add(value)
    assert not shown.keys() & (_WHILE_TRIED.keys() | _DCGM.keys())
    there = {**shown, **_WHILE_TRIED, **_DCGM}
    faults = {where: found for where, text in _expressions() if (found := unknown(text, there))}
    assert faults == {}


def test_every_metric_is_shown_by_a_sidecar_with_the_labels_that_are_declared(scraped: tuple[str, str]) -> None:
    """But for what a release or a setting must ask for: tenants, keys, TLS, and a candidate that is tried."""
    shown = {name: set(labels) - {"le"} for name, labels, _ in _series(scraped[1])}
    declared = {
        f"{one.name}_bucket" if one.kind == "histogram" else one.name: set(one.labels) for one in Metrics().declared
    }
    assert declared.keys() - shown.keys() == {
        "cascade_guardrail",
        "cascade_keys",
        "cascade_tenant_requests_total",
        "cascade_tls_expiry_timestamp_seconds",
    }
    assert {name: shown[name] for name in declared.keys() & shown.keys()} == {
        name: labels for name, labels in declared.items() if name in shown
    }


def test_no_panel_is_empty(scraped: tuple[str, str], tmp_path: Path) -> None:
    """Prometheus' own tool finds a series for each expression in what a sidecar printed before and after a little traffic."""
    before = {(name, tuple(labels.items())): value for name, labels, value in _series(scraped[0])}
    series = []
    for name, labels, value in _series(scraped[1]):
        matchers = ", ".join(f'{label}="{told}"' for label, told in {**labels, "instance": "a"}.items())
        values = f"{before.get((name, tuple(labels.items())), 0.0):f} {_number(value)} {_number(value)}"
        series.append({"series": f"{name}{{{matchers}}}", "values": values})
    series += [{"series": f'{name}{{Hostname="h", gpu="0"}}', "values": "1 1 1"} for name in _DCGM]
    series.append({"series": 'cascade_guardrail{name="late", instance="a"}', "values": "0 0 0"})
    checks = [
        {"expr": f"count({text}) > bool 0", "eval_time": "2m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for _, text in _expressions()
    ]
    told = {
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}],
    }
    path = tmp_path / "drawn.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    checked(promtool(), "test", "rules", str(path))


def test_calls_of_one_input_are_shown_as_one(tmp_path: Path) -> None:
    """A quantile within the first bucket is read from 0 on, and no call has less than one."""
    shown = {text: 1.0 for where, text in _expressions() if where == "stages: Inputs in a call"}
    assert len(shown) == 3
    series = [
        {"series": f'{name}{{stage="small", instance="a"{le}}}', "values": "0+60x30"}
        for name, le in (
            ("cascade_batch_inputs_bucket", ', le="1.0"'),
            ("cascade_batch_inputs_bucket", ', le="2.0"'),
            ("cascade_batch_inputs_bucket", ', le="+Inf"'),
            ("cascade_batch_inputs_count", ""),
            ("cascade_batch_inputs_sum", ""),
        )
    ]
    checks = [
        {"expr": text, "eval_time": "20m", "exp_samples": [{"labels": '{stage="small"}', "value": value}]}
        for text, value in shown.items()
    ]
    told = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}]}
    path = tmp_path / "calls.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    checked(promtool(), "test", "rules", str(path))


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:f}"


def test_a_little_traffic_moves_what_is_told_of_it(scraped: tuple[str, str]) -> None:
    """What stages tell of their work, and decisions of theirs, reaches the metrics through the wiring of a real service."""
    shown = {(name, *sorted(labels.items())): value for name, labels, value in _series(scraped[1])}
    large, small = ("stage", "large"), ("stage", "small")
    assert shown["cascade_candidates_sum",] == 48
    assert shown["cascade_pair_tokens_count", ("counted", "measured"), small] == 40
    assert shown["cascade_pair_tokens_count", ("counted", "told"), large] == 20
    assert shown["cascade_query_tokens_count", ("counted", "measured"), small] == 4
    assert shown["cascade_document_windows_count", small] == 40
    assert shown["cascade_batch_inputs_sum", small] == shown["cascade_document_windows_sum", small]
    assert shown["cascade_batch_inputs_count", small] == shown["cascade_batch_padding_ratio_count", small] > 0
    assert shown["cascade_stage_queue_seconds_count", small] == shown["cascade_stage_compute_seconds_count", large] == 4
    assert shown["cascade_rank_overlap_ratio_count",] == shown["cascade_margin_count",] == 4
    assert shown["cascade_calibration_drift_answers", ("of", "score")] == 4
    assert shown["cascade_calibration_drift_answers", ("of", "margin")] == 4


def test_the_metrics_of_the_exporter_are_no_names_of_ours() -> None:
    """What is drawn of GPUs comes from elsewhere, and the registry knows it not."""
    assert not {one.name for one in Metrics().declared} & _DCGM.keys()
