"""Which embedded small stage earns its place: orders of BM25's top 50 by each, against BM25 and the large stage.

    python -m evals.small_stage [--collection cranfield ...] [--json FILE]

Compared are a lexical scorer over the candidates, bge-small with document vectors kept, and MiniLM-L12 at
64 tokens; the large stage is MiniLM-L12 at 512 tokens. Stages are the sidecar's own code, one text or pair a
call on one thread. Prints nDCG and MRR, the interval of the difference to BM25, and milliseconds a candidate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from cascade.guard.deadline import Deadline
from cascade.policy.merge import merge, order_by_score
from cascade.policy.release import EmbeddingStage, OnnxStage, parse_release
from cascade.replay.collection import load_collection
from cascade.replay.first_stage import FirstStage
from cascade.rollout.load import default_release_path
from cascade.stages.embedding import EmbeddingReranker
from cascade.stages.engine.workers import worker_pool
from cascade.stages.onnx import OnnxReranker
from cascade.text import Text
from evals.first_stage import shared_data
from evals.main_job import METRICS, interval

__all__ = ["lexical_scores", "main"]

_DEPTH: Final = 50
_DEPTHS_OF_ESCALATION: Final = (5, 10, 20, 30)
_WORD: Final = re.compile(r"\w+")


def lexical_scores(query: str, documents: Sequence[str]) -> list[float]:
    """Score documents by BM25 with idf over the candidates themselves, and half a point for each query bigram kept."""
    words = [_WORD.findall(document.lower()) for document in documents]
    wanted = _WORD.findall(query.lower())
    counts = [Counter(listed) for listed in words]
    mean_length = statistics.mean(map(len, words)) or 1.0
    frequency = Counter(word for count in counts for word in count)
    pairs = set(pairwise(wanted))
    scores = []
    for listed, count in zip(words, counts, strict=True):
        norm = 1.5 * (0.25 + 0.75 * len(listed) / mean_length)
        score = sum(
            math.log1p((len(documents) - frequency[word] + 0.5) / (frequency[word] + 0.5))
            * count[word]
            * 2.5
            / (count[word] + norm)
            for word in set(wanted)
        )
        scores.append(score + 0.5 * len(pairs & set(pairwise(listed))))
    return scores


async def _measure(folder: Path) -> list[dict[str, Any]]:
    collection = load_collection(folder)
    first_stage = FirstStage(collection)
    judged = [q for q in collection.queries if any(grade > 0 for grade in collection.judgements[q].values())]
    release = parse_release(yaml.safe_load(default_release_path().read_text(encoding="utf-8")))
    small, large = release.stages.small, release.stages.large
    if not isinstance(small, EmbeddingStage) or not isinstance(large, OnnxStage):
        raise TypeError("the default release is not embedded")
    with worker_pool(1) as pool:
        stages: dict[str, EmbeddingReranker | OnnxReranker] = {
            "bge-small, vectors kept": EmbeddingReranker("small", small, pool, time.monotonic),
            "MiniLM-L12, 64 tokens": OnnxReranker(
                "small", large.model_copy(update={"max_length": 64}), pool, time.monotonic
            ),
            "MiniLM-L12, 512 tokens (large)": OnnxReranker("large", large, pool, time.monotonic),
        }
        for stage in stages.values():
            await stage.start()
        scores: dict[str, list[list[float]]] = {name: [] for name in ("lexical", *stages)}
        spent: dict[str, list[float]] = {name: [] for name in (*scores, "bge-small, as documents came")}
        runs = [[document for document, _ in first_stage.search(collection.queries[q], _DEPTH)] for q in judged]
        for query_id, run in zip(judged, runs, strict=True):
            query, documents = collection.queries[query_id], [collection.documents[document] for document in run]
            began = time.perf_counter()
            scores["lexical"].append(lexical_scores(query, documents))
            spent["lexical"].append((time.perf_counter() - began) * 1000 / len(run))
            for name, stage in stages.items():
                if isinstance(stage, EmbeddingReranker):
                    spent["bge-small, as documents came"].append(await _score(stage, query, documents, None))
                scored: list[float] = []
                spent[name].append(await _score(stage, query, documents, scored))
                scores[name].append(scored)
    grades = [collection.judgements[query_id] for query_id in judged]
    return _table(runs, scores, spent, grades)


async def _score(
    stage: EmbeddingReranker | OnnxReranker, query: str, documents: Sequence[str], scored: list[float] | None
) -> float:
    """Return milliseconds a candidate; append the scores where a list is given."""
    deadline = Deadline.after_ms(600_000, time.monotonic)
    began = time.perf_counter()
    answer = await stage.score(Text(query), [Text(d) for d in documents], deadline=deadline, call_id="eval")
    elapsed = (time.perf_counter() - began) * 1000
    if scored is not None:
        scored.extend(score for score in answer.scores if score is not None)
    return elapsed / len(documents)


def _table(
    runs: Sequence[Sequence[str]],
    scores: Mapping[str, Sequence[Sequence[float]]],
    spent: Mapping[str, Sequence[float]],
    grades: Sequence[Mapping[str, int]],
) -> list[dict[str, Any]]:
    large = scores["MiniLM-L12, 512 tokens (large)"]
    orders: dict[str, list[list[int]]] = {"BM25": [list(range(len(run))) for run in runs]}
    orders |= {
        name: [order_by_score(range(len(row)), dict(enumerate(row))) for row in rows] for name, rows in scores.items()
    }
    for name in list(orders):
        if "large" not in name:
            for m in _DEPTHS_OF_ESCALATION:
                orders[f"{name} -> large, m={m}"] = [
                    merge(
                        len(order),
                        {index: -rank for rank, index in enumerate(order)},
                        {index: row[index] for index in order[:m]},
                    )[0]
                    for order, row in zip(orders[name], large, strict=True)
                ]
    baseline = [_values([runs[q][i] for i in order], grades[q])["ndcg@10"] for q, order in enumerate(orders["BM25"])]
    rows = []
    for name, listed in orders.items():
        values = [_values([runs[q][i] for i in order], grades[q]) for q, order in enumerate(listed)]
        row: dict[str, Any] = {"order": name, "queries": len(values)}
        row |= {metric: round(float(np.mean([value[metric] for value in values])), 4) for metric in METRICS}
        difference = [value["ndcg@10"] - base for value, base in zip(values, baseline, strict=True)]
        row["ndcg@10 vs BM25"] = [round(number, 4) for number in (float(np.mean(difference)), *interval(difference))]
        if name in spent:
            row["ms a candidate"] = round(statistics.mean(spent[name]), 3)
        rows.append(row)
    rows.append(
        {
            "order": "bge-small, as documents came",
            "ms a candidate": round(statistics.mean(spent["bge-small, as documents came"]), 3),
        }
    )
    return rows


def _values(ranked: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    return {name: metric(ranked, grades) for name, metric in METRICS.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description="Which embedded small stage earns its place.")
    parser.add_argument("--collection", action="append", help="folder name in the shared data, or a path")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    given = parser.parse_args(arguments)
    report: dict[str, Any] = {}
    for name in given.collection or ["cranfield", "dbpedia-entity-sample"]:
        folder = Path(name) if Path(name).is_dir() else shared_data() / "beir" / name
        if not folder.is_dir():
            print(f"{name}: not here, skipped (set CASCADE_DATA to the folder of real collections)")
            continue
        report[folder.name] = asyncio.run(_measure(folder))
        print(f"\n{folder.name}")
        for row in report[folder.name]:
            print("  ".join(f"{key}={value}" for key, value in row.items()))
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
