"""The main job on real collections: BM25's top 50 through the running sidecar, by four releases.

    python -m evals.main_job [--collection cranfield ...] [--json FILE]

Prints nDCG@1, 3, 10 (linear gain) and MRR with paired bootstrap intervals, cost and time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import yaml

from cascade.metrics import ndcg, reciprocal_rank
from cascade.replay.collection import Collection, load_collection
from cascade.replay.first_stage import FirstStage
from cascade.rollout.load import default_release_path
from evals.first_stage import shared_data
from evals.sidecar import running_sidecar

__all__ = ["METRICS", "interval", "main", "measure", "summary", "variants"]

_DEPTH = 50
_PATIENT = {"total_ms": 120_000, "small_ms": 60_000, "large_ms": 60_000, "reserve_ms": 50}
METRICS: Mapping[str, Callable[[Sequence[str], Mapping[str, int]], float]] = {
    "ndcg@1": lambda ranked, grades: ndcg(ranked, grades, 1),
    "ndcg@3": lambda ranked, grades: ndcg(ranked, grades, 3),
    "ndcg@10": lambda ranked, grades: ndcg(ranked, grades, 10),
    "mrr": reciprocal_rank,
}


@dataclass(slots=True)
class Outcome:
    """What one release made of one collection; lists run over its judged queries."""

    scores: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in METRICS})
    milliseconds: list[float] = field(default_factory=list)
    large_pairs: list[int] = field(default_factory=list)
    small_calls: list[int] = field(default_factory=list)
    degraded: int = 0


def variants() -> dict[str, dict[str, Any]]:
    """Return the releases compared, all derived from the default one."""
    default = yaml.safe_load(default_release_path().read_text(encoding="utf-8"))
    stages = default["stages"]
    return {
        "always-small": default
        | {"release": "always-small", "stages": {"small": stages["small"]}, "escalation": "none", "budgets": _PATIENT},
        "always-large": default
        | {
            "release": "always-large",
            "stages": {"large": stages["large"]},
            "escalation": {"kind": "static", "top_m": _DEPTH},
            "budgets": _PATIENT,
        },
        "large-of-bm25-top-20": default
        | {"release": "large-of-bm25-top-20", "stages": {"large": stages["large"]}, "budgets": _PATIENT},
        "default, first pass": default,
        "default, second pass": default,
    }


def measure(collection: Collection) -> dict[str, Outcome]:
    """Run every variant over the judged queries of a collection; BM25's own order comes first."""
    first_stage = FirstStage(collection)
    judged = {
        q: text for q, text in collection.queries.items() if any(g > 0 for g in collection.judgements[q].values())
    }
    runs = {query_id: first_stage.search(text, _DEPTH) for query_id, text in judged.items()}
    outcomes = {"bm25": Outcome()}
    for query_id, run in runs.items():
        _judge(outcomes["bm25"], [document for document, _ in run], collection.judgements[query_id])
    by_release: dict[str, list[str]] = {}
    for name, release in variants().items():
        by_release.setdefault(release["release"], []).append(name)
    for release_name, passes in by_release.items():
        release = next(value for value in variants().values() if value["release"] == release_name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "release.yaml"
            path.write_text(yaml.safe_dump(release), encoding="utf-8")
            with running_sidecar(path) as (url, _), httpx.Client(timeout=300) as client:
                for name in passes:
                    outcomes[name] = Outcome()
                    for query_id, run in runs.items():
                        _ask(client, url, collection, query_id, run, outcomes[name])
    return outcomes


def _ask(
    client: httpx.Client, url: str, collection: Collection, query_id: str, run: list[tuple[str, float]], out: Outcome
) -> None:
    candidates = [
        {"id": document, "text": collection.documents[document], "scores": {"bm25": score}} for document, score in run
    ]
    body = {"query": collection.queries[query_id], "candidates": candidates, "explain": True}
    began = time.perf_counter()
    answer = client.post(f"{url}/v1/cascade/rerank", json=body).raise_for_status().json()
    out.milliseconds.append((time.perf_counter() - began) * 1000)
    ranked = [result["id"] for result in answer["results"]]
    if sorted(ranked) != sorted(document for document, _ in run):
        raise RuntimeError(f"query {query_id}: the answer is not a permutation of its candidates")
    rounds = answer["explain"]["rounds"]
    out.large_pairs.append(sum(item["scored"] for item in rounds if item["stage"] == "large"))
    out.small_calls.append(sum(item.get("calls", 0) for item in rounds if item["stage"] == "small"))
    out.degraded += bool(answer["degraded"])
    _judge(out, ranked, collection.judgements[query_id])


def _judge(out: Outcome, ranked: Sequence[str], grades: Mapping[str, int]) -> None:
    for name, metric in METRICS.items():
        out.scores[name].append(metric(ranked, grades))


def interval(differences: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return a 95% percentile interval of the mean by 5,000 paired bootstrap draws over queries."""
    values = np.asarray(differences)
    draws = np.random.default_rng(seed).integers(0, len(values), (5000, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def summary(outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """Return one row a variant: means, differences in nDCG@10 to BM25 and to always-large, cost and time."""
    rows = []
    for name, out in outcomes.items():
        row: dict[str, Any] = {"variant": name, "queries": len(out.scores["mrr"])}
        row |= {metric: round(float(np.mean(values)), 4) for metric, values in out.scores.items()}
        for other in ("bm25", "always-large"):
            if name != other:
                pairs = zip(out.scores["ndcg@10"], outcomes[other].scores["ndcg@10"], strict=True)
                differences = [mine - theirs for mine, theirs in pairs]
                low, high = interval(differences)
                row[f"ndcg@10 vs {other}"] = [round(float(np.mean(differences)), 4), round(low, 4), round(high, 4)]
        if out.milliseconds:
            row["large_pairs_mean"] = round(statistics.mean(out.large_pairs), 2)
            row["small_calls_mean"] = round(statistics.mean(out.small_calls), 2)
            row["ms_median"] = round(statistics.median(out.milliseconds), 1)
            row["ms_p95"] = round(float(np.percentile(out.milliseconds, 95)), 1)
            row["degraded"] = out.degraded
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table for each collection, and write JSON where asked."""
    parser = argparse.ArgumentParser(description="The main job on real collections.")
    parser.add_argument("--collection", action="append", help="folder name in the shared data, or a path")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    given = parser.parse_args(arguments)
    report: dict[str, Any] = {"machine": {"cpus": os.cpu_count(), "system": platform.platform(terse=True)}}
    for name in given.collection or ["cranfield", "dbpedia-entity-sample"]:
        folder = Path(name) if Path(name).is_dir() else shared_data() / "beir" / name
        if not folder.is_dir():
            print(f"{name}: not here, skipped (set CASCADE_DATA to the folder of real collections)")
            continue
        rows = summary(measure(load_collection(folder)))
        report[folder.name] = rows
        print(f"\n{folder.name}: {rows[0]['queries']} queries, BM25's top {_DEPTH}")
        for row in rows:
            print("  ".join(f"{key}={value}" for key, value in row.items() if key != "queries"))
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
