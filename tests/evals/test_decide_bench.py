"""The benchmark of decisions measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

from cascade.calibration.features import pair_feature_names
from cascade.policy.escalation import Choice
from evals.bench.decide import drawn_calibration, drawn_known, main, parts


def test_nothing_ends_early() -> None:
    """The calibration holds for what is drawn, has every feature, and both rounds send something."""
    calibration, known = drawn_calibration(100, 0), drawn_known(100, 0)
    assert calibration.misfit(known.small, known.channels) is None
    assert set(calibration.artefact.entry.pair.features) == set(pair_feature_names(calibration.channels))
    timed = parts(100, 0)
    first, second = (timed[name].run() for name in ("first round", "second round"))
    assert isinstance(first, Choice)
    assert isinstance(second, Choice)
    assert first.more
    assert first.indices
    assert second.indices
    assert not set(first.indices) & set(second.indices)


def test_the_report_has_a_median_and_its_spread_for_each(tmp_path: Path) -> None:
    """As it is printed; the aim decides the exit status, which a loaded machine may miss."""
    report = tmp_path / "decide.json"
    assert main(["--candidates", "20", "--repeats", "3", "--json", str(report)]) in {0, 1}
    figures = json.loads(report.read_text(encoding="utf-8"))["figures"]
    assert set(figures) == {"describe", "entry", "first round", "second round"}
    assert all(0.0 < figure["p5_us"] <= figure["median_us"] <= figure["p95_us"] for figure in figures.values())
