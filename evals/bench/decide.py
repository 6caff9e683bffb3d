"""How long a calibrated decision takes: describing candidates, their probabilities, and whole rounds.

    python -m evals.bench.decide [--candidates 100] [--repeats 200] [--json FILE]

Scores are drawn (seeded): a small stage and three channels. The calibration is of full size, every feature with
five pieces; its numbers are drawn, as time does not depend on them. Each figure is of batches of 20 decisions,
nothing kept between them: the median over batches and their 5th and 95th percentile, in microseconds for one query.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.calibration.artefact import CalibrationArtefact, SmoothTable
from cascade.calibration.calibrated import Calibration
from cascade.calibration.features import describe, pair_feature_names, query_feature_names
from cascade.policy.escalation import Known, choose_round
from cascade.policy.escalation_rules import CalibratedEscalation
from cascade.testing.calibration import scripted_artefact

__all__ = ["drawn_calibration", "drawn_known", "main", "parts"]

_CHANNELS: Final = ("bm25", "dense", "sparse")
_PIECES: Final = 5
_OUTPUTS: Final = 5
_PRICE: Final = 0.002
_AIM_US: Final = 300.0
_BATCH: Final = 20


def _smooths(names: Sequence[str], draw: np.random.Generator) -> SmoothTable:
    knots = np.sort(draw.normal(0.0, 3.0, (len(names), _PIECES + 1)), axis=1)
    coefficients = draw.normal(0.0, 0.01, (len(names), _PIECES, 4, _OUTPUTS))
    return SmoothTable.model_validate(
        {"features": names, "knots": knots.tolist(), "coefficients": coefficients.tolist()}
    )


def drawn_calibration(candidates: int, seed: int) -> Calibration:
    """Return a calibration with every feature that a fit may use, and a second round."""
    draw = np.random.default_rng(seed)
    scripted = scripted_artefact(_CHANNELS, second_round=True, most_candidates=max(200, candidates))
    entry = scripted.entry.model_copy(
        update={
            "pair": _smooths(pair_feature_names(_CHANNELS), draw),
            "query": _smooths(query_feature_names(_CHANNELS), draw),
        }
    )
    artefact: CalibrationArtefact = scripted.model_copy(update={"entry": entry})
    return Calibration(artefact, "sha256:drawn")


def drawn_known(candidates: int, seed: int) -> Known:
    """Return what is known of a query before its first round."""
    draw = np.random.default_rng(seed)
    worth = draw.normal(size=candidates)
    return Known(
        worth + draw.normal(size=candidates),
        {name: worth + 1.5 * draw.normal(size=candidates) for name in _CHANNELS},
        np.full(candidates, np.nan),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    run: Callable[[], object]
    aim_us: float | None = None


def parts(candidates: int, seed: int) -> Mapping[str, _Part]:
    """Return what is timed, by name."""
    calibration, known = drawn_calibration(candidates, seed), drawn_known(candidates, seed)
    rule = CalibratedEscalation.model_validate(
        {"kind": "calibrated", "calibration": "sha256:" + "0" * 64, "price_per_pair": _PRICE}
    )
    first = choose_round(rule, known, calibration)
    sent = list(first.indices)
    large = known.large.copy()
    large[sent] = known.small[sent]
    seen = replace(known, large=large)
    return {
        "describe": _Part(lambda: describe(known.small, known.channels)),
        "entry": _Part(lambda: calibration.entry(known.small, known.channels), _AIM_US),
        "first round": _Part(lambda: choose_round(rule, known, calibration)),
        "second round": _Part(lambda: choose_round(rule, seen, calibration, first)),
    }


def _time_us(run: Callable[[], object], repeats: int) -> dict[str, float]:
    for _ in range(_BATCH):
        run()
    batches = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(_BATCH):
            run()
        batches.append((time.perf_counter() - began) / _BATCH * 1e6)
    low, high = np.percentile(batches, [5, 95])
    return {"median_us": statistics.median(batches), "p5_us": float(low), "p95_us": float(high)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures, write them as JSON where asked; return 1 where the entry probabilities miss the aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    timed = parts(options.candidates, options.seed)
    figures = {name: _time_us(part.run, options.repeats) for name, part in timed.items()}
    print(f"{'part':16}{'median':>9}{'p5':>9}{'p95':>9}  us, {options.candidates} candidates, 3 channels")
    for name, figure in figures.items():
        print(f"{name:16}{figure['median_us']:9.1f}{figure['p5_us']:9.1f}{figure['p95_us']:9.1f}")
    missed = [
        name for name, part in timed.items() if part.aim_us is not None and figures[name]["median_us"] > part.aim_us
    ]
    print(f"entry: aim {_AIM_US:.0f} us, {'missed' if missed else 'met'}")
    if options.json:
        report: dict[str, Any] = {
            "candidates": options.candidates,
            "channels": _CHANNELS,
            "aim_us": _AIM_US,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "figures": figures,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
