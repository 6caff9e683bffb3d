"""What each part of the sidecar's engine brings on a CPU: one thing changed at a time, from the graph as it was exported.

    python -m evals.bench.cpu_steps [--precision int8] [--workload mixed] [--rounds 7] [--only "fused graph,one thread"] [--json FILE]

``exact graph`` is what a release gets that says nothing of it: attention is rewritten at load. Of all others but ``fused
graph`` the attention is the exported one, so that each differs from the first row in one thing. Every variant is a loaded stage of its own in one process; a round visits all in random order (seeded), one request under
way at a time. A figure is the median over rounds with the least and the greatest, its ratio that to the first row in the
same round. ``attention`` is what the stage was found to run. A variant that the engine refuses is told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.guard.deadline import Deadline
from cascade.policy.stage_specs import OnnxStage
from cascade.stages.cores import usable_cores
from cascade.stages.engine.workers import worker_pool
from cascade.stages.machine import this_machine
from cascade.stages.onnx import OnnxReranker
from cascade.stages.onnx_model import SessionOptions
from cascade.text import Text
from evals.bench.cpu_models import model_folders
from evals.bench.cpu_own import release_of
from evals.bench.cpu_pairs import WORKLOADS, Request, requests_of, texts_of
from evals.first_stage import shared_data

__all__ = ["VARIANTS", "Variant", "main", "measured"]

_LONG_MS: Final = 600_000.0
_BUDGETS: Final = (256, 512, 1024, 2048)
_FIRST: Final = "exported graph"
_READ_ANEW: Final = {"cached_token_bytes": 0}
_EXPORTED: Final = {**_READ_ANEW, "attention": "exported"}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the engine. ``threads`` None is one a core; ``folder`` a suffix of the precision's folder."""

    threads: int | None = None
    session: SessionOptions = field(default_factory=SessionOptions)
    folder: str = ""
    stage: Mapping[str, Any] = field(default_factory=lambda: _EXPORTED)


def _budget(tokens: int) -> Variant:
    return Variant(stage={**_EXPORTED, "batching": {"mode": "token-budget", "max_total_tokens": tokens}})


VARIANTS: Final[Mapping[str, Variant]] = {
    _FIRST: Variant(),
    "exact graph": Variant(stage=_READ_ANEW),
    "fused graph": Variant(folder="-fused"),
    "one thread": Variant(threads=1),
    "one thread with onnxruntime's own two": Variant(threads=1, session=SessionOptions(intra_threads=2)),
    "the same without spinning": Variant(threads=1, session=SessionOptions(intra_threads=2, spinning=False)),
    "document ids kept": Variant(stage={"attention": "exported"}),
    **{f"batches of {tokens} padded tokens": _budget(tokens) for tokens in _BUDGETS},
    "graph level extended": Variant(session=SessionOptions(graph_level="extended")),
    "graph level basic": Variant(session=SessionOptions(graph_level="basic")),
    "no memory arena": Variant(session=SessionOptions(arena=False)),
    "denormals are zero": Variant(session=SessionOptions(denormal_as_zero=True)),
}


@dataclass(slots=True)
class _Timed:
    """A loaded stage, the rates of its rounds, and the scores of the last."""

    stage: OnnxReranker
    rates: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    async def round(self, requests: Sequence[Request]) -> None:
        """Score all requests, one after the other."""
        began, scores = time.perf_counter(), []
        for request in requests:
            deadline = Deadline.after_ms(_LONG_MS, time.monotonic)
            documents = [Text(text) for text in request.documents]
            answer = await self.stage.score(Text(request.query), documents, deadline=deadline, call_id="benchmark")
            scores += [score for score in answer.scores if score is not None]
        self.rates.append(len(scores) / (time.perf_counter() - began))
        self.scores = scores


async def measured(
    variants: Mapping[str, Variant], folder: Path, requests: Sequence[Request], rounds: int, seed: int
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the figures of each variant, and why others were refused. ``folder`` is that of the precision."""
    timed: dict[str, _Timed] = {}
    refused: dict[str, str] = {}
    with ExitStack() as pools:
        for name, variant in variants.items():
            pool = pools.enter_context(worker_pool(variant.threads))
            spec = release_of(folder.with_name(folder.name + variant.folder), **variant.stage).stages.large
            assert isinstance(spec, OnnxStage)  # noqa: S101 - it is made so
            stage = OnnxReranker("large", spec, pool, time.monotonic, session=variant.session)
            try:
                await stage.start()
            except ConfigError as error:
                refused[name] = str(error)
                continue
            timed[name] = _Timed(stage)
            await timed[name].round(requests[:1])
            timed[name].rates.clear()
        draw, names = np.random.default_rng(seed), list(timed)
        for _ in range(rounds):
            for place in draw.permutation(len(names)):
                await timed[names[place]].round(requests)
        told = {name: each.stage.observed for name, each in timed.items()}
        await asyncio.gather(*(each.stage.aclose() for each in timed.values()))
    first = timed[names[0]]
    ran = {name: None if observed is None else observed.attention for name, observed in told.items()}
    return {name: {**_figures(each, first), "attention": ran[name]} for name, each in timed.items()}, refused


def _figures(each: _Timed, first: _Timed) -> dict[str, float]:
    ratios = [ours / theirs for ours, theirs in zip(each.rates, first.rates, strict=True)]
    return {
        "pairs_per_s": round(median(each.rates), 3),
        "least": round(min(each.rates), 3),
        "most": round(max(each.rates), 3),
        "ratio": round(median(ratios), 3),
        "ratio_least": round(min(ratios), 3),
        "ratio_most": round(max(ratios), 3),
        "scores_off_by": max(abs(a - b) for a, b in zip(each.scores, first.scores, strict=True)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table, and write it as JSON where asked."""
    options = _options(arguments)
    folders = model_folders(options.folder)
    collection = shared_data() / "beir" / "cranfield"
    requests = requests_of(
        texts_of(collection if collection.is_dir() else None, options.seed),
        folders[options.precision] / "tokenizer.json",
        WORKLOADS[options.workload],
        requests=options.requests,
        candidates=20,
        seed=options.seed,
    )
    asked = {_FIRST, *(options.only or VARIANTS)}
    variants = {name: variant for name, variant in VARIANTS.items() if name in asked}
    before = os.getloadavg()
    told, refused = asyncio.run(measured(variants, folders[options.precision], requests, options.rounds, options.seed))
    print(f"{options.precision}, {options.workload}, {usable_cores()} cores\n")
    print("| | pairs/s | ratio | scores off by | attention |\n|---|---:|---:|---:|---|")
    for name, row in told.items():
        rate = f"{row['pairs_per_s']:.1f} ({row['least']:.1f} to {row['most']:.1f})"
        ratio = f"{row['ratio']:.2f} ({row['ratio_least']:.2f} to {row['ratio_most']:.2f})"
        print(f"| {name} | {rate} | {ratio} | {row['scores_off_by']:.1e} | {row['attention']} |")
    for name, why in refused.items():
        print(f"| {name} | refused: {why} | | | |")
    if options.json:
        conditions = {**asdict(this_machine()), "load": [before, os.getloadavg()], "rounds": options.rounds}
        report = {"conditions": conditions, "figures": told, "refused": refused}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=("int8", "fp32"), default="int8")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="mixed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--only", default="", help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path(".cache/cpu-bench"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if options.json is not None and not options.json.absolute().parent.is_dir():
        parser.error("--json: its folder is not there")
    options.only = [name.strip() for name in options.only.split(",") if name.strip()]
    if unknown := [name for name in options.only if name not in VARIANTS]:
        parser.error(f"--only: {', '.join(unknown)} of {', '.join(VARIANTS)}")
    if min(options.rounds, options.requests) < 1:
        parser.error("rounds and requests are at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
