"""Write evals/decide.md from evals/reports/decide.json: `python -m evals.decide_tables`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_HERE: Final = Path(__file__).parent
_HEAD: Final = """# What calibrated escalation is worth

Written by `python -m evals.decide_tables` from `reports/decide.json`, which `python -m evals.decide` makes. Cost is the share of the
large stage's pairs, of all candidates of all queries; recovered is the share of Q_large - Q_small; *area* is the mean share
recovered over costs 0.10 to 0.50; in brackets 95% intervals of a paired bootstrap over queries. Every policy is tested on
queries that its calibration has not seen; prices are swept there, so these are curves, not promises. Calibrations are
fitted for k = 10, also where nDCG@3, nDCG@1 or MRR is measured. `static` sends the
same top m of the small order for every query, `static-fused` the same top m of the calibrated order.
"""
_COLUMNS: Final = (
    "area: static",
    "static-fused",
    "policy",
    "policy - static",
    "policy - static-fused",
    "cost at 95%: static",
    "static-fused",
    "policy",
)


def main() -> None:
    """Write the page."""
    told = json.loads((_HERE / "reports" / "decide.json").read_text(encoding="utf-8"))
    (_HERE / "decide.md").write_text(page(told), encoding="utf-8")


def page(told: dict[str, Any]) -> str:
    """Return the page of a report."""
    lines = [_HEAD, "## JQaRA, fitted on one source and tested on the other\n"]
    for metric in ("ndcg@10", "ndcg@3", "ndcg@1", "mrr"):
        rows = [(name, found[metric]) for name, found in told["jqara"].items()]
        lines += [f"### {metric}\n", *_table(rows), ""]
    lines += ["### Controls, fitted on QA20CAPR, tested on QA20QBIK, nDCG@10\n"]
    rows = [
        (f"{pair}, {control}", found)
        for pair, controls in told["controls"].items()
        for control, found in controls.items()
        if control != "gates"
    ]
    lines += [*_table(rows), ""]
    lines += ["### Gates: whole queries escalated, the least certain first; area, where random is .300\n"]
    lines += list(_gates({pair: controls["gates"] for pair, controls in told["controls"].items()}))
    lines += ["\n## TREC DL 2019 and 2020, fitted on one year, tested on the other, both together, nDCG@10\n"]
    lines += [
        *_table([(name, found) for name, found in told["dl"].items() if "queries" in found and "gap" in found]),
        "",
    ]
    lines += [
        "## Does the large stage help: Q_large - Q_small\n",
        "| pair | queries | difference | |",
        "|---|---:|---:|---|",
    ]
    benefits = {name: found for name, found in told["dl"].items() if "status" in found}
    for collection in ("cranfield", "dbpedia"):
        for k, found in told["packaged"][collection].items():
            benefits[f"{collection}, packaged models, {k}"] = found["benefit"]
    for name, found in benefits.items():
        interval = _cell([found["mean"], found["low"], found["high"]])
        lines.append(f"| {name} | {found['queries']} | {interval} | {found['status']} |")
    lines.append(
        "\nWhere none was found, shares recovered are not defined, and the fitted release escalates nothing: that is the result of "
        "the packaged models on Cranfield and on the DBpedia sample, and of both listwise rerankers on DL."
    )
    return "\n".join(lines) + "\n"


def _table(rows: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    yield "| | queries | gap | " + " | ".join(_COLUMNS) + " |"
    yield "|---|---:|" + "---:|" * (len(_COLUMNS) + 1)
    for name, found in rows:
        area, cost, difference = found["area_10_50"], found["cost_at_recovered"], found["differences"]
        cells = [
            _cell(found["gap"]),
            *(_cell(area[policy]) for policy in ("static", "static-fused", "policy")),
            _cell(difference["policy - static"]["area_10_50"]),
            _cell(difference["policy - static-fused"]["area_10_50"]),
            *(_cell(cost[policy]["0.95"]) for policy in ("static", "static-fused", "policy")),
        ]
        yield f"| {name} | {found['queries']} | " + " | ".join(cells) + " |"


def _gates(pairs: dict[str, dict[str, list[float | None]]]) -> Iterator[str]:
    names = list(next(iter(pairs.values())))
    yield "| pair | " + " | ".join(names) + " |"
    yield "|---|" + "---:|" * len(names)
    for pair, found in pairs.items():
        yield f"| {pair} | " + " | ".join(_cell(found[name]) for name in names) + " |"


def _cell(figure: list[float | None]) -> str:
    value, low, high = ("-" if number is None else f"{number:.3f}" for number in figure)
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    main()
