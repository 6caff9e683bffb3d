"""What depth of the small stage is worth on a score table: fixed depths, and whether predicted gain beats them.

    python -m evals.depth --table T.parquet --first-stage a,b --small S [--k 10] [--price 0.0003 ...]
                          [--halves source=QA20CAPR] [--json FILE]

The order at depth d is the small order of the first stage's first d, then the rest in first-stage order; its
quality is nDCG@k with linear gain. Cross-fitted over all queries, and with `--halves` fitted on the queries
whose attribute has the value and tested on the others, and the other way round. Each comparison is at equal
mean depth, with the 95% interval of a paired bootstrap over queries.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.fit.depth import fit_depth, fit_fixed, tried_on
from cascade.fit.observed import Observed, observe
from cascade.metrics import Gain
from cascade.replay.queries import Roles, replayed
from cascade.replay.table import ScoreTable, read_table

__all__ = ["DEPTHS", "main", "observed"]

DEPTHS: Final = (10, 15, 20, 30, 50, 75, 100)
_UNREAD: Final = "no large stage"
"""Stands for the large scores that a replay has and depth does not read."""


def observed(table: ScoreTable, channels: Sequence[str], small: str, k: int, depths: Sequence[int]) -> Observed:
    """Return the quality of every query at every depth, and its signals, as ``cascade calibrate --fit-depth`` does."""
    twice = replace(table, scores={**table.scores, _UNREAD: table.column(small)})
    found = replayed([twice], Roles(tuple(channels), small, _UNREAD), k, Gain.LINEAR)
    if found.silver:
        raise SystemExit("depth is judged by the column rel")
    return observe(found.queries, k, depths)


def _report(seen: Observed, halves: tuple[Observed, Observed] | None, prices: Sequence[float]) -> dict[str, Any]:
    curve = dict(zip(seen.depths, seen.quality.mean(axis=0).round(4).tolist(), strict=True))
    print(
        f"{len(seen.quality)} queries; nDCG at each depth {curve}; best per query {seen.quality.max(axis=1).mean():.4f}"
    )
    found: list[dict[str, Any]] = []
    for price in prices:
        fit = fit_depth(seen, price)
        results = [("cross-fitted", compared) for compared in fit.compared]
        if halves is not None:
            named = (("fitted on the half", halves), ("fitted on the rest", halves[::-1]))
            results += [(label, compared) for label, (on, test) in named for compared in tried_on(on, test, price)]
        print(f"price {price}: best fixed {fit_fixed(seen, price)}, kept {fit.rule.kind}")
        for label, compared in results:
            print(
                f"  {label}: {compared.kind} against {compared.against} at mean depth {compared.mean_depth:.1f}: "
                f"{compared.difference:+.4f} [{compared.low:+.4f}, {compared.high:+.4f}]"
            )
        compared_all = [{"how": label, **asdict(compared)} for label, compared in results]
        found.append({"price": price, "fixed": fit_fixed(seen, price), "kept": fit.rule.kind, "compared": compared_all})
    return {"queries": len(seen.quality), "ndcg": curve, "prices": found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures, and write them as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--first-stage", required=True)
    parser.add_argument("--small", required=True)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--price", type=float, nargs="+", default=[0.0003, 0.001, 0.003])
    parser.add_argument("--halves", help="attribute=value of the queries that are one half")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    table, channels = read_table(options.table), options.first_stage.split(",")
    seen = observed(table, channels, options.small, options.k, DEPTHS)
    halves = None
    if options.halves:
        name, _, value = options.halves.partition("=")
        inside = np.array([str(found) == value for found in table.of_queries(name)])
        one, other = (table.take(np.flatnonzero(chosen)) for chosen in (inside, ~inside))
        halves = (
            observed(one, channels, options.small, options.k, DEPTHS),
            observed(other, channels, options.small, options.k, DEPTHS),
        )
    report = _report(seen, halves, options.price)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
