"""The benchmark of signals measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

from cascade.signals import CLASS, compute, signal_names
from evals.bench.signals import TEN, all_names, drawn_inputs, main


def test_inputs_give_every_signal_a_value() -> None:
    """Nothing is timed that ends early for lack of inputs."""
    names = all_names()
    assert set(TEN) <= set(names)
    assert len(names) > len(signal_names())
    signals = compute([*names, CLASS], drawn_inputs(100, 0))
    assert not signals.missing
    assert signals.query_class is not None


def test_the_report_has_a_median_and_its_spread_for_each(tmp_path: Path) -> None:
    """As it is printed; the aim decides the exit status, which a loaded machine may miss."""
    report = tmp_path / "signals.json"
    assert main(["--candidates", "20", "--repeats", "3", "--json", str(report)]) in {0, 1}
    figures = json.loads(report.read_text(encoding="utf-8"))["figures"]
    assert set(figures) == {"ten", "all", *all_names()}
    assert all(0.0 < figure["p5_us"] <= figure["median_us"] <= figure["p95_us"] for figure in figures.values())
