"""Measure where the time of the demo's request goes, in processes that have not seen its documents, and of the same again.

python evals/demo_split.py [--times 9]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from cascade.replay.collection import load_collection
from cascade.replay.first_stage import FirstStage
from evals.sidecar import running_sidecar

_COLLECTION = Path(__file__).parent / "collections" / "lighthouse"
_QUERY = "q01"
_CANDIDATES = 50


def main() -> int:
    """Ask a new sidecar, then again; as often as asked. Print medians of each part; exits with 1 where an answer is degraded."""
    parser = argparse.ArgumentParser(description="Measure where the time of the demo's request goes.")
    parser.add_argument("--times", type=int, default=9, help="how many sidecars are started")
    asked = parser.parse_args()
    collection = load_collection(_COLLECTION)
    query = collection.queries[_QUERY]
    found = FirstStage(collection).search(query, _CANDIDATES)
    body = {"query": query, "candidates": [{"text": collection.documents[each]} for each, _ in found], "explain": True}
    times: list[list[dict[str, float]]] = []
    for _ in range(asked.times):
        with running_sidecar() as (url, _admin), httpx.Client(base_url=url, timeout=60) as client:
            explains = [
                client.post("/v1/cascade/rerank", json=body).raise_for_status().json()["explain"] for _ in range(2)
            ]
        if any(explain["degraded"] for explain in explains):
            print("an answer was degraded: the machine is too busy to measure on", file=sys.stderr)
            return 1
        times.append([_split(explain) for explain in explains])
    print(
        f"{len(found)} candidates, {asked.times} sidecars, load average {os.getloadavg()[0]:.2f}; ms, median (least to most)\n"
    )
    print("| part | documents unseen | the same again |\n|---|---:|---:|")
    for part in times[0][0]:
        print(f"| {part} | {' | '.join(_told([pair[again][part] for pair in times]) for again in (0, 1))} |")
    return 0


def _split(explain: dict[str, Any]) -> dict[str, float]:
    parts = {"request": explain["total_ms"], "no stage awaited": explain["own_ms"]}
    for each in explain["rounds"]:
        parts[f"{each['stage']}: round"] = each["elapsed_ms"]
        for part in ("queue", "tokenize", "compute"):
            parts[f"{each['stage']}: {part}"] = each[f"{part}_ms"]
    return parts


def _told(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    sys.exit(main())
