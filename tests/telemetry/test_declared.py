"""What metrics promise: each says it where it is declared, and what is promised stays."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from prometheus_client import Counter

from cascade.telemetry.declared import EXPERIMENTAL, STABLE, Declared, Declaring
from cascade.telemetry.metrics import Metrics
from tests.deploy.every_rollout_series import every_rollout_series
from tests.telemetry.every_series import every_series

_PROMISED: Final = Path(__file__).with_name("stable_metrics.txt")
_REFERENCE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"


def _undeclared(metrics: Metrics) -> set[str]:
    """Return the families of a registry that nobody declared."""
    families = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in metrics.registry.collect()
    }
    return families - {one.name for one in metrics.declared}


def _broken(promised: list[str], declared: list[Declared]) -> list[str]:
    """Return the lines of what is promised that do not hold: name, kind, then labels."""
    there = {one.name: one for one in declared if one.stability is STABLE}
    broken = []
    for line in promised:
        name, kind, *labels = line.split()
        one = there.get(name)
        if one is None or one.kind != kind or not set(labels) <= set(one.labels):
            broken.append(line)
    return broken


def _line(one: Declared) -> str:
    return " ".join((one.name, one.kind, *sorted(one.labels)))


def test_every_metric_says_what_it_promises() -> None:
    """One that is put into the registry past its declaration would be in no reference."""
    metrics = Metrics()
    assert _undeclared(metrics) == set()
    assert {one.stability for one in metrics.declared} == {STABLE, EXPERIMENTAL}
    Counter("cascade_sneaked_in", "Without a promise", registry=metrics.registry)
    assert _undeclared(metrics) == {"cascade_sneaked_in_total"}


def test_what_was_promised_is_there() -> None:
    """The list is what users build on: a name, a kind or a label of it is not taken away."""
    promised = _PROMISED.read_text(encoding="utf-8").splitlines()
    declared = list(Metrics().declared)
    assert _broken(promised, declared) == []
    assert promised == sorted(promised)
    told = {_line(one) for one in declared if one.stability is STABLE}
    assert told == set(promised), "put what is STABLE now into stable_metrics.txt"


@pytest.mark.parametrize(
    "line",
    ["cascade_gone_total counter", "cascade_depth gauge", "cascade_pairs_total counter arm stage", "cascade_padding_tokens_total counter stage"],
)  # fmt: skip
def test_a_promise_that_does_not_hold_is_found(line: str) -> None:
    """A name that is gone, another kind, a label that is gone, and one that is EXPERIMENTAL by now."""
    assert _broken([line], list(Metrics().declared)) == [line]


def test_labels_are_those_that_series_have() -> None:
    """What is declared is what is printed, for every metric that can be shown."""
    shown = every_rollout_series()
    for family in every_series().registry.collect():
        for sample in family.samples:
            shown.setdefault(sample.name, {}).update({label: {""} for label in sample.labels})
    for one in Metrics().declared:
        name = f"{one.name}_count" if one.kind == "histogram" else one.name
        assert set(shown[name]) == set(one.labels), one.name


def test_the_reference_tells_name_kind_labels_and_promise() -> None:
    """A row for each metric."""
    page = _REFERENCE.read_text(encoding="utf-8")
    rows = {
        tuple(cell.strip() for cell in line.split("|")[1:5]) for line in page.splitlines() if line.startswith("| `")
    }
    assert rows == {
        (f"`{one.name}`", one.kind, ", ".join(one.labels), str(one.stability)) for one in Metrics().declared
    }


def test_a_name_cannot_be_declared_twice() -> None:
    """The second would be added to the first."""
    declare = Declaring()
    declare.gauge(STABLE, "cascade_twice", "Once")
    with pytest.raises(ValueError, match="Duplicated"):
        declare.counter(STABLE, "cascade_twice", "And again")
