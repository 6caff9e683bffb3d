"""How long signals take: ten of 100 candidates, each alone, and all of them together.

    python -m evals.bench.signals [--candidates 100] [--repeats 200] [--json FILE]

Scores are drawn (seeded), two channels and a small stage; texts are made of drawn words. Each figure is of
batches of 50 computations from unsorted scores, nothing kept between them: the median over batches and
their 5th and 95th percentile, in microseconds for one query.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.signals import CLASS, SIGNALS, Family, History, Inputs, Seen, compute
from cascade.text import Text
from cascade.types import QueryClass

__all__ = ["TEN", "all_names", "drawn_inputs", "main"]

TEN: Final = (
    "bm25.gap",
    "bm25.gap_tail",
    "bm25.entropy",
    "dense.gap_tail",
    "dense.entropy",
    "dense.nqc",
    "overlap_10.bm25.dense",
    "rbo.bm25.dense",
    "kendall.bm25.dense",
    "channels.diversity",
)
"""The ten that are timed together: the dearest between channels are among them."""
_AIM_US: Final = 50.0
_BATCH: Final = 50


def all_names() -> list[str]:
    """Return the name of every signal for channels bm25 and dense."""
    names: list[str] = []
    for signal in SIGNALS:
        match signal.family:
            case Family.CHANNEL:
                names += [signal.name.replace("<channel>", channel) for channel in ("bm25", "dense")]
            case Family.PAIR:
                names.append(signal.name.replace("<a>.<b>", "bm25.dense"))
            case Family.WHOLE:
                names.append(signal.name)
    return names


def drawn_inputs(candidates: int, seed: int) -> Inputs:
    """Return inputs with everything that any signal reads."""
    draw = np.random.default_rng(seed)
    relevance = draw.normal(size=candidates)
    words = ["".join(letters) for letters in draw.choice(list("abcdefghijklmnop"), (200, 6))]
    texts = tuple(Text(" ".join(draw.choice(words, 80))) for _ in range(3))
    return Inputs(
        channels={
            "bm25": draw.gamma(4.0, 3.0, candidates) + relevance,
            "dense": 0.6 + 0.05 * (relevance + draw.normal(size=candidates)),
        },
        query=Text("how do the winters of the north differ from those of the south"),
        head=texts,
        tenant="acme",
        history=History(dict.fromkeys(QueryClass, 0.1), {"acme": {QueryClass.OTHER: Seen(0.2, 40)}}),
        small=relevance + 0.5 * draw.normal(size=candidates),
        noise_sd=0.01,
    )


def _time_us(names: Collection[str], inputs: Inputs, repeats: int) -> dict[str, float]:
    for _ in range(_BATCH):
        compute(names, inputs)
    batches = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(_BATCH):
            compute(names, inputs)
        batches.append((time.perf_counter() - began) / _BATCH * 1e6)
    low, high = np.percentile(batches, [5, 95])
    return {"median_us": statistics.median(batches), "p5_us": float(low), "p95_us": float(high)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures, write them as JSON where asked; return 1 where ten signals miss the aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    inputs = drawn_inputs(options.candidates, options.seed)
    sets: dict[str, Collection[str]] = {"ten": TEN, "all": [*all_names(), CLASS]}
    sets |= {name: (name,) for name in all_names()}
    figures = {label: _time_us(names, inputs, options.repeats) for label, names in sets.items()}
    print(f"{'signals':28}{'median':>9}{'p5':>9}{'p95':>9}  us, {options.candidates} candidates")
    for label, figure in figures.items():
        print(f"{label:28}{figure['median_us']:9.1f}{figure['p5_us']:9.1f}{figure['p95_us']:9.1f}")
    met = figures["ten"]["median_us"] <= _AIM_US
    print(f"ten signals: aim {_AIM_US:.0f} us, {'met' if met else 'missed'}")
    if options.json:
        report: dict[str, Any] = {
            "candidates": options.candidates,
            "ten": TEN,
            "aim_us": _AIM_US,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "figures": figures,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
