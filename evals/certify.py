"""How much of always-large's pairs a certificate still asks for, on real scores, and whether it holds on the rest.

Parts JQaRA anew by each seed: 40% of all queries certify; the others fit the calibration and choose the path. Reads
score tables in place; calls no model. `python -m evals.certify --work DIR --out FILE [--seeds N] [--only NAME]`.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import sklearn
from numpy.typing import NDArray

from cascade.calibration.artefact import artefact_bytes, artefact_digest
from cascade.calibration.calibrated import Calibration
from cascade.fit.calibrate import Asked as ToFit
from cascade.fit.calibrate import fit_calibration
from cascade.fit.certify.attempts import delta_of
from cascade.fit.certify.path import choose_path
from cascade.fit.certify.policies import Policies
from cascade.fit.certify.reading import pairs_of
from cascade.fit.certify.replays import Family, Replay
from cascade.fit.certify.splits import Shares, betting_order, parted
from cascade.metrics import Gain
from cascade.replay import baselines
from cascade.replay.queries import ReplayedQuery, Roles, replayed
from cascade.replay.sweep import Metric
from cascade.replay.table import ScoreTable, read_table
from evals.certify_bounds import BOUNDS, accepted
from evals.first_stage import shared_data

FloatArray = NDArray[np.float64]

_K: Final = 10
_EPSILONS: Final = (0.005, 0.01, 0.02)
_DELTA: Final = 0.1
_CERTIFY: Final = 0.4
_FAMILIES: Final = (Family.STATIC, Family.FUSED, Family.CALIBRATED)
_OURS: Final = "star, informed"
_FIRST: Final = "star, informed, first of many attempts"
_COLUMNS: Final = ("ce_ja_xsmall", "ce_bge_v2_m3")
_THREE: Final = ("bm25", "me5_small", "bge_m3_dense")


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to part and read the queries: ``fit`` of all fit and choose; those beyond certify are left untouched."""

    channels: tuple[str, ...]
    fit: float


_VARIANTS: Final[Mapping[str, Variant]] = {
    "60% fit and choose": Variant(_THREE, 0.6),
    "30% fit and choose, 30% untouched": Variant(_THREE, 0.3),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One seed, by family: losses (S, Q) of those that choose, that certify, and of the rest; shares (S,) of pairs."""

    chosen: FloatArray
    chosen_shares: FloatArray
    losses: FloatArray
    shares: FloatArray
    rest: FloatArray


def main() -> None:
    """Run the variants named, all by default; what a seed gave is kept in the work folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for what each seed gave")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", nargs="*", choices=sorted(_VARIANTS), default=list(_VARIANTS))
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    table = read_table(shared_data() / "jqara.parquet")
    done: dict[str, Any] = {"conditions": _conditions(asked.seeds, asked.only)}
    for name in asked.only:
        trials = []
        for seed in range(asked.seeds):
            began = time.monotonic()
            trials.append(_kept(asked.work / f"{list(_VARIANTS).index(name)}-{seed}.npz", table, _VARIANTS[name], seed))
            print(f"{name}, seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
        done[name] = _figures(trials)
        asked.out.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


def _kept(path: Path, table: ScoreTable, variant: Variant, seed: int) -> dict[Family, Trial]:
    """Return what a seed gave before, else work it out and keep it."""
    if not path.exists():
        found = trial(table, Roles(variant.channels, *_COLUMNS), variant.fit, seed)
        fields = {f"{family}|{name}": getattr(one, name) for family, one in found.items() for name in Trial.__slots__}
        np.savez_compressed(path, **fields)
    with np.load(path) as read:
        return {family: Trial(*(read[f"{family}|{name}"] for name in Trial.__slots__)) for family in _FAMILIES}


def trial(table: ScoreTable, roles: Roles, fit: float, seed: int) -> dict[Family, Trial]:
    """Fit and choose on one part of the queries, and replay every family on that, on 40%, and on what is left.

    Where nothing is left, the rest is what fits and chooses: each query by models that have not seen it.
    """
    untouched = 1.0 - fit - _CERTIFY
    parts = parted(table, Shares(fit, max(0.0, untouched), _CERTIFY), seed)
    fitted = fit_calibration([parts.fit], ToFit(roles, _K, seed=seed))
    calibration = Calibration(fitted.artefact, artefact_digest(artefact_bytes(fitted.artefact)))
    certify = replayed([parts.certify], roles, _K, Gain.LINEAR).queries
    order = betting_order([query.id for query in certify], seed)
    rest = replayed([parts.choose], roles, _K, Gain.LINEAR).queries if parts.choose.query_ids else ()
    found = {}
    for family in _FAMILIES:
        policies = Policies((family,), _K, 100, calibration)
        choosing = policies.replay_fitted(fitted.queries, fitted)
        certifying = policies.replay(certify)
        chosen = _losses(fitted.queries, choosing)
        found[family] = Trial(
            chosen,
            _shares(fitted.queries, choosing),
            _losses(certify, certifying)[:, order],
            _shares(certify, certifying),
            _losses(rest, policies.replay(rest)) if rest else chosen,
        )
    return found


def _losses(queries: Sequence[ReplayedQuery], replay: Replay) -> FloatArray:
    return np.asarray(baselines.large(queries, _K, Metric.NDCG).quality[0] - replay.quality)


def _shares(queries: Sequence[ReplayedQuery], replay: Replay) -> FloatArray:
    return np.asarray(replay.pairs.mean(axis=1) / pairs_of(queries).mean())


def _figures(trials: Sequence[Mapping[Family, Trial]]) -> dict[str, Any]:
    return {
        sided: {
            f"{epsilon:g}": {
                family.value: _bounds([_sided(trial[family], sided) for trial in trials], epsilon)
                for family in _FAMILIES
            }
            for epsilon in _EPSILONS
        }
        for sided in ("two-sided", "one-sided")
    }


def _sided(trial: Trial, sided: str) -> Trial:
    """Return the trial as it is, or with harm alone as loss."""
    if sided == "two-sided":
        return trial
    chosen, losses, rest = (np.maximum(values, 0.0) for values in (trial.chosen, trial.losses, trial.rest))
    return Trial(chosen, trial.chosen_shares, losses, trial.shares, rest)


def _bounds(trials: Sequence[Trial], epsilon: float) -> dict[str, Any]:
    told = {bound: _outcomes(trials, bound, epsilon, _DELTA) for bound in BOUNDS}
    return told | {_FIRST: _outcomes(trials, _OURS, epsilon, delta_of(_DELTA, 1))}


def _outcomes(trials: Sequence[Trial], bound: str, epsilon: float, delta: float) -> dict[str, Any]:
    """Return shares, always-large's where nothing is certified, and how often the rest lost more than epsilon."""
    shares, rest = [], []
    for one in trials:
        path = choose_path(one.chosen, one.chosen_shares, epsilon)
        at = accepted(BOUNDS[bound], one.losses, one.chosen, path, epsilon, delta)
        shares.append(1.0 if at is None else float(one.shares[at]))
        rest.append(0.0 if at is None else float(one.rest[at].mean()))
    return {
        "share": round(float(np.mean(shares)), 4),
        "sd": round(float(np.std(shares, ddof=1)), 4) if len(shares) > 1 else None,
        "range": [round(min(shares), 4), round(max(shares), 4)],
        "certified": sum(share < 1.0 for share in shares),
        "rest_above_epsilon": sum(loss > epsilon for loss in rest),
        "rest_mean_loss": round(float(np.mean(rest)), 5),
        "seeds": len(shares),
    }


def _conditions(seeds: int, names: Sequence[str]) -> dict[str, Any]:
    return {
        "table": "jqara.parquet, 1667 queries of 100 candidates",
        "pair": " -> ".join(_COLUMNS),
        "metric": f"nDCG@{_K}, gold",
        "delta": _DELTA,
        "certify": _CERTIFY,
        "seeds": seeds,
        "channels": {name: list(_VARIANTS[name].channels) for name in names},
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
    }


if __name__ == "__main__":
    main()
