"""What calibrated escalation is worth on real scores, against the baselines that are hard to beat.

Fits on one part of a collection and replays on another, both ways round, and writes every figure with its
interval. Reads score tables in place; calls no model. `python -m evals.decide --out FILE [--only NAME]`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import sklearn

from cascade.calibration.artefact import CalibrationArtefact, artefact_bytes, artefact_digest
from cascade.calibration.calibrated import Calibration
from cascade.fit.benefit import shown_benefit
from cascade.fit.calibrate import Asked, calibrate
from cascade.metrics import Gain
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import CalibratedEscalation
from cascade.policy.release import Limits
from cascade.replay import baselines
from cascade.replay.intervals import Figure
from cascade.replay.measure import Contest, Measured, measure
from cascade.replay.points import at_price, at_setting, points_beside
from cascade.replay.policy import Policy, play
from cascade.replay.queries import ReplayedQuery, Roles, replayed
from cascade.replay.sweep import Metric, Sweep, outcome, sweep_of
from cascade.replay.table import ScoreTable, read_table
from evals.first_stage import shared_data

_PRICE: Final = 0.002
_RESAMPLES: Final = 2000
_JQARA: Final = {
    "xsmall-bge": Roles(("bm25", "me5_small", "bge_m3_dense"), "ce_ja_xsmall", "ce_bge_v2_m3"),
    "xsmall-large": Roles(("bm25", "me5_small", "bge_m3_dense"), "ce_ja_xsmall", "ce_ja_large"),
    "me5-large": Roles(("bm25", "bge_m3_dense"), "me5_small", "ce_ja_large"),
}
_SOURCES: Final = ("QA20CAPR", "QA20QBIK")
_DL: Final = ("trec-dl-19", "trec-dl-20")


@dataclass(frozen=True, slots=True)
class Split:
    """Queries to be replayed by a calibration that has not seen them."""

    queries: Sequence[ReplayedQuery]
    calibration: Calibration


def main() -> None:
    """Run the experiments named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=sorted(_EXPERIMENTS), default=sorted(_EXPERIMENTS))
    parser.add_argument(
        "--tables", type=Path, help="folder of the tables made by `cascade collect`: cranfield, dbpedia"
    )
    asked = parser.parse_args()
    done: dict[str, Any] = {"conditions": _conditions()}
    for name in asked.only:
        began = time.monotonic()
        done[name] = _EXPERIMENTS[name](asked.tables)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        asked.out.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


def jqara(_: Path | None) -> dict[str, Any]:
    """Fit on one source of JQaRA and test on the other, both ways, three pairs, k = 10, 3, 1 and MRR."""
    table = read_table(shared_data() / "jqara.parquet")
    told: dict[str, Any] = {}
    for train, test in itertools.permutations(_SOURCES):
        for name, roles in _JQARA.items():
            calibration = _fitted([table.where("source", train)], roles)
            told[f"{train} -> {test}, {name}"] = {
                "calibration": _described(calibration.artefact),
                **{
                    f"{metric}@{k}" if metric is Metric.NDCG else metric.value: _figures(
                        [Split(_queries([table.where("source", test)], roles, k), calibration)], k, metric
                    )
                    for k, metric in ((10, Metric.NDCG), (3, Metric.NDCG), (1, Metric.NDCG), (10, Metric.MRR))
                },
            }
    return told


def controls(_: Path | None) -> dict[str, Any]:
    """Shuffle what is learnt from; learn from 100 queries; one round; and gates on whole queries."""
    table = read_table(shared_data() / "jqara.parquet")
    train, test = (table.where("source", source) for source in _SOURCES)
    told: dict[str, Any] = {}
    for name, roles in _JQARA.items():
        queries = _queries([test], roles, 10)
        whole = _fitted([train], roles)
        few = _fitted([train.take(np.random.default_rng(0).permutation(len(train.query_ids))[:100])], roles)
        shuffled = _fitted([_shuffled(train, roles.large)], roles)
        told[name] = {
            "shuffled": _figures([Split(queries, shuffled)], 10, Metric.NDCG),
            "100 queries": _figures([Split(queries, few)], 10, Metric.NDCG),
            "one round": _figures([Split(queries, whole)], 10, Metric.NDCG, {"rounds": 1}),
            "gates": _gates(queries, whole),
        }
    return told


def dl(_: Path | None) -> dict[str, Any]:
    """TREC DL: a pair with a real gap, fitted on one year and tested on the other; and larger stages that harm."""
    tables = {name: read_table(shared_data() / f"{name}.parquet") for name in _DL}
    told: dict[str, Any] = {}
    for channels in (("bm25",), ("bm25", "splade_pp_ed")):
        roles = Roles(channels, "bge_small", "minilm_l12")
        fitted = {name: _fitted([table], roles) for name, table in tables.items()}
        for gain in Gain:
            splits = [
                Split(_queries([tables[test]], roles, 10, gain), fitted[train])
                for train, test in itertools.permutations(_DL)
            ]
            told[f"bge_small -> minilm_l12, {'+'.join(channels)}, {gain.value}"] = _figures(splits, 10, Metric.NDCG)
    for large in ("rankgpt35_rank_1", "rankvicuna7b_rank_1"):
        queries = _queries(list(tables.values()), Roles(("bm25",), "minilm_l12", large), 10)
        told[f"minilm_l12 -> {large}"] = shown_benefit(queries, 10, 0).model_dump()
    return told


def packaged(tables: Path | None) -> dict[str, Any]:
    """Tables that `cascade collect` made with the packaged models: halves of Cranfield, and Cranfield for DBpedia."""
    names = ("cranfield", "dbpedia")
    if tables is None or not all((tables / f"{name}.parquet").exists() for name in names):
        return {"not run": "no tables named cranfield.parquet and dbpedia.parquet"}
    cranfield, dbpedia = (read_table(tables / f"{name}.parquet") for name in names)
    roles = Roles(("bm25",), "small", "large")
    order = np.random.default_rng(0).permutation(len(cranfield.query_ids))
    halves = [cranfield.take(part) for part in np.array_split(order, 2)]
    by_half, whole = [_fitted([half], roles) for half in halves], _fitted([cranfield], roles)
    told: dict[str, Any] = {name: {} for name in names}
    for k in (10, 3, 1):
        told["cranfield"][f"k={k}"] = {
            "benefit": shown_benefit(_queries([cranfield], roles, k), k, 0).model_dump(),
            **_figures([Split(_queries([halves[1 - n]], roles, k), by_half[n]) for n in (0, 1)], k, Metric.NDCG),
        }
        told["dbpedia"][f"k={k}"] = {
            "benefit": shown_benefit(_queries([dbpedia], roles, k), k, 0).model_dump(),
            **_figures([Split(_queries([dbpedia], roles, k), whole)], k, Metric.NDCG),
        }
    return told


_EXPERIMENTS: Final[Mapping[str, Callable[[Path | None], dict[str, Any]]]] = {
    "jqara": jqara,
    "controls": controls,
    "dl": dl,
    "packaged": packaged,
}


def _fitted(tables: Sequence[ScoreTable], roles: Roles) -> Calibration:
    artefact = calibrate(tables, Asked(roles, allow_few=True))
    return Calibration(artefact, artefact_digest(artefact_bytes(artefact)))


def _queries(tables: Sequence[ScoreTable], roles: Roles, k: int, gain: Gain = Gain.LINEAR) -> Sequence[ReplayedQuery]:
    return replayed(list(tables), roles, k, gain).queries


def _shuffled(table: ScoreTable, column: str) -> ScoreTable:
    """Return the table with the column's scores shuffled within each query."""
    rng = np.random.default_rng(0)
    values = table.column(column).copy()
    for query in range(len(table.query_ids)):
        rows = table.rows(query)
        values[rows] = rng.permutation(values[rows])
    return replace(table, scores={**table.scores, column: values})


def _figures(splits: Sequence[Split], k: int, metric: Metric, rule: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Replay every split by its own calibration and measure all queries together."""
    contests = [_sweeps(split, k, metric, rule or {}) for split in splits]
    sweeps = {name: Sweep.side_by_side([contest[name] for contest in contests]) for name in contests[0]}
    own = sweeps["policy"].settings.index(_PRICE)
    points = points_beside(sweeps, at_setting(sweeps["policy"], own, "its price"))
    return _told(measure(Contest(sweeps, points, 0.0005), _RESAMPLES, 0))


def _sweeps(split: Split, k: int, metric: Metric, rule: Mapping[str, Any]) -> dict[str, Sweep]:
    queries, calibration = split.queries, split.calibration
    escalation = CalibratedEscalation.model_validate(
        {"kind": "calibrated", "calibration": calibration.sha256, "k": k, "price_per_pair": _PRICE, **rule}
    )
    depth = max(query.pairs for query in queries)
    policy = Policy(escalation, FixedDepth(depth=depth), Limits(max_candidates=depth), calibration, None, {})
    small = baselines.small_ranks(queries)
    fused = baselines.fused_ranks(queries, calibration, k)
    sweeps = (
        baselines.first_stage(queries, k, metric),
        baselines.small(queries, k, metric),
        baselines.large(queries, k, metric),
        baselines.static(queries, k, metric, small),
        baselines.static(queries, k, metric, fused, "static-fused"),
        baselines.random(queries, k, metric),
        baselines.oracle(queries, k, metric, fused),
        play(queries, policy, k, metric).sweep,
    )
    return {sweep.name: sweep for sweep in sweeps}


def _gates(queries: Sequence[ReplayedQuery], calibration: Calibration) -> dict[str, Any]:
    """Escalate whole queries, the least certain first, by each calibrated feature; the area under the curve.

    Random gives 0.3 exactly: the mean of the costs 0.10 to 0.50.
    """
    features: dict[str, list[float]] = {"margin": [], "entropy": [], "expected_loss": [], "p_acceptable": []}
    for query in queries:
        small, channels = baselines.within_depth(query)
        p = calibration.entry(small, channels)
        order = np.argsort(-small, kind="stable")
        found = calibration.summary(p, order, 10)
        features["margin"].append(-found.margin)
        features["entropy"].append(found.entropy)
        features["expected_loss"].append(found.expected_loss)
        features["p_acceptable"].append(-(found.p_acceptable or 0.0))
    ends = {
        each.name: each
        for each in (baselines.small(queries, 10, Metric.NDCG), baselines.large(queries, 10, Metric.NDCG))
    }
    sweeps = dict(ends)
    for name, doubt in features.items():
        rank = np.argsort(np.argsort(-np.array(doubt), kind="stable"), kind="stable")
        shares = np.linspace(1.0, 0.0, 51)
        outcomes = [
            outcome(query, (place < shares * len(queries))[:, None] & (np.arange(query.small.size) < query.pairs), 10)
            for query, place in zip(queries, rank, strict=True)
        ]
        sweeps[name] = sweep_of(name, shares.tolist(), outcomes, Metric.NDCG)
    sweeps["first-stage"] = baselines.first_stage(queries, 10, Metric.NDCG)
    sweeps["static"] = baselines.static(queries, 10, Metric.NDCG, baselines.small_ranks(queries))
    measured = measure(
        Contest(sweeps, points_beside(sweeps, at_price(sweeps["static"], 0.0005)), 0.0005), _RESAMPLES, 0
    )
    return {name: _figure(measured.area_10_50[name]) for name in features}


def _told(measured: Measured) -> dict[str, Any]:
    return {
        "queries": measured.queries,
        "gap": _figure(measured.gap),
        "area_10_50": {name: _figure(found) for name, found in measured.area_10_50.items()},
        "cost_at_recovered": {
            name: {level: _figure(found) for level, found in levels.items()}
            for name, levels in measured.cost_at_recovered.items()
        },
        "differences": {
            f"{one.name} - {one.baseline}": {
                "area_10_50": _figure(one.area_10_50),
                **{level: _figure(found) for level, found in one.cost_at_recovered.items()},
            }
            for one in measured.differences
            if one.baseline in ("static", "static-fused")
        },
    }


def _figure(found: Figure) -> list[float | None]:
    low, high = found.interval or (None, None)
    return [None if x is None else round(x, 4) for x in (found.value, low, high)]


def _described(artefact: CalibrationArtefact) -> dict[str, Any]:
    return {
        "queries": artefact.trained_on.queries,
        "benefit": artefact.benefit.model_dump(),
        "prices": [point.model_dump() for point in artefact.prices],
        "reliability": [
            {key: value for key, value in row.model_dump().items() if key != "bins"}
            for row in artefact.reliability
            if row.query_class == "all"
        ],
        "notes": list(artefact.notes),
    }


def _conditions() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "resamples": _RESAMPLES,
        "cost": "share of the large stage's pairs over all candidates of all queries",
    }


if __name__ == "__main__":
    main()
