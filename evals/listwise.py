"""What a listwise large stage is worth on real orders: RankGPT's and RankVicuna's, on TREC DL 2019 and 2020.

    python -m evals.listwise --out evals/reports/listwise.json --page evals/listwise.md

In the shape of CoRanking: the small stage ranks all, the large one orders its first 20 in one call. Costs are calls a
query, since a call orders the whole list. A gate sends the share of queries whose small order is least certain; random and
oracle send as many. Read in place; no model is called.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.metrics import Gain
from cascade.replay.baselines import small_ranks
from cascade.replay.columns import FloatArray
from cascade.replay.intervals import Figure, figure, resampled
from cascade.replay.queries import ReplayedQuery, Roles, replayed
from cascade.replay.sweep import Metric, outcome
from cascade.replay.table import ScoreTable, read_table
from evals.first_stage import shared_data
from evals.listwise_page import page

__all__ = ["Pair", "main", "measured"]

_K: Final = 10
_TOPS: Final = (10, 20)
_SHARES: Final = (0.25, 0.5, 0.75)
_RESAMPLES: Final = 4000
_DL: Final = ("trec-dl-19", "trec-dl-20")
_RUNS: Final = {
    "RankGPT-3.5": tuple(f"rankgpt35_rank_{run}" for run in range(1, 6)),
    "RankVicuna-7B": tuple(f"rankvicuna7b_rank_{run}" for run in range(1, 4)),
}
_SMALL: Final = ("minilm_l12", "bge_small")


@dataclass(frozen=True, slots=True)
class Pair:
    """A small stage, and the columns of the runs of a large one: its order of the same lists, again and again."""

    small: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Played:
    """nDCG@10 of each query: of the small order (Q,), and of the first m, or all, ordered by each run (R, Q)."""

    small: FloatArray
    ordered: Mapping[int, FloatArray]
    whole: FloatArray
    doubt: FloatArray


def measured(tables: Sequence[ScoreTable], pair: Pair, seed: int = 0) -> dict[str, Any]:
    """Return the figures of a pair on the queries of ``tables``, each with its 95% interval over queries."""
    played = _play(tables, pair)
    count = played.small.size

    def told(values: FloatArray) -> list[float | None]:
        return _rounded(figure(resampled(count, _RESAMPLES, seed).means(values), count, "not defined"))

    whole = played.ordered[max(_TOPS)].mean(axis=0)
    gain = whole - played.small
    sent = {share: _first(played.doubt, share) for share in _SHARES}
    return {
        "queries": count,
        "runs": len(pair.runs),
        "small": told(played.small),
        "large": told(played.whole.mean(axis=0)),
        "static": {str(top): told(runs.mean(axis=0)) for top, runs in played.ordered.items()},
        "static minus small": {
            str(top): told(runs.mean(axis=0) - played.small) for top, runs in played.ordered.items()
        },
        "better, equal, worse": [
            int((gain > 1e-9).sum()),
            int((np.abs(gain) <= 1e-9).sum()),
            int((gain < -1e-9).sum()),
        ],
        "sd of a query over runs": round(float(played.ordered[max(_TOPS)].std(axis=0, ddof=1).mean()), 4),
        "minus small, at a share of the calls": {
            f"{share:g}": {
                "gate": told(np.where(gated, gain, 0.0)),
                "random": told(gated.mean() * gain),
                "oracle": told(np.where(_first(gain, share), gain, 0.0)),
                "gate minus random": told(np.where(gated, gain, 0.0) - gated.mean() * gain),
            }
            for share, gated in sent.items()
        },
        "oracle minus small": {
            "calls a query": round(float((gain > 1e-9).mean()), 3),
            "seeing the runs": told(np.maximum(gain, 0.0)),
            "chosen on other runs": told(_crossfitted(played.ordered[max(_TOPS)] - played.small)),
        },
    }


def _play(tables: Sequence[ScoreTable], pair: Pair) -> _Played:
    by_run = [replayed(list(tables), Roles(("bm25",), pair.small, run), _K, Gain.LINEAR).queries for run in pair.runs]
    if len({tuple(query.id for query in queries) for queries in by_run}) != 1:
        raise ValueError("the runs have different queries")
    first = by_run[0]
    none = [outcome(query, np.zeros((1, query.small.size), dtype=np.bool_), _K) for query in first]
    return _Played(
        small=np.array([found.metrics[Metric.NDCG][0] for found in none]),
        ordered={top: np.array([_ordered(queries, top) for queries in by_run]) for top in _TOPS},
        whole=np.array([_ordered(queries, max(query.small.size for query in queries)) for queries in by_run]),
        doubt=np.array([_doubt(query.small) for query in first]),
    )


def _ordered(queries: Sequence[ReplayedQuery], top: int) -> list[float]:
    """Return nDCG@10 of each query whose first ``top`` of the small order stand in the large order."""
    sets = (ranks < top for ranks in small_ranks(queries))
    found = (outcome(query, sent[None, :], _K) for query, sent in zip(queries, sets, strict=True))
    return [float(one.metrics[Metric.NDCG][0]) for one in found]


def _doubt(small: FloatArray) -> float:
    """Return how little the small scores fall over the first ten, in units of the spread of all: higher is less certain."""
    scores = np.sort(small[np.isfinite(small)])[::-1]
    spread = 1.4826 * float(np.median(np.abs(scores - np.median(scores)))) + 1e-9
    return -float(scores[0] - scores[min(_K, scores.size) - 1]) / spread


def _first(values: FloatArray, share: float) -> NDArray[np.bool_]:
    """Return which queries are the given share with the highest values; of equal ones the first."""
    chosen = np.zeros(values.size, dtype=np.bool_)
    chosen[np.argsort(-values, kind="stable")[: round(share * values.size)]] = True
    return chosen


def _crossfitted(gains: FloatArray) -> FloatArray:
    """Return each query's gain on a run, sent where the mean of the other runs gains: what of an oracle is no luck."""
    others = (gains.sum(axis=0) - gains) / (len(gains) - 1)
    return np.asarray(np.where(others > 0.0, gains, 0.0).mean(axis=0))


def _rounded(found: Figure) -> list[float | None]:
    low, high = found.interval or (None, None)
    return [None if value is None else round(value, 4) for value in (found.value, low, high)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every pair and write the report and its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, required=True)
    asked = parser.parse_args(arguments)
    tables = [read_table(shared_data() / f"{name}.parquet") for name in _DL]
    told = {
        f"{small} -> {large}": measured(tables, Pair(small, runs)) for small in _SMALL for large, runs in _RUNS.items()
    }
    asked.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    asked.page.write_text(page(told), encoding="utf-8")


if __name__ == "__main__":
    main()
