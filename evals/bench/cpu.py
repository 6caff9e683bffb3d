"""How fast the sidecar's engine scores pairs on a CPU, beside libraries that score inside a process.

    scripts/peers install                                      # once: environments of their own under .engines/
    python -m evals.bench.cpu [--engines cascade,fastembed] [--workloads short,mixed,long] [--rounds 5]
                              [--precision int8,fp32] [--collection FOLDER] [--json FILE]

All engines have the same weights, pairs and cores, each in a process of its own. One request is under way at a time, all
of it given to the engine at once; rounds visit workloads and engines in random order (seeded). Time is taken inside the
engine's process around the library's call, tokenising included.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.stages.machine import this_machine
from evals.bench.cpu_engines import ENGINES, PRECISIONS, SWEPT, Engine, command, named
from evals.bench.cpu_figures import Cell, aims, figures, greatest_difference, summary, table
from evals.bench.cpu_models import model_folders
from evals.bench.cpu_pairs import WORKLOADS, Request, requests_of, texts_of
from evals.bench.cpu_process import EngineFailed, Scorer, scorer
from evals.first_stage import shared_data

__all__ = ["main"]

_FOLDER: Final = Path(".cache/cpu-bench")
_SWEEP_ON: Final = "mixed"
Workloads = dict[str, list[Request]]


class Bench:
    """Started engines of one precision, what they are asked, and what came of it."""

    def __init__(self, precision: str, folder: Path, workloads: Workloads, seed: int) -> None:
        self.precision = precision
        self._folder = folder
        self._workloads = workloads
        self._draw = np.random.default_rng(seed)
        self._reference: dict[str, list[list[float]]] = {}
        self.cells: dict[str, dict[str, Cell]] = {}
        self.told: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, str] = {}
        self._swept: dict[str, dict[str, float]] = {}

    def measure(self, engines: dict[str, Engine], rounds: int, *, sweep: bool) -> None:
        """Start the engines, choose batch sizes, and visit all workloads in each round."""
        with scorer(command(Engine("reference"), self._folder, self.precision)) as reference:
            for name, requests in self._workloads.items():
                self._reference[name] = [reference.score(request, None)[0] for request in requests]
        with ExitStack() as started:
            settings: dict[str, tuple[Scorer, int | None, str]] = {}
            for name, engine in engines.items():
                try:
                    process = started.enter_context(scorer(command(engine, self._folder, self.precision)))
                    self._warm(process)
                except EngineFailed as error:
                    self.failed[named(name, self.precision, best=False)] = str(error)
                    continue
                settings[named(name, self.precision, best=False)] = (process, None, name)
                if engine.sweeps and sweep:
                    best = named(name, self.precision, best=True)
                    try:
                        settings[best] = (process, self._best_batch(best, process), name)
                    except EngineFailed as error:
                        self.failed[best] = str(error)
                        self._leave(settings, process, error)
            self.cells = {
                label: {name: Cell(_pairs(requests)) for name, requests in self._workloads.items()}
                for label in settings
            }
            for _ in range(rounds):
                self._round(settings)
            for label, (process, batch, name) in settings.items():
                told = {"peak_mib": round(process.peak_mib, 1), "wrong": ENGINES[name].wrong, "batch": batch}
                swept = {"swept": self._swept[label]} if label in self._swept else {}
                self.told[label] = {**swept, **process.loaded, **told}

    def _warm(self, process: Scorer) -> None:
        for requests in self._workloads.values():
            process.score(requests[0], None)

    def _best_batch(self, label: str, process: Scorer) -> int:
        """Return the batch size with the best median rate over two interleaved rounds of one workload."""
        requests = self._workloads.get(_SWEEP_ON) or next(iter(self._workloads.values()))
        tried = {batch: Cell(_pairs(requests)) for batch in SWEPT}
        for _ in range(2):
            for batch in self._draw.permutation(SWEPT).tolist():
                tried[batch].rounds.append([process.score(request, batch)[1] for request in requests])
        rates = {batch: float(np.median(cell.rates)) for batch, cell in tried.items()}
        self._swept[label] = {str(batch): round(rate, 3) for batch, rate in rates.items()}
        return max(rates, key=lambda batch: rates[batch])

    def _round(self, settings: dict[str, tuple[Scorer, int | None, str]]) -> None:
        visits = [(label, workload) for workload in self._workloads for label in settings]
        for label, workload in (visits[place] for place in self._draw.permutation(len(visits))):
            if label not in settings:
                continue
            process, batch, _ = settings[label]
            try:
                self._visit(label, workload, process, batch)
            except EngineFailed as error:
                self._leave(settings, process, error)

    def _leave(self, settings: dict[str, tuple[Scorer, int | None, str]], process: Scorer, error: EngineFailed) -> None:
        """Leave out all settings of a process that failed: what it may still answer is of no later request."""
        for label in [label for label, (of, _, _) in settings.items() if of is process]:
            self.failed[label] = str(error)
            del settings[label]
            self.cells.pop(label, None)

    def _visit(self, label: str, workload: str, process: Scorer, batch: int | None) -> None:
        requests = self._workloads[workload]
        cell = self.cells[label][workload]
        answered = [process.score(request, batch) for request in requests]
        cell.rounds.append([seconds for _, seconds in answered])
        scores = [scores for scores, _ in answered]
        off = greatest_difference(scores, self._reference[workload], str(process.loaded["output"]))
        cell.difference = max(cell.difference, off)


def _pairs(requests: Sequence[Request]) -> int:
    return sum(len(request.documents) for request in requests)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print tables, and write the figures where asked; return 1 where an engine failed."""
    options = _options(arguments)
    folders = model_folders(options.folder)
    collection = options.collection or shared_data() / "beir" / "cranfield"
    texts = texts_of(collection if collection.is_dir() else None, options.seed)
    tokenizer = folders["int8"] / "tokenizer.json"
    workloads = {
        name: requests_of(
            texts,
            tokenizer,
            WORKLOADS[name],
            requests=options.requests,
            candidates=options.candidates,
            seed=options.seed + place,
        )
        for place, name in enumerate(options.workloads)
    }
    before = os.getloadavg()
    cells: dict[str, dict[str, Cell]] = {}
    told: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for precision in options.precision:
        bench = Bench(precision, options.folder, workloads, options.seed)
        engines = {name: ENGINES[name] for name in options.engines if precision in ENGINES[name].precisions}
        bench.measure(engines, options.rounds, sweep=options.sweep)
        _print(bench)
        cells, told, failed = cells | bench.cells, told | bench.told, failed | bench.failed
    if options.json:
        detail = {
            "conditions": {
                **asdict(this_machine()),
                "load": [before, os.getloadavg()],
                **_asked(options, workloads, collection),
            },
            "engines": told,
            "failed": failed,
            "spread": summary(cells),
        }
        options.json.write_text(json.dumps(figures(cells), indent=1) + "\n", encoding="utf-8")
        options.json.with_suffix(".detail.json").write_text(json.dumps(detail, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


def _print(bench: Bench) -> None:
    print(f"\n{bench.precision}\n")
    print(table(bench.cells, {label: told["peak_mib"] for label, told in bench.told.items()}))
    others = [label for label in bench.cells if not label.startswith("cascade")]
    right = [label for label in others if not bench.told[label]["wrong"]]
    for own in (label for label in bench.cells if label.startswith("cascade")):
        print("\n" + "\n".join(aims(bench.cells, own, others, right=right)))
    for label, told in bench.told.items():
        if told["wrong"]:
            print(f"{label}: no peer, its scores are not the model's: {told['wrong']}")
        if told.get("swept"):
            print(f"{label}: batch {told['batch']}, of {told['swept']} pairs/s")
    for label, why in bench.failed.items():
        print(f"{label}: failed: {why}", file=sys.stderr)


def _asked(options: argparse.Namespace, workloads: Workloads, collection: Path) -> dict[str, Any]:
    lengths = {
        name: [int(np.quantile([n for request in requests for n in request.tokens], q)) for q in (0, 0.5, 1)]
        for name, requests in workloads.items()
    }
    return {
        "collection": collection.name if collection.is_dir() else "made up",
        "tokens_least_median_most": lengths,
        **{name: getattr(options, name) for name in ("rounds", "requests", "candidates", "seed")},
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    installed = [name for name, each in ENGINES.items() if each.environment is None or each.environment.marker.exists()]
    for flag, known, unset in (
        ("--engines", list(ENGINES), installed),
        ("--workloads", list(WORKLOADS), list(WORKLOADS)),
        ("--precision", list(PRECISIONS), ["int8"]),
    ):
        parser.add_argument(flag, type=_listed(known), default=unset, help=f"of {','.join(known)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=5, help="requests a workload and round")
    parser.add_argument("--candidates", type=int, default=20, help="documents a request")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-sweep", dest="sweep", action="store_false", help="leave out best settings")
    parser.add_argument("--collection", type=Path, help="folder in BEIR's layout whose words the pairs have")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where the weights' forms are made; 700 MB")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if options.json is not None and not options.json.absolute().parent.is_dir():
        parser.error("--json: its folder is not there")
    if options.collection is not None and not options.collection.is_dir():
        parser.error("--collection: there is no such folder")
    if missing := [name for name in options.engines if name not in installed]:
        parser.error(f"{', '.join(missing)}: run scripts/peers install")
    if min(options.rounds, options.requests, options.candidates) < 1:
        parser.error("rounds, requests and candidates are at least 1")
    return options


def _listed(known: Sequence[str]) -> Any:
    def listed(written: str) -> list[str]:
        names = [name for name in written.split(",") if name]
        if not names or set(names) - set(known):
            raise argparse.ArgumentTypeError(f"of {', '.join(known)}")
        return names

    return listed


if __name__ == "__main__":
    sys.exit(main())
